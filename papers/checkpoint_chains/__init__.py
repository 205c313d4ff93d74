"""Least memory by recomputation on chains: exact models, and the networks of the papers.

The papers' memory models are in `offcert.heuristics.checkpoint.live`. `segment_costs` brings all of
them into one form, for which `chain_milp` is exact; `chain_cpsat` is a second, unlike model. The
algorithms that select checkpoints are in `offcert.heuristics.checkpoint`; nothing is shared with
them.
"""
