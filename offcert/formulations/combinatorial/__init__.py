"""Bounds that are computed, not searched for."""
