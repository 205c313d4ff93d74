"""The steps of the ladder for problems in which computations may run again."""

from __future__ import annotations

from offcert.certify.effort import Effort
from offcert.certify.search import Search
from offcert.core.plan import Plan
from offcert.core.problem import Minimise
from offcert.core.schedule import Schedule
from offcert.core.simulate import simulate


def descend_whole(search: Search, effort: Effort) -> None:
    """Offer the execution in which everything runs once and stays, if it fits."""
    search.begin("everything once")
    plain = search.problem.plain()
    peak = plain.trace.peak_memory
    if peak <= plain.platform.memory or search.problem.minimise is Minimise.MEMORY:
        search.offer(simulate(plain.with_memory(peak), Plan()), peak)


def descend_sequentially(search: Search, effort: Effort) -> None:
    """Offer the least memory in which everything runs once, if time is no matter."""
    from offcert.heuristics.sequential import sequential

    problem = search.problem
    if problem.minimise is not Minimise.MEMORY or not problem.offload:
        return
    search.begin("sequential offloading")
    least = problem.trace.least_memory
    plain = problem.plain().with_memory(least)
    search.offer(simulate(plain, sequential(plain)), least)


def descend_plain(search: Search, effort: Effort) -> None:
    """Offer what offloading alone can do, if that fits into the memory."""
    search.begin("offloading alone")
    plain = search.problem.plain()
    if search.problem.minimise is Minimise.MEMORY or search.objective == plain.trace.compute_time:
        return
    if plain.trace.least_memory > plain.platform.memory:
        return
    # Its first plans come however little time there is.
    inner = Search(plain, max(effort.seconds, 0.01), float(search.target_gap))
    assert effort.climb is not None
    try:
        effort.climb(inner, effort.workers, effort.seed)
    finally:
        if isinstance(inner.best, Schedule):
            search.offer(inner.best)
