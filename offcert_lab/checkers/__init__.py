"""Proof formats that other people's checkers read."""
