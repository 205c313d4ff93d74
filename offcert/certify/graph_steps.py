"""A step that stores some tensors of a network and computes the rest again by components."""

from __future__ import annotations

import time
from collections.abc import Iterator

from offcert.certify.effort import Effort
from offcert.certify.search import Search
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.plan import Plan
from offcert.core.problem import Minimise, Problem, Recompute
from offcert.core.simulate import simulate


def descend_graphs(search: Search, effort: Effort) -> None:
    """Offer the best of what the re-forwarding paper's solver stores, if nothing is offloaded.

    Its selections for all max terms are executions of the network, from storing nearly nothing to
    nearly everything. Where memory is minimised, the one with the fewest live bytes within the
    deadline is offered; where time is, the one that computes least within the memory.
    """
    problem = search.problem
    network = problem.computed
    if problem.recompute is not Recompute.ANY or network is None:
        return
    search.begin("graph selections")
    best: tuple[int, Execution] | None = None
    for execution in _executions(network, effort.seconds):
        cost = _cost(problem, execution)
        if cost is not None and (best is None or cost < best[0]):
            best = cost, execution
    if best is None:
        return
    execution = best[1]
    peak = execution.trace.peak_memory
    schedule = simulate(problem.executed(execution).with_memory(peak), Plan())
    least_bytes = problem.minimise is Minimise.MEMORY
    search.offer_executed(execution, schedule, peak if least_bytes else None)


def _executions(network: Network, seconds: float) -> Iterator[Execution]:
    """Yield the execution of every selection, as long as there is time."""
    from offcert.heuristics.checkpoint_graphs.arbitrary import expansions
    from offcert.heuristics.checkpoint_graphs.networks import graph_of

    deadline = time.monotonic() + seconds
    try:
        made = graph_of(network)
    except InputError:
        # Nothing can run again.
        return
    seen: set[tuple[int, ...]] = set()
    for _, selection, _ in expansions(made.graph):
        if selection.stored not in seen:
            seen.add(selection.stored)
            yield made.strategy(selection).expand(network)
        if time.monotonic() > deadline:
            return


def _cost(problem: Problem, execution: Execution) -> int | None:
    """Return what is minimised, or None if the execution is of no use."""
    trace = execution.trace
    if problem.deadline is not None and trace.compute_time > problem.deadline:
        return None
    if problem.minimise is Minimise.MEMORY:
        return trace.peak_memory
    return trace.compute_time if trace.peak_memory <= problem.platform.memory else None
