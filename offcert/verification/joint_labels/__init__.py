"""Verification of exact bounds on moving and running again, and that nothing can be executed."""
