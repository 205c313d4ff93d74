"""Tensors that move before a pivot and after it, searched from both ends again."""
