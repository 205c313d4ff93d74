"""Addresses, exactly: CP-SAT's two-dimensional no-overlap, and a search of our own."""
