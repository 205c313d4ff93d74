"""Bounds on the time in which a network can be executed if computations may run again."""
