"""Of schedules that take the same time, one that moves few bytes: transfers are left out again.

A search for the least time stops caring about transfers that delay nothing. Here the plan of its
schedule loses transfers as long as it takes no longer: of plans with few transfers all subsets are
tried, of others transfers are left out one after the other, large ones first, and exchanged.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations

from offcert.core.errors import MethodError, PlanError
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.heuristics.orders.ordered import ordered_plan
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import Simulator, moves_to_arrays

# Gaps of the largest plan of which all subsets are tried. Arbitrary.
_ALL_SUBSETS = 10
# Exchanges without success after which none is tried any more. Arbitrary.
_PATIENCE = 200

# Bytes over the link, both ways, and transfers.
Cost = tuple[int, int]


def moved(trace: Trace, gaps: Iterable[int]) -> Cost:
    """Return the bytes and the number of transfers of plans that evict some gaps."""
    chosen = set(gaps)
    leave = {trace.gaps[gap].tensor: trace.gap_size(gap) for gap in chosen}
    size = sum(leave.values()) + sum(map(trace.gap_size, chosen))
    return size, len(leave) + len(chosen)


def without(plan: Plan, trace: Trace, kept: frozenset[int]) -> Plan:
    """Return a plan with the transfers of some of its gaps alone, in its order."""
    first: dict[int, int] = {}
    for gap in sorted(kept):
        first.setdefault(trace.gaps[gap].tensor, gap)
    moves = []
    for move in plan.moves:
        tensor = trace.gaps[move.gap].tensor
        if move.kind is Kind.PREFETCH and move.gap in kept:
            moves.append(move)
        elif move.kind is Kind.OFFLOAD and tensor in first:
            moves.append(Move(move.kind, first[tensor], move.before))
    return Plan(moves)


class _Trials:
    """Plans of subsets of a plan's gaps, each either quick enough or not."""

    def __init__(self, problem: Problem, most: int, seconds: float) -> None:
        self.trace = problem.trace
        self._simulator = Simulator(problem)
        self._slows = problem.platform.slows
        self._most = most
        self._end = time.monotonic() + seconds

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._end

    def quick(self, plan: Plan) -> bool:
        """Whether a plan takes no longer than it may."""
        if self._slows:
            return self.run(plan) is not None
        return 0 <= self._simulator.evaluate(*moves_to_arrays(plan.moves)) <= self._most

    def run(self, plan: Plan) -> Schedule | None:
        """Return the schedule of a plan if it takes no longer than it may."""
        try:
            schedule = self._simulator.run(plan)
        except PlanError:
            return None
        return schedule if schedule.makespan <= self._most else None


def fewest_bytes(
    problem: Problem,
    schedule: Schedule,
    *,
    time_limit: float,
    seed: int = 0,
    cover: Sequence[int] | None = None,
) -> Schedule:
    """Return a schedule that takes no longer and moves the fewest bytes found, then fewest times.

    Parameters
    ----------
    problem : Problem
        What is scheduled: nothing but transfers is open.
    schedule : Schedule
        One of its schedules, returned as it is if nothing better is found.
    time_limit : float
        Seconds.
    seed : int
        Seed of the random numbers.
    cover : sequence of int, optional
        Gaps that may do with few bytes, whatever the schedule evicts: they are tried first.
    """
    trace = problem.trace
    if not schedule.transfers:
        return schedule
    trials = _Trials(problem, schedule.makespan, time_limit)
    best, kept = schedule, frozenset(schedule.evicted)
    for plan in _starts(problem, schedule, cover):
        if trials.late or not trials.quick(plan):
            continue
        fewer = _fewer(trials, plan, random.Random(seed))
        found = trials.run(without(plan, trace, fewer))
        if found is not None and moved(trace, fewer) < moved(trace, kept):
            best, kept = found, fewer
    return best


def _starts(problem: Problem, schedule: Schedule, cover: Sequence[int] | None) -> Iterator[Plan]:
    """Yield plans that may be quick enough: of a set of gaps, and the schedule's own."""
    if cover is not None:
        with suppress(MethodError):
            yield ordered_plan(problem, cover)
    yield schedule.plan(problem.trace)


def _fewer(trials: _Trials, plan: Plan, draw: random.Random) -> frozenset[int]:
    """Return a subset of a quick plan's gaps that is as quick, of few bytes."""
    gaps = frozenset(plan.evicted)
    if len(gaps) <= _ALL_SUBSETS:
        return _fewest_of_all(trials, plan)
    best = _dropped(trials, plan, gaps, sorted(gaps, key=trials.trace.gap_size, reverse=True))
    failed = 0
    while failed < _PATIENCE and not trials.late and len(best) < len(gaps):
        others = sorted(gaps - best)
        more = best.union(draw.sample(others, min(len(others), draw.choice((1, 1, 2, 3)))))
        # Large ones first, by and large.
        order = sorted(more, key=lambda gap: -trials.trace.gap_size(gap) * (0.5 + draw.random()))
        found = (
            _dropped(trials, plan, more, order)
            if trials.quick(without(plan, trials.trace, more))
            else best
        )
        better = moved(trials.trace, found) < moved(trials.trace, best)
        best, failed = (found, 0) if better else (best, failed + 1)
    return best


def _fewest_of_all(trials: _Trials, plan: Plan) -> frozenset[int]:
    gaps = sorted(plan.evicted)
    subsets = (
        frozenset(chosen) for count in range(len(gaps) + 1) for chosen in combinations(gaps, count)
    )
    for chosen in sorted(subsets, key=lambda each: (moved(trials.trace, each), sorted(each))):
        if trials.late:
            break
        if trials.quick(without(plan, trials.trace, chosen)):
            return chosen
    return frozenset(gaps)


def _dropped(trials: _Trials, plan: Plan, kept: frozenset[int], order: list[int]) -> frozenset[int]:
    """Return gaps that are left when others are dropped in an order: many at once, then singly."""
    chunk = max(1, len(order) // 2)
    while True:
        for begin in range(0, len(order), chunk):
            fewer = kept.difference(order[begin : begin + chunk])
            if trials.late:
                return kept
            if fewer != kept and trials.quick(without(plan, trials.trace, fewer)):
                kept = fewer
        if chunk == 1:
            return kept
        chunk = 1 if chunk < 8 else chunk // 4
        order = [gap for gap in order if gap in kept]
