"""Interruptible and fractional transfers: linear and mixed-integer programs."""
