"""The steps that run published algorithms for recomputation: on chains, combined, on graphs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.rematerialisation import offer_unmoved
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError, MethodError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.program import Program
from offcert.heuristics.combined.search import CombinedPlan, combined_plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.schedule import Schedule

# Stages of the longest chain whose exact curve is computed: that of longer chains takes many
# seconds. Measured; no record.
MAX_CURVE_STAGES = 300


def descend_checkpoints(search: Search, effort: Effort) -> None:
    """Offer the segments of a chain that suit the problem best, if nothing is offloaded.

    Where time is minimised, those that run least again within the memory; where memory is, those
    with the fewest live bytes within the deadline. No other disjoint segments do better; segments
    inside of segments may. For chains of more than `MAX_CURVE_STAGES` stages, only the checkpoints
    of fewest live bytes.
    """
    problem = search.problem
    chain = problem.checkpoint_chain
    if chain is None or problem.recompute is Recompute.NONE:
        return
    search.begin("checkpoints")
    execution = _execution(search, chain)
    if execution is not None:
        offer_unmoved(search, execution)


def _execution(search: Search, chain: CheckpointChain) -> Execution | None:
    """Return the execution to offer, or None if no segments suit the problem."""
    if len(chain) > MAX_CURVE_STAGES:
        from offcert.heuristics.checkpoint.live import checkpoint_execution
        from offcert.heuristics.checkpoint.live_curve import live_selection

        return checkpoint_execution(chain, live_selection(chain).checkpoints)
    program = _best_program(search.problem, chain)
    if program is None:
        return None
    network = chain.network()
    return program.strategy(network).without_unread(network).expand(network)


def _best_program(problem: Problem, chain: CheckpointChain) -> Program | None:
    from offcert.heuristics.checkpoint.live_curve import live_curve

    if problem.minimise is Minimise.TIME:
        trades = live_curve(chain, problem.platform.memory)
        return trades[-1].program if trades else None
    spare = None if problem.deadline is None else problem.deadline - chain.network().compute_time
    within = (each for each in live_curve(chain) if spare is None or each.again <= spare)
    best = next(within, None)
    return None if best is None else best.program


# Numbers of slots into which the memory is divided, tried in turn. Arbitrary.
SLOTS = (20, 50, 100, 200)
# Seconds that a chain of 100 stages takes with 50 slots, without and with sweeps that keep
# everything. Measured; no record.
_SECONDS = {False: 3.0, True: 7.0}
# The exponent with which that time grows with the number of slots. Measured; no record.
_GROWTH = 2.6
# Part of the range of memory below which another program is not worth its time. Arbitrary.
_FINE = 1 / 256


def descend_combined(search: Search, effort: Effort) -> None:
    """Offer plans of the combined paper's dynamic program, at ever more slots while time is left.

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
    for execution in _executions(network, effort.seconds):
        offer_unmoved(search, execution)


def _executions(network: Network, seconds: float) -> Iterator[Execution]:
    """Yield the execution of every selection, as long as there is time."""
    from offcert.heuristics.checkpoint.arbitrary import expansions
    from offcert.heuristics.checkpoint.graph_networks import graph_of

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
