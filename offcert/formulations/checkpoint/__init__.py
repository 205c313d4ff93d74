"""Least memory by recomputation on chains: what a set of checkpoints costs, and exact models.

`memory_models` has the models of the papers, `live` what a device holds. `segment_costs` brings all
of them into one form, for which `chain_milp` is exact; `chain_cpsat` is a second, unlike model. The
algorithms that select checkpoints are in `offcert.heuristics.checkpoint`; nothing is shared with
them.
"""
