"""From the pivot outward: which tensors are absent during it, and how little the link must rest.

Its size: what is left beside a label is bounded by programs of its own (`outlook`, `sums`), and a
search that grows too large is divided into a tree of cases (`split`, `tree`).
"""
