"""Optimal persistent checkpointing of chains: recomputation alone, what is stored stays stored."""
