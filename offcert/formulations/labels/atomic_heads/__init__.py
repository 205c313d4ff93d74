"""Heads and tails with whole tensors: what must leave before an operation, and return after it."""
