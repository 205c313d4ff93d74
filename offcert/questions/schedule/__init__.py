"""Schedules: when to move and to compute, for a trace on a platform."""
