"""Addresses: whether they overlap, and bounds on the pool."""
