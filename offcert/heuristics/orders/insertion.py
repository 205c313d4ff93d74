"""Last changes of a schedule: tensors are added where they do good, or taken out of its transfers.

Orders that were found without looking at small tensors leave these on the device, and may lack a
few bytes for that. A small tensor hardly costs time on the link, so it goes first or last of what
leaves; when it returns is tried at every place.

A search for the least time stops caring about transfers that delay nothing. The plan of its
schedule loses transfers as long as it takes no longer (`fewest_bytes`): of plans with few transfers
all subsets are tried, of others they are left out one after the other, large ones first.
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
from offcert.heuristics.orders.ordered import OrderedArrays, ordered_plan, ordered_schedule
from offcert.heuristics.orders.ordered_kernel import INFEASIBLE
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import Simulator, moves_to_arrays

_Orders = tuple[tuple[int, ...], tuple[int, ...]]
# The length of an order that is no schedule. By definition.
_NEVER = 2**62


def with_insertions(
    problem: Problem, offloads: Sequence[int], prefetches: Sequence[int], gaps: Iterable[int]
) -> Schedule:
    """Return the schedule of given orders with those of some more gaps that shorten it."""
    best, shortest = _Insertion(problem).grown((tuple(offloads), tuple(prefetches)), gaps)
    if shortest == _NEVER:
        raise MethodError("no ordered schedule was found, whatever was added to the orders")
    return ordered_schedule(problem, *best)


def with_all_but(
    problem: Problem, offloads: Sequence[int], prefetches: Sequence[int], gaps: Iterable[int]
) -> Schedule:
    """Return the schedule of given orders with some more gaps, but for those that lengthen it.

    Where several tensors are missing, none of which helps alone, this finds what `with_insertions`
    does not. Parameters and errors are those of that.
    """
    insertion = _Insertion(problem)
    best: _Orders = tuple(offloads), tuple(prefetches)
    taken = {problem.trace.gaps[gap].tensor for gap in offloads}
    added = []
    for gap in gaps:
        if problem.trace.gaps[gap].tensor not in taken:
            taken.add(problem.trace.gaps[gap].tensor)
            added.append(gap)
            best = insertion.in_order_of_use(best, gap)
    for gap in added:
        without: _Orders = tuple(_without(order, gap) for order in best)  # type: ignore[assignment]
        best = min((best, without, *_inserted(without, gap)), key=insertion.length)
    if insertion.length(best) == _NEVER:
        raise MethodError("no ordered schedule was found with all that was added to the orders")
    return ordered_schedule(problem, *best)


class _Insertion:
    def __init__(self, problem: Problem) -> None:
        self.trace = problem.trace
        self._arrays = OrderedArrays(problem)
        self._scratch = self._arrays.scratch()

    def length(self, orders: _Orders) -> int:
        """Return the makespan of the ordered schedule, or `_NEVER` if there is none."""
        makespan = self._arrays.makespan(*orders, self._scratch)
        return _NEVER if makespan == INFEASIBLE else makespan

    def grown(self, best: _Orders, gaps: Iterable[int]) -> tuple[_Orders, int]:
        """Add the gaps that shorten the schedule, one after the other."""
        shortest = self.length(best)
        tensors = {self.trace.gaps[gap].tensor for gap in best[0]}
        for gap in gaps:
            if self.trace.gaps[gap].tensor in tensors:
                continue
            candidate = min(_inserted(best, gap), key=self.length)
            if self.length(candidate) < shortest:
                best, shortest = candidate, self.length(candidate)
                tensors.add(self.trace.gaps[gap].tensor)
        return best, shortest

    def in_order_of_use(self, orders: _Orders, gap: int) -> _Orders:
        """Insert a gap where its tensor is written, and used again, among the others."""

        def written(other: int) -> int:
            return self.trace.tensors[self.trace.gaps[other].tensor].uses[0]

        def used(other: int) -> int:
            return self.trace.gaps[other].after

        offloads, prefetches = orders
        i = next((i for i, x in enumerate(offloads) if written(x) >= written(gap)), len(offloads))
        j = next((j for j, x in enumerate(prefetches) if used(x) > used(gap)), len(prefetches))
        return (
            (*offloads[:i], gap, *offloads[i:]),
            (*prefetches[:j], gap, *prefetches[j:]),
        )


def _without(order: tuple[int, ...], gap: int) -> tuple[int, ...]:
    return tuple(other for other in order if other != gap)


def _inserted(orders: _Orders, gap: int) -> Iterator[_Orders]:
    offloads, prefetches = orders
    for leaving in ((gap, *offloads), (*offloads, gap)):
        for place in range(len(prefetches) + 1):
            yield leaving, (*prefetches[:place], gap, *prefetches[place:])


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
    first, moves = trace.first_gaps(kept), []
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

    Gaps that may do with few bytes, the cover, are tried first. A schedule of which nothing better
    is found is returned as it is.
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
