"""Verification of lower bounds on the bytes of any execution of a network."""
