"""Searches over labels of our own, without a solver."""
