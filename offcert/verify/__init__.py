"""Verification: claims computed again, with code that finds nothing and that no finder uses."""
