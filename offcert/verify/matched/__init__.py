"""Heads and tails that move the same tensors, searched again."""
