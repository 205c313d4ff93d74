"""Heads and tails with whole tensors, searched again."""
