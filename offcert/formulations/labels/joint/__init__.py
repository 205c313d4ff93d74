"""Exact search over what is where, for small networks whose computations may run again."""
