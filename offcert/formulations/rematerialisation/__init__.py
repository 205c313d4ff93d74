"""Exact models, and a relaxation, of recomputation without offloading."""
