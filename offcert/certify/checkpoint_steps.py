"""Steps that store some data of a chain and compute the rest again."""

from __future__ import annotations

from collections.abc import Iterable

from offcert.certify.effort import Effort
from offcert.certify.joint_search import JointSearch
from offcert.certify.search import Search
from offcert.certify.warm import warm_checkpoints
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.plan import Plan
from offcert.core.problem import Minimise, Recompute
from offcert.core.simulate import simulate


def descend_checkpoints(search: Search, effort: Effort) -> None:
    """Offer the checkpoints that take the fewest live bytes, and plain training.

    For chains. Where memory is minimised they are the best of all sets of checkpoints without
    segments inside of segments; where time is, they are offered if they fit into the memory, and so
    are those of the papers, which may take less time. Nothing is offloaded.
    """
    from offcert.heuristics.checkpoint.live_selection import live_selection
    from offcert.heuristics.checkpoint.registry import SELECTIONS

    problem = search.problem
    chain = problem.checkpoint_chain
    if chain is None or problem.recompute is Recompute.NONE or not isinstance(search, JointSearch):
        return
    search.begin("checkpoints")
    with search.untimed():
        warm_checkpoints()
    known = {tuple(range(len(chain) + 1)), (0, len(chain))}
    known.add(live_selection(chain).checkpoints)
    for name, method in SELECTIONS.items():
        # The published solver of four loops says the same as the one with a queue.
        if name not in ("reforwarding", "algorithm-5"):
            known.add(method.select(chain.output).checkpoints)
    _offer(search, chain, known)


def _offer(
    search: JointSearch, chain: CheckpointChain, selections: Iterable[tuple[int, ...]]
) -> None:
    """Offer executions without any transfer."""
    from offcert.formulations.checkpoint.live import checkpoint_execution

    least_bytes = search.problem.minimise is Minimise.MEMORY
    for checkpoints in sorted(selections):
        execution = checkpoint_execution(chain, checkpoints)
        peak = execution.trace.peak_memory
        if not least_bytes and peak > search.problem.platform.memory:
            continue
        executed = search.problem.executed(execution).with_memory(peak)
        schedule = simulate(executed, Plan())
        search.offer_executed(execution, schedule, peak if least_bytes else None)
