"""Fractional optima, computed again."""
