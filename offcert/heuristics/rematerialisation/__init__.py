"""Searches for executions of real networks that recompute: little time, or little memory."""
