"""Verification of training steps with choices."""
