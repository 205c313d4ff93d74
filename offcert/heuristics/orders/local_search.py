"""Our own local search: annealing with restarts, until the time is over or a bound is met."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.errors import MethodError, PlanError
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.heuristics.evictions.rules import sequential
from offcert.heuristics.orders.annealing import Annealer, no_limits
from offcert.heuristics.orders.order_search import length_of_round
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import Simulator

# The chance that no further gap is limited, the most gaps that are, and the share of limits that
# ask a gap to stay. Arbitrary.
_ANOTHER = 0.6
_MOST_LIMITED = 4
_KEPT = 0.1
# The share of limits that a waiting operation decides, and the chance that they take the transfer
# next to it. Arbitrary.
_BLAMED = 0.5
_NEAREST = 0.35


@dataclass
class _Stay:
    """One eviction: from which slot, until which, and where its transfers stood in their plan."""

    leave: int
    back: int
    leave_rank: int
    back_rank: int


def restricted_plan(problem: Problem, limits: IntArray, base: Plan | None = None) -> Plan:
    """Return a plan within limits that keeps what it can of another one.

    The evictions of `base` are cut to their limits. Before each operation that does not fit then,
    further tensors leave, the one needed furthest in the future first, as in `sequential`.
    """
    trace = problem.trace
    stays = _cut(trace, limits, base)
    for operation in range(len(trace)):
        need = trace.demand[operation] - problem.platform.memory
        over = trace.gaps_over[operation]
        for gap in over:
            if gap in stays and stays[gap].leave <= operation < stays[gap].back:
                need -= trace.gap_size(gap)
        if need <= 0:
            continue
        reach = {gap: _reach(trace, limits, gap, operation, stays.get(gap)) for gap in over}
        for gap in sorted(over, key=lambda gap: reach[gap], reverse=True):
            if need <= 0 or reach[gap] <= operation:
                break
            need -= trace.gap_size(gap)
            rank = len(trace.gaps) * 2
            if gap in stays:
                stays[gap] = _Stay(operation, stays[gap].back, rank, stays[gap].back_rank)
            else:
                stays[gap] = _Stay(operation, reach[gap], rank, rank)
        if need > 0:
            name = trace.operations[operation].name
            raise MethodError(f"within the limits, operation {operation} ({name}) never fits")
    return _assemble(trace, stays)


def _cut(trace: Trace, limits: IntArray, base: Plan | None) -> dict[int, _Stay]:
    """Return the evictions of a plan, as far as the limits allow them."""
    stays: dict[int, _Stay] = {}
    offloaded = {} if base is None else _offloaded(trace, base)
    for rank, move in enumerate(() if base is None else base.moves):
        if move.kind is Kind.OFFLOAD:
            continue
        gap = trace.gaps[move.gap]
        slot, offload_rank = offloaded[gap.tensor]
        leave = max(slot, gap.before + 1, int(limits[0, move.gap]))
        back = min(move.before, gap.after, int(limits[3, move.gap]))
        back = max(back, int(limits[2, move.gap]))
        leave = min(leave, int(limits[1, move.gap]))
        if gap.before < leave < back <= min(gap.after, limits[3, move.gap]):
            stays[move.gap] = _Stay(leave, back, offload_rank, rank)
    return stays


def _offloaded(trace: Trace, base: Plan) -> dict[int, tuple[int, int]]:
    """Return before which operation each tensor of a plan leaves, and where that stands in it.

    On a duplex link an offload may stand behind its prefetches, because the two directions are
    ordered apart; its slot then says nothing, and it leaves before the first of them.
    """
    offloaded: dict[int, tuple[int, int]] = {}
    back: dict[int, int] = {}
    for rank, move in enumerate(base.moves):
        tensor = trace.gaps[move.gap].tensor
        if move.kind is Kind.PREFETCH:
            back[tensor] = min(move.before, back.get(tensor, move.before))
        else:
            offloaded[tensor] = min(move.before, back.get(tensor, len(trace)) - 1), rank
    return offloaded


def _reach(trace: Trace, limits: IntArray, gap: int, operation: int, stay: _Stay | None) -> int:
    """Return until which slot a gap could be absent if it left before `operation`; -1: not."""
    if stay is not None:
        return stay.back if limits[0, gap] <= operation < stay.leave else -1
    if not limits[0, gap] <= operation <= limits[1, gap]:
        return -1
    back = min(trace.gaps[gap].after, int(limits[3, gap]))
    return back if back >= limits[2, gap] else -1


def _assemble(trace: Trace, stays: dict[int, _Stay]) -> Plan:
    """Order the transfers by slot, offloads first, and within those as they were."""
    entries: list[tuple[int, bool, int, int]] = []
    # A tensor leaves once, before all its returns, and its offload names the first gap.
    for gap in trace.first_gaps(stays).values():
        entries.append((stays[gap].leave, False, stays[gap].leave_rank, gap))
    for gap, stay in stays.items():
        entries.append((stay.back, True, stay.back_rank, gap))
    return Plan(_moves(sorted(entries)))


def _moves(entries: Sequence[tuple[int, bool, int, int]]) -> list[Move]:
    return [
        Move(Kind.PREFETCH if prefetch else Kind.OFFLOAD, gap, slot)
        for slot, prefetch, _, gap in entries
    ]


def random_limits(problem: Problem, random: np.random.Generator, schedule: Schedule) -> IntArray:
    """Return limits for a few gaps: leave late, return early, or stay.

    A search from the same plan finds the same again; one that may not do what that plan does with
    its largest tensors finds others, which may be better once the limits are gone. Half of the
    limits forbid what makes an operation of the schedule wait: a transfer that stands before the
    wait, if it is an offload, may happen after that only, and a prefetch that stands after it,
    before that only. The others take any tensor, large ones most often, any number of those of its
    size, and any slot.
    """
    trace = problem.trace
    limits = no_limits(trace)
    sizes = np.array([trace.gap_size(gap) for gap in range(len(trace.gaps))], dtype=np.float64)
    for _ in range(min(int(random.geometric(_ANOTHER)), _MOST_LIMITED)):
        if random.random() < _BLAMED and _limit_culprit(trace, random, schedule, limits):
            continue
        number = int(random.choice(len(sizes), p=sizes / sizes.sum()))
        gap = trace.gaps[number]
        slot = int(random.integers(gap.before + 1, gap.after + 1))
        kind = random.random()
        # Where sizes repeat another tensor would do what the one may not.
        alike = np.flatnonzero(sizes == sizes[number])
        count = int(random.integers(1, len(alike) + 1))
        for member in {number, *random.choice(alike, count - 1, replace=False).tolist()}:
            if kind < _KEPT:
                limits[:, member] = (len(trace), -1, len(trace), -1)
            elif kind < (1 + _KEPT) / 2:
                limits[0, member] = slot
            else:
                limits[3, member] = slot
    return limits


def _limit_culprit(
    trace: Trace, random: np.random.Generator, schedule: Schedule, limits: IntArray
) -> bool:
    """Limit a transfer near an operation that waits; return whether there is one."""
    ends = (0, *schedule.ends)
    waits = np.array([b - a for a, b in zip(ends, schedule.starts, strict=False)], dtype=float)
    if waits.sum() == 0:
        return False
    waiting = int(random.choice(len(waits), p=waits / waits.sum()))
    time = schedule.starts[waiting]
    before = [t for t in schedule.transfers if t.kind is Kind.OFFLOAD and t.start < time]
    after = [t for t in schedule.transfers if t.kind is Kind.PREFETCH and t.end >= time]
    if not before and not after:
        return False
    share = len(before) / (len(before) + len(after))
    suspects = before[::-1] if random.random() < share else after
    # Transfers next to the wait are drawn most often.
    transfer = suspects[min(len(suspects), int(random.geometric(_NEAREST))) - 1]
    gap = trace.gaps[transfer.gap]
    if transfer.kind is Kind.OFFLOAD:
        first = max(waiting, gap.before) + 1
        if first > gap.after:
            return False
        limits[0, transfer.gap] = int(random.integers(first, gap.after + 1))
    else:
        last = min(waiting, gap.after) - 1
        if last <= gap.before:
            return False
        limits[3, transfer.gap] = int(random.integers(gap.before + 1, last + 1))
    return True


# Steps of a round for each gap, steps of the longest round, and rounds of a cooling. Arbitrary.
_STEPS_A_GAP = 300
_LONGEST_ROUND = 40_000
_ROUNDS = 12
# Temperatures as shares of the makespan: at the start of a cooling without limits, and from and to
# which each round of a cooling goes, within limits and after their release. Arbitrary.
_HOTTEST = 0.03
_LIMITED = ((3e-3, 1e-3), (1e-3, 1e-4), (1e-4, 1e-5))
_RELEASED = ((1e-3, 1e-4), (1e-4, 1e-5))
# Coolings between two without limits; how much longer than the best a plan within limits may be, as
# a part of it; limits that are tried to find some with a plan. Arbitrary.
_FREE_EVERY = 8
_TOLERANCE = 0.003
_ATTEMPTS = 10


def local_search(
    problem: Problem,
    *,
    time_limit: float = 5.0,
    seed: int = 0,
    target: int = 0,
    start: Plan | None = None,
    max_restarts: int | None = None,
    patience: int | None = None,
    pass_interrupts: bool = False,
    on_improvement: Callable[[Schedule], object] | None = None,
) -> Plan:
    """Return the best plan that annealing over sets and orders finds.

    It starts from a plan, by default the `sequential` one, and ends when the time is over, the
    makespan is at most `target` ticks, after `max_restarts` coolings, or after `patience` of them
    in a row that brought nothing. Two runs with the same seed agree if `max_restarts` ends them.
    Every better schedule is passed on. An interrupt (Ctrl-C) ends it like a time-out, unless it is
    to be passed on. A `MethodError` says that no plan exists at this memory limit.
    """
    deadline = time.monotonic() + time_limit
    first = sequential(problem) if start is None else start
    simulator = Simulator(problem)
    schedule = simulator.run(first)
    if on_improvement is not None:
        on_improvement(schedule)
    if not problem.trace.gaps or schedule.makespan <= target:
        return schedule.plan(problem.trace)
    annealer = Annealer(simulator, schedule.plan(problem.trace), seed)
    # The plan of a schedule may take less time than the schedule.
    if annealer.makespan < schedule.makespan and on_improvement is not None:
        on_improvement(simulator.run(annealer.best))
    steps = min(_LONGEST_ROUND, _STEPS_A_GAP * len(problem.trace.gaps))
    steps = length_of_round(problem, steps)
    random = np.random.default_rng(seed)
    restarts = fruitless = 0
    try:
        while max_restarts is None or restarts < max_restarts:
            fruitless += 1
            for round_ in _cooling(annealer, random, restarts):
                if annealer.run(steps, *round_):
                    fruitless = 0
                    if on_improvement is not None:
                        on_improvement(simulator.run(annealer.best))
                if annealer.makespan <= target or time.monotonic() >= deadline:
                    return annealer.best
            restarts += 1
            if fruitless == patience:
                break
            if annealer.current > annealer.makespan * (1 + _TOLERANCE):
                annealer.restart(annealer.best)
    except KeyboardInterrupt:
        if pass_interrupts:
            raise
    return annealer.best


def _cooling(
    annealer: Annealer, random: np.random.Generator, number: int
) -> Iterator[tuple[float, float]]:
    """Yield the hottest and coldest temperature of each round, setting limits in between.

    The first cooling may wander; later ones start from the best plan, most of them within limits
    that keep them away from it.
    """
    makespan = annealer.makespan
    if number % _FREE_EVERY == 0 or not _limit(annealer, random):
        hot = makespan * (_HOTTEST if number % (3 * _FREE_EVERY) == 0 else _HOTTEST / 10)
        for round_ in range(_ROUNDS):
            yield hot * 1e-3 ** (round_ / _ROUNDS), hot * 1e-3 ** ((round_ + 1) / _ROUNDS)
        return
    yield from ((makespan * hot, makespan * cold) for hot, cold in _LIMITED)
    annealer.limits[:] = no_limits(annealer.simulator.trace)
    yield from ((makespan * hot, makespan * cold) for hot, cold in _RELEASED)


def _limit(annealer: Annealer, random: np.random.Generator) -> bool:
    """Restart from a plan within random limits; return whether there is one."""
    simulator = annealer.simulator
    base = annealer.plan
    schedule = simulator.run(base)
    for _ in range(_ATTEMPTS):
        limits = random_limits(simulator.problem, random, schedule)
        with suppress(MethodError, PlanError):
            annealer.restart(restricted_plan(simulator.problem, limits, base))
            annealer.limits[:] = limits
            return True
    return False
