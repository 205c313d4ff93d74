"""The steps of the ladder that only look for schedules, each within its time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from offcert.certify.effort import Effort
from offcert.certify.interrupts import held_interrupts
from offcert.certify.search import Search
from offcert.certify.warm import (
    warm_local_search,
    warm_order_search,
    warm_plans,
    warm_set_search,
)
from offcert.core.errors import MethodError, PlanError
from offcert.core.simulate import simulate

# Coolings without success after which annealing leaves the time to the solvers.
_PATIENCE = 12


def descend_sequential(search: Search, effort: Effort) -> None:
    """Offer the plan that always works and costs next to nothing."""
    search.begin("sequential")
    with held_interrupts():
        from offcert.heuristics.sequential import sequential
    with search.untimed():
        warm_plans()
    search.offer(simulate(search.problem, sequential(search.problem)))


def descend_greedy(search: Search, effort: Effort) -> None:
    """Offer GREEDY's plan, which often is good; it is for chains only and may find none."""
    search.begin("greedy")
    with held_interrupts():
        from offcert.heuristics.greedy import greedy
    with suppress(MethodError, PlanError):
        search.offer(simulate(search.problem, greedy(search.problem)))


def descend_cover(search: Search, effort: Effort) -> None:
    """Offer the plan that evicts as little as possible where most has to be absent."""
    search.begin("least cover")
    with held_interrupts():
        from offcert.heuristics.least_cover import least_cover_plan
    with suppress(MethodError, PlanError):
        search.offer(simulate(search.problem, least_cover_plan(search.problem)))


def descend_local_search(search: Search, effort: Effort) -> None:
    """Anneal from the best schedule so far."""
    search.begin("local search")
    with held_interrupts():
        from offcert.heuristics.local_search import local_search
    assert search.schedule is not None
    with search.untimed():
        warm_local_search()
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
    with held_interrupts():
        from offcert.heuristics.set_search import set_search
    with search.untimed():
        warm_set_search()
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
    with held_interrupts():
        from offcert.heuristics.order_search import order_search
    with search.untimed():
        warm_order_search()
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


def after_annealing(
    run: Callable[[Search, Effort], None],
) -> Callable[[Search, Effort], None]:
    """Give a model that looks for shorter schedules a good one: annealing, in a tenth of the time.

    The shorter the schedule, the narrower the windows.
    """

    def anneal_and_run(search: Search, effort: Effort) -> None:
        descend_sequential(search, effort)
        descend_local_search(search, replace(effort, seconds=effort.seconds / 10))
        run(search, replace(effort, seconds=search.remaining))

    return anneal_and_run
