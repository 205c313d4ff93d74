"""Heads and tails that move the same tensors: what leaves before an operation returns after it."""
