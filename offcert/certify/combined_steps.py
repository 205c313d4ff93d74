"""The step that runs the combined paper's dynamic program."""

from __future__ import annotations

import time
from typing import Any

from offcert.certify.effort import Effort
from offcert.certify.search import Search
from offcert.core.errors import MethodError
from offcert.core.problem import Minimise, Problem, Recompute
from offcert.core.schedule import Schedule
from offcert.heuristics.combined.search import CombinedPlan, combined_plan

# Into how many slots the memory is divided, in turn.
SLOTS = (20, 50, 100, 200)
# Seconds that 100 stages and 50 slots take, about, without and with sweeps that keep everything.
_SECONDS = {False: 3.0, True: 7.0}
# How the time grows with the slots.
_GROWTH = 2.6
# Share of the range of memory that is worth another program.
_FINE = 1 / 256


def descend_combined(search: Search, effort: Effort) -> None:
    """Offer what the combined paper's dynamic program finds, at ever more slots while time is left.

    By itself, and with sweeps that keep all of their last stage (`combined_plan`'s `bare`), which
    the paper does not know: neither is always better once transfers are whole. Where memory is
    minimised, the least limit is looked for at which what it finds ends by the deadline, with one
    number of slots: the first that is asked for, or 50.
    """
    problem = search.problem
    chain = problem.checkpoint_chain
    if chain is None or problem.recompute is Recompute.NONE:
        return
    search.begin("combined program")
    ends = time.monotonic() + effort.seconds
    asked: Any = effort.options.get("slots")
    if problem.minimise is Minimise.MEMORY:
        _least_memory(search, ends, asked[0] if asked else SLOTS[1])
        return
    every = asked or SLOTS
    for slots in every:
        for bare in (False, True):
            if slots > every[0] and seconds(len(chain), slots, bare) > ends - time.monotonic():
                return
            found = _found(problem, slots, bare)
            if found is not None:
                search.offer_executed(found[0].execution, found[1])


def seconds(stages: int, slots: int, bare: bool) -> float:
    """Return about how long the program takes."""
    return float(_SECONDS[bare] * (stages / 100) ** 2 * (slots / 50) ** _GROWTH)


def _found(problem: Problem, slots: int, bare: bool) -> tuple[CombinedPlan, Schedule] | None:
    try:
        plan = combined_plan(problem, slots, bare=bare)
        return plan, plan.atomic(problem)
    except MethodError:
        return None


def _least_memory(search: Search, ends: float, slots: int) -> None:
    """Halve the range of memory until time is over or the range is small."""
    problem = search.problem
    network, chain, deadline = problem.computed, problem.checkpoint_chain, problem.deadline
    assert network is not None
    assert chain is not None
    low = max(network.own_memory) - 1
    high = min(problem.platform.memory, problem.trace.peak_memory)
    fine = max(1, int((high - low) * _FINE))
    memory = high
    while low < memory and seconds(len(chain), slots, True) < ends - time.monotonic():
        found = _found(problem.with_memory(memory), slots, bare=True)
        if found is not None and (deadline is None or found[1].makespan <= deadline):
            search.offer_executed(found[0].execution, found[1], memory)
            high = memory
        elif memory == high:
            return
        else:
            low = memory
        if high - low <= fine:
            return
        memory = (low + high) // 2
