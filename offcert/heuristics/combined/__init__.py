"""Offloading and recomputation together on chains: the combined paper's dynamic program.

`slots` states a chain in memory slots, `kernels` fills the two tables, `decisions` reads the best
strategy and the inputs that leave out of them, `timing` times them exactly, and `search` is the way
in. What the paper's supplement leaves open, and how it is read here: docs/theory/combined.md.
"""
