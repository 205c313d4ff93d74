"""Functions that several formulations need."""
