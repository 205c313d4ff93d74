"""Exact models, and a relaxation, of recomputation without offloading.

Its size: three exact models (retention, stages, Checkmate's) and two relaxations, each of which
minimises either time or memory.
"""
