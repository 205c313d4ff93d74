"""The steps of the ladder that only look for schedules, each within its time."""

from __future__ import annotations

import time
from typing import Any

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.formulations.combinatorial.pieces import classes_of, joined, pieces_of
from offcert.heuristics.evictions.rules import sequential
from offcert.heuristics.orders.insertion import fewest_bytes
from offcert.heuristics.orders.local_search import local_search
from offcert.heuristics.orders.order_search import order_search, set_search
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate

# Coolings without success after which annealing leaves the time to the solvers. Arbitrary.
_PATIENCE = 12

# Part of the time of planning pieces that the searches get: these may end some seconds late.
# Arbitrary.
_OF_PIECES = 0.8


def descend_sequential(search: Search, effort: Effort) -> None:
    """Offer the plan that always works and costs next to nothing."""
    search.begin("sequential")
    search.offer(simulate(search.problem, sequential(search.problem)))


def descend_pieces(search: Search, effort: Effort) -> None:
    """Plan the pieces of a step between which nothing is away, equal ones once, and join them."""
    pieces = pieces_of(search.problem)
    classes = classes_of(pieces)
    if len(pieces) < 2 or effort.climb is None:
        return
    search.begin("pieces of the step")
    end = time.monotonic() + _OF_PIECES * effort.seconds
    plans: dict[int, Plan] = {}
    try:
        for number, (part, group) in enumerate(classes):
            left = (end - time.monotonic()) / (len(classes) - number)
            inner = Search(part, max(left, 0.01), float(search.target_gap))
            try:
                effort.climb(inner, effort.workers, effort.seed)
            finally:
                if isinstance(inner.best, Schedule):
                    plans |= {piece.first: inner.best.plan(part.trace) for piece in group}
    finally:
        # Where the time is over, each tensor of a piece moves just in time.
        rows = [(p, plans.get(p.first) or sequential(p.problem)) for p in pieces]
        search.offer(simulate(search.problem, joined(rows)))


def descend_local_search(search: Search, effort: Effort) -> None:
    """Anneal from the best schedule so far."""
    search.begin("local search")
    assert search.schedule is not None
    options: dict[str, Any] = {"patience": _PATIENCE} | dict(effort.options)
    local_search(
        search.problem,
        time_limit=effort.seconds,
        # Another random sequence each time it is called within one search.
        seed=effort.seed + 1000 * len(search.bounds),
        target=search.goal,
        start=search.schedule.plan(search.problem.trace),
        on_improvement=search.offer,
        pass_interrupts=True,
        **options,
    )


def descend_set_search(search: Search, effort: Effort) -> None:
    """Anneal over how many tensors of each size leave."""
    search.begin("set search")
    set_search(
        search.problem,
        time_limit=effort.seconds,
        seed=effort.seed + 1000 * len(search.bounds),
        target=search.goal,
        on_improvement=search.offer,
    )


def descend_order_search(search: Search, effort: Effort) -> None:
    """Anneal over sets and both orders, from those of the best schedule so far."""
    search.begin("order search")
    options: dict[str, Any] = dict(effort.options)
    order_search(
        search.problem,
        time_limit=effort.seconds,
        seed=effort.seed + 1000 * len(search.bounds),
        target=search.goal,
        start=search.schedule,
        on_improvement=search.offer,
        **options,
    )


def move_less(search: Search, seconds: float, seed: int) -> None:
    """Exchange the best schedule for one of the same time that moves fewer bytes, then fewer times.

    The search has ended.
    """
    from offcert.formulations.models.least_cover import least_cover_gaps

    schedule = search.schedule
    if schedule is None or search.best is not schedule or not schedule.transfers:
        return
    search.begin("fewest bytes")
    end, problem = time.monotonic() + seconds, search.executed
    cover = least_cover_gaps(problem, seconds / 2)
    # However long the process of HiGHS took to start.
    left = max(end - time.monotonic(), seconds / 2)
    found = fewest_bytes(problem, schedule, time_limit=left, seed=seed, cover=cover)
    if found is not schedule:
        search.exchange(found)
