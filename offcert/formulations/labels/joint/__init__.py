"""Exact search over contents and their places, for small networks that may run again."""
