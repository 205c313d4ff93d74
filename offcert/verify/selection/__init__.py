"""Verification of bounds on what recomputation alone can save."""
