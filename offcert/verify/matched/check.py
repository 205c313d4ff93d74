"""An independent, plain re-run of a matched-heads bound.

`confirm_matched` establishes again, from the problem's numbers alone and without a line of the
program that found it, that no schedule is shorter than a claimed bound. Where `verify.heads` adds
up a head and a tail that may have nothing in common, this one makes them move the same tensors.

What is searched
----------------
A schedule shorter than the claim is cut where the *pivot* starts, into a front and, in reversed
time, a back. The *movables* are the tensors of at least `free_below` bytes that have one gap: in
the front those whose gap opens before the pivot, in the back those whose gap closes after it. All
others are absent whenever they may be, at no cost. Each side is relaxed as in `verify.heads`: every
movable leaves at most once and stays away.

Head and tail, proved as in `verify.heads`, say how late each side may end: neither may take what
the other needs of the claim. A movable is *out at the cut* if it has left by then and returns after
it. The movables that are absent when the pivot starts are among these, so what is out weighs at
least what the pivot needs. A movable that leaves in the front and is not out at the cut, because it
returns early or its gap is over, comes on top of that. So does, in reversed time, a movable that
returns in the back and leaves after the cut. Now suppose that no side ends in time if it moves what
the pivot needs and, on top of that, as much as the ``spare + 1`` smallest movables. Then in every
schedule shorter than the claim

    what leaves in the front = what is out at the cut, and up to `spare` other movables,
    what returns in the back = what is out at the cut, and up to `spare` other movables.

If `spare` is 0, both sides move the same units, and as many tensors of each size that is told
apart. Only ends that agree in this can be joined; the least sum of their times is a bound.
Otherwise two ends can be joined if they agree once up to `spare` tensors are taken away from each,
with at least what the pivot needs left. docs/theory/matched.md has the argument, with an example on
paper.

How it is searched
------------------
Sizes are told apart level by level. What a level finds on one side, together with the least end of
the other side for the same amounts, bounds the whole schedule from below for every key from which a
joint end can be reached; the next level keeps only labels whose coarser key is one of these and
which can still be part of a schedule shorter than the claim. Telling more apart only raises ends,
so nothing is lost. The claim is established by the first level at which no two ends can be joined.

All of this admits more than the problem does, whatever the levels and the units are, so wrong
advice can only make the answer no.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem
from offcert.verify.heads.check import MOST_LABELS, MOST_LEVELS, ends_fault, side_tables
from offcert.verify.heads.check import within_reach as ends_within_reach
from offcert.verify.heads.search import Tables
from offcert.verify.limits import BeyondLimitsError, TooLargeError
from offcert.verify.matched.join import joined
from offcert.verify.matched.search import (
    DONE,
    NEVER,
    TOO_MUCH,
    Keyed,
    all_ends,
    all_prospects,
    kept,
    no_keys,
)

Sizes = Sequence[int]
Movables = Mapping[int, tuple[int, int]]

_SIDES = {Kind.OFFLOAD: "before", Kind.PREFETCH: "after"}


def confirm_matched(
    problem: Problem,
    pivot: int,
    head: int,
    tail: int,
    claimed: int,
    *,
    counted: tuple[Sizes, Sizes] = ((), ()),
    units: tuple[int, int] = (1, 1),
    unit: int,
    free_below: int,
    levels: Sequence[Sizes],
    spare: int = 0,
    max_labels: int = MOST_LABELS,
) -> bool:
    """Return whether no schedule of `problem` is shorter than `claimed` ticks.

    Parameters
    ----------
    problem : Problem
        Atomic transfers, any trace and link; false for others.
    pivot : int
        The operation at whose start schedules are cut.
    head, tail : int
        Ticks before its start, and from then on, that no schedule can do without.
    claimed : int
        The bound, in ticks.
    counted : pair of sequence of int
        For the head and the tail alone, the sizes of which no more tensors may move than there are.
    units : pair of int
        For the head and the tail alone, to whose multiples sizes are rounded up, in bytes.
    unit : int
        To whose multiples sizes are rounded up where both sides are joined, in bytes.
    free_below : int
        Smaller tensors are absent whenever they may be, at no cost; in bytes.
    levels : sequence of sequence of int
        The sizes told apart by each search, in bytes; each has those of the one before, and more.
    spare : int
        How many movables may leave in the front, and how many may return in the back, that are not
        absent at the cut.
    max_labels : int
        How much to search at most, on each side of each level.

    Returns
    -------
    bool
        False if the bound is wrong, the advice is insufficient, or the search is too large.
    """
    advice = (head, tail), counted, units, claimed
    finer: dict[str, Any] = {"unit": unit, "free_below": free_below, "levels": levels}
    try:
        fault = matched_fault(problem, pivot, *advice, **finer, spare=spare, max_labels=max_labels)
    except BeyondLimitsError:
        return False
    return fault is None


def matched_fault(
    problem: Problem,
    pivot: int,
    times: tuple[int, int],
    counted: tuple[Sizes, Sizes],
    units: tuple[int, int],
    claimed: int,
    *,
    unit: int,
    free_below: int,
    levels: Sequence[Sizes],
    spare: int = 0,
    max_labels: int = MOST_LABELS,
    require_time: Callable[[], None] = lambda: None,
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or which part fails to show it.

    Parameters are those of `confirm_matched`, with head and tail as `times`; `require_time` is
    called before each search, and raises if there is no time for it.

    Raises
    ------
    BeyondLimitsError
        If a search is too large.
    """
    trace = problem.trace
    if trace.least_memory > problem.platform.memory or claimed <= sum(trace.durations):
        return None
    if min(times) < 0:
        return f"details.head and details.tail must not be negative, as in {times[0]}, {times[1]}"
    if unit < 1:
        return f"details.unit must be at least 1, not {unit}"
    fault = ends_fault(problem, pivot, times, counted, units, max_labels)
    if fault is not None or sum(times) >= claimed:
        return fault
    fault = _advice_fault(problem, pivot, free_below, levels, spare)
    if fault is not None:
        return fault
    try:
        cut = MatchedCut(problem, pivot, times, claimed, unit, free_below, spare)
        return cut.fault(levels, max_labels, require_time)
    except TooLargeError:
        return "its numbers are too large for the search"


def within_reach(
    problem: Problem,
    pivot: int,
    times: tuple[int, int],
    counted: tuple[Sizes, Sizes],
    units: tuple[int, int],
    claimed: int,
    *,
    unit: int,
    free_below: int,
    levels: Sequence[Sizes],
    spare: int = 0,
) -> bool:
    """Return whether `matched_fault` can work with the numbers of such a claim at all."""
    if unit < 1 or not ends_within_reach(problem, pivot, *times, counted=counted, units=units):
        return False
    if min(times) < 0:
        return False
    if sum(times) >= claimed:
        # Head and tail alone show it.
        return True
    if _advice_fault(problem, pivot, free_below, levels, spare) is not None:
        return False
    try:
        cut = MatchedCut(problem, pivot, times, claimed, unit, free_below, spare)
        for newest in _in_order(levels):
            cut.sides(newest)
    except TooLargeError:
        return False
    return True


class MatchedCut:
    """Both sides of a pivot, to be searched for what joins to less than `claimed` ticks.

    Raises
    ------
    TooLargeError
        If so many amounts would have to be told apart.
    """

    def __init__(
        self,
        problem: Problem,
        pivot: int,
        times: tuple[int, int],
        claimed: int,
        unit: int,
        free_below: int,
        spare: int,
    ) -> None:
        self.problem = problem
        self.pivot = pivot
        self.unit = unit
        self.free_below = free_below
        self.spare = spare
        self.longest = claimed - 1
        # How late the front may end, and the back.
        self.limits = claimed - 1 - times[1], claimed - 1 - times[0]
        self.movables = _movables(problem, pivot, free_below)
        self.most = _most(problem, self.movables)
        excess = self.least_excess(int(self.sides(())[0].need[-1]))
        if excess > MOST_LEVELS * unit:
            raise TooLargeError
        # The least units at which more than the spare tensors may be early or late.
        self.amounts = -(-excess // unit)

    def least_excess(self, need: int) -> int:
        """Return the bytes that a side with more than the spare tensors moves at least."""
        return need + sum(sorted(self.most.elements())[: self.spare + 1])

    def sides(self, counted: Sizes) -> list[Tables]:
        """Return front and back as arrays, with some sizes told apart."""
        return [
            side_tables(
                self.problem,
                self.pivot,
                kind,
                self.longest + 1,
                counted,
                self.unit,
                movables,
                self.most,
            )
            for kind, movables in zip(Kind, self.movables, strict=True)
        ]

    def fault(
        self, levels: Sequence[Sizes], max_labels: int, require_time: Callable[[], None]
    ) -> str | None:
        """Return None if no front and back join in time, or which part of the details fails."""
        known, ratio, least = [no_keys(self.amounts)] * 2, 0, NEVER
        before: Sizes = ()
        for level, counted in enumerate(_in_order(levels)):
            tables = self.sides(counted)
            if level == 0:
                prospects = [all_prospects(side) for side in tables]
            else:
                ratio = 1
                for size in set(counted) - set(before):
                    ratio *= self.most[size] + 1
            found: list[Keyed] = []
            for index, (kind, side) in enumerate(zip(Kind, tables, strict=True)):
                require_time()
                limit, ahead, coarse = self.limits[index], prospects[index], known[index]
                status, labels = all_ends(
                    side, limit, self.amounts, ahead, coarse, ratio, self.longest, max_labels
                )
                if status != DONE:
                    return self._unfinished(status, kind, level)
                found.append(labels)
            least, others = joined(tables, found, self.spare, self.longest)
            if least > self.longest:
                return None
            if level < len(levels) - 1:
                known = [
                    kept(side, labels, other, self.longest)
                    for side, labels, other in zip(tables, found, others, strict=True)
                ]
            before = counted
        return f"with all of details.levels two sides are joined in {least}"

    def _unfinished(self, status: int, kind: Kind, level: int) -> str:
        """Return why the search of one side found nothing."""
        if status == TOO_MUCH:
            move = "return before" if kind is Kind.OFFLOAD else "leave after"
            who = "a tensor" if self.spare == 0 else f"more tensors than details.spare {self.spare}"
            return (
                f"with details.free_below {self.free_below}, {who} may {move} the start of the "
                "pivot, so that the two sides need not move the same"
            )
        raise BeyondLimitsError(
            f"the search {_SIDES[kind]} the pivot for details.levels[{level}] is too large"
        )


def _movables(problem: Problem, pivot: int, free_below: int) -> list[Movables]:
    """Return the tensors that may leave on either side, each with the uses around its one gap."""
    gaps = {}
    for index, tensor in enumerate(problem.trace.tensors):
        absences = [(one, two) for one, two in pairwise(tensor.uses) if two > one + 1]
        if tensor.evictable and tensor.size >= max(1, free_below) and len(absences) == 1:
            gaps[index] = absences[0]
    return [
        {index: gap for index, gap in gaps.items() if gap[0] < pivot},
        {index: gap for index, gap in gaps.items() if gap[1] > pivot},
    ]


def _most(problem: Problem, movables: Sequence[Movables]) -> Counter[int]:
    """Return how many tensors of each size may leave on one side, at most."""
    one, two = (Counter(problem.trace.tensors[index].size for index in side) for side in movables)
    return one | two


def _in_order(levels: Sequence[Sizes]) -> list[Sizes]:
    """Return the sizes of each level, those it has first in front.

    A code divided by the number of values that the new sizes' counts can have then is the code of
    the level before, and codes stay in order.
    """
    ordered: list[Sizes] = []
    for level in levels:
        before = ordered[-1] if ordered else ()
        ordered.append((*(size for size in level if size not in before), *before))
    return ordered


def _advice_fault(
    problem: Problem, pivot: int, free_below: int, levels: Sequence[Sizes], spare: int
) -> str | None:
    """Return the first field of the advice that makes no sense, with the reason, or None."""
    if free_below < 0:
        return f"details.free_below must not be negative, as {free_below} is"
    most = _most(problem, _movables(problem, pivot, free_below))
    if not most:
        return f"details.free_below {free_below} leaves no tensor that has to move"
    if not 0 <= spare < most.total():
        return (
            f"details.spare must be below the number of such tensors, {most.total()}, not {spare}"
        )
    if not levels:
        return "details.levels must name one search at least"
    for index, level in enumerate(levels):
        place = f"details.levels[{index}]"
        if len(set(level)) < len(level):
            return f"{place} names a size twice"
        unknown = sorted(set(level) - set(most))
        if unknown:
            return f"{place} names the size {unknown[0]}, which no tensor has that has to move"
        if index > 0 and not set(level) > set(levels[index - 1]):
            return f"{place} must have all sizes of the one before, and more"
    return None
