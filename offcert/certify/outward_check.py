"""An independent, plain re-run of an outward bound.

`confirm_outward` establishes again, from the problem's numbers alone and without a line of the
program that found it, that no schedule is shorter than a claimed bound.

What is searched
----------------
A schedule shorter than the claim is cut where the *pivot* starts. The *back* is the pivot and what
comes after it, the *front* what comes before it, in reversed time; both lead away from the cut. Let
`O` be the tensors that are out at the cut: offloaded before it, fetched back after it. On either
side all of `O` has to come back, as a reversed offload returns its tensor, and the operations of
the side run while that goes on. Other tensors may leave and return within one side. At most one
transfer is under way at the cut; its tensor counts as out on one side, and its ticks are shared
between both.

On each side more is admitted than the problem does:

- Tensors of one size are not told apart: only how many of them are out matters, and how many could
  be at most when an operation starts, or be absent while it runs.
- Tensors with several gaps, and those below a size, are absent whenever they may be, at no cost.
- A tensor may leave at any time, whether or not it is there and its use is over.
- What of `O` is out is only known to lie within limits.

Each side is followed from the cut outward only until enough bytes are back; what the rest takes is
bounded by what the link still has to carry and the device still has to run. The lengths of both
sides add up to at most the schedule's.

How it is searched
------------------
The limits on `O` are divided into parts, as the claim's advice says, until no part holds a schedule
shorter than the claim: at most or at least so many of a class, so many bytes, so many ticks of what
is under way before the cut; every set that is left, one by one; more bytes that are followed;
smaller tensors counted as well. The parts always make up the whole, whatever the advice is. Before
each division, limits get tighter by what the time that the sides lose leaves for `O` to leave and
return. So wrong advice can only make the answer no.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offcert.certify.heads_check import TooLargeError
from offcert.certify.outward_advice import FaultError, by_class, is_empty, parts_of
from offcert.certify.outward_search import NONE, REFUTED, search
from offcert.certify.outward_sets import (
    BACK,
    FRONT,
    Crossing,
    Limits,
    around,
    everything,
    finer,
    least_ticks,
    listed,
    tightened,
    with_crossing,
    within_ticks,
)
from offcert.certify.outward_tables import Cut, cut_at
from offcert.certify.outward_view import Asked, IntArray
from offcert.core.platform import Link
from offcert.core.problem import Problem, Transfers

# Labels of one side, in a part that is divided further, and in one that is not.
_MOST_LABELS = 40_000
_MOST_OF_THE_LAST = 200_000
_LARGEST = 2**61

Advice = Sequence[Sequence[Any]]


@dataclass(frozen=True, eq=False)
class _Region:
    """A part; how fine it is counted, how far followed, and the sets that are left, if listed."""

    limits: Limits
    detail: int = 0
    window: int = 0
    sets: IntArray | None = None


def confirm_outward(
    problem: Problem,
    pivot: int,
    claimed: int,
    *,
    free_below: Sequence[int] = (1,),
    windows: Sequence[int] = (1,),
    splits: Advice = (),
    max_labels: int = 40_000_000,
) -> bool:
    """Return whether no schedule of `problem` is shorter than `claimed` ticks.

    Parameters
    ----------
    problem : Problem
        Atomic transfers over a simplex link, any trace; false for others.
    pivot : int
        The operation at which schedules are cut.
    claimed : int
        The bound, in ticks.
    free_below : sequence of int
        Bytes below which tensors are absent at no cost, decreasing.
    windows : sequence of int
        What part of the bytes the pivot needs is followed: 20 is a twentieth.
    splits : sequence of sequence
        How parts are divided, each before what it is divided into: ``()`` not at all,
        ``("class", bytes, count)``, ``("bytes", least)``, ``("ticks", least)``, ``("sets", counts,
        ...)``, ``("window",)``, ``("detail", parts)``; the last goes back to the first window.
    max_labels : int
        How much to search at most.

    Returns
    -------
    bool
        False if the bound is wrong, the advice is insufficient, or the search is too large.
    """
    advice = free_below, windows, splits
    return outward_fault(problem, pivot, claimed, *advice, max_labels=max_labels) is None


def outward_fault(
    problem: Problem,
    pivot: int,
    claimed: int,
    free_below: Sequence[int],
    windows: Sequence[int],
    splits: Advice,
    *,
    max_labels: int = 40_000_000,
    max_seconds: float = math.inf,
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or where that fails to be shown.

    Parameters are those of `confirm_outward`; after `max_seconds` it gives up, too.
    """
    trace = problem.trace
    if trace.least_memory > problem.platform.memory or claimed <= sum(trace.durations):
        return None
    if problem.transfers is not Transfers.ATOMIC:
        return f"nothing of the kind holds with {problem.transfers} transfers"
    if problem.platform.link is not Link.SIMPLEX:
        return "nothing of the kind holds with a duplex link"
    if not 0 <= pivot < len(trace):
        return f"details.pivot must be below the number of operations, {len(trace)}, not {pivot}"
    for name, values in (("free_below", free_below), ("windows", windows)):
        if not values or min(values) < 1 or list(values) != sorted(set(values), reverse=True):
            return f"details.{name} must be positive and decrease, not {list(values)}"
    try:
        cuts = [cut_at(problem, pivot, least) for least in free_below]
        if claimed >= _LARGEST:
            raise TooLargeError
        if min(cut.need for cut in cuts) <= 0:
            return f"no tensor that is counted has to be absent during operation {pivot}"
        _Walk(cuts, windows, claimed - 1, max_labels, max_seconds).follow(splits)
    except TooLargeError:
        return "its numbers are too large for the search"
    except FaultError as error:
        return str(error)
    return None


class _Walk:
    """Goes through the parts, in the order of the advice."""

    def __init__(
        self,
        cuts: list[Cut],
        windows: Sequence[int],
        longest: int,
        max_labels: int,
        max_seconds: float,
    ) -> None:
        self.cuts = cuts
        self.windows = windows
        self.longest = longest
        self.left = max_labels
        self.most_labels = _MOST_LABELS
        self.deadline = time.monotonic() + max_seconds
        whole = everything(cuts[0])
        parts = with_crossing(cuts[0], whole, range(len(cuts[0].sizes)))
        # None stands for what is already known to hold nothing, so advice on it is passed over.
        self.waiting: list[_Region | None] = [_Region(limits) for limits in reversed(parts)]

    def follow(self, splits: Advice) -> None:
        """Check that nothing is left once all parts have been divided as advised."""
        for index, split in enumerate(splits):
            place = f"details.splits[{index}]"
            if not self.waiting:
                raise FaultError(f"{place} divides nothing, as all has been divided before it")
            parts, region = parts_of(split, place), self.waiting.pop()
            if region is not None:
                self.most_labels = _MOST_LABELS if split else _MOST_OF_THE_LAST
                region = self._to_divide(region, split)
            if region is None:
                self.waiting.extend([None] * parts)
            elif not split:
                raise FaultError(
                    f"as far as the search can tell, {self.longest} will do in the part that "
                    f"{place} leaves whole"
                )
            else:
                self.waiting.extend(reversed(self._divided(region, split, place)))
            if len(self.waiting) > len(splits):
                break
        if self.waiting:
            count = len(self.waiting)
            raise FaultError(f"details.splits ends where {count} parts are still to come")

    def _to_divide(self, region: _Region, split: Sequence[Any]) -> _Region | None:
        """Return what is left of a region; if its sets are listed anyway, it is not searched."""
        if split and split[0] == "sets":
            left = self._what_is_left(region, searching=False)
            if left is None or (left.sets is not None and _are_all_in(left.sets, split)):
                return left
        return self._what_is_left(region)

    def _what_is_left(self, region: _Region, *, searching: bool = True) -> _Region | None:
        """Make the limits tighter until nothing changes any more; None if they hold nothing."""
        cut, limits = self.cuts[region.detail], region.limits
        while True:
            before = limits
            tighter = tightened(cut, limits, self.longest)
            lost: int | None = 0
            if tighter is not None and searching:
                lost = self._lost(cut, tighter, region.window)
            if tighter is None or lost is None:
                return None
            limits = within_ticks(cut, tighter, self.longest - lost)
            sets = listed(cut, limits, self.longest - lost, self.longest)
            if sets is not None:
                if len(sets) == 0:
                    return None
                limits = around(cut, limits, sets)
            if limits == before:
                return replace(region, limits=limits, sets=sets)

    def _lost(self, cut: Cut, limits: Limits, window: int) -> int | None:
        """Return the ticks beyond those in which what is out leaves and returns, at least.

        None if no schedule is within the time. If something is under way at the cut, either side
        is longer the later its link is free, but by no more ticks than that: so the earliest and
        the latest begin say something about all that lie between.
        """
        known = least_ticks(cut, limits)
        if known is None:
            return None
        limits = replace(limits, ticks=known)
        crossing = limits.crossing or Crossing(BACK, NONE, 0, 0)
        takes = crossing.most if crossing.place == NONE else _takes(cut, crossing)
        first, last = crossing.least, crossing.most
        begins, later = (first, takes - last), (last, takes - first)
        front = self._side(cut, limits, window, FRONT, begins[FRONT], known[BACK] + begins[BACK])
        if front is None:
            return None
        back = self._side(cut, limits, window, BACK, begins[BACK], front[0])
        if back is None:
            return None
        if first < last:
            # What ends even later than that does so wherever the transfer begins.
            others = back[0] - (last - first), front[0] - (last - first)
            far = [
                self._side(cut, limits, window, side, later[side], others[side])
                for side in (FRONT, BACK)
            ]
            ends = [end[0] for end in far if end is not None]
            if len(ends) < len(far):
                return None
            near = front[0], back[0]
            if _shortest(first, last, near, (ends[FRONT], ends[BACK])) > self.longest:
                return None
        return front[1] + back[1]

    def _side(
        self, cut: Cut, limits: Limits, window: int, side: int, begin: int, other: int
    ) -> tuple[int, int] | None:
        """Search a side; return its least length, and by how much its link is longer than `O`.

        None if no side ends in what `other`, the other side, leaves of the time.
        """
        tables, crossing = cut.sides[side], limits.crossing
        asked = Asked(
            least=limits.least,
            most=limits.most,
            begin=begin,
            leaving=crossing.place if crossing is not None and crossing.side == side else NONE,
            ticks=limits.ticks[side],
            limit=self.longest - other,
            enough=min(limits.least, max(1, cut.need // self.windows[window])),
        )
        low, high = (np.array(counts, dtype=np.int64) for counts in (limits.low, limits.high))
        status, length, link, stored = search(tables, low, high, asked, self.most_labels)
        self.left -= stored
        if self.left < 0 or time.monotonic() > self.deadline:
            raise FaultError("the search is too large")
        return None if status == REFUTED else (int(length), int(link) - limits.ticks[side])

    def _divided(self, region: _Region, split: Sequence[Any], place: str) -> list[_Region | None]:
        """Return the parts of a region; together they are all of it."""
        cut, limits = self.cuts[region.detail], region.limits
        kind = split[0]
        if kind == "sets":
            return self._sets(region, split, place)
        if kind == "detail":
            if region.detail + 1 == len(self.cuts):
                raise FaultError(f"{place} asks for smaller tensors than details.free_below lists")
            fine = self.cuts[region.detail + 1]
            parts = finer(cut, fine, limits)
            if len(parts) != split[1]:
                raise FaultError(f"{place} must have {len(parts)} parts, not {split[1]}")
            return [_Region(part, region.detail + 1) for part in parts]
        if kind == "window":
            if region.window + 1 == len(self.windows):
                raise FaultError(f"{place} asks for more than details.windows lists")
            return [_Region(limits, region.detail, region.window + 1)]
        if kind == "class":
            pair = by_class(cut, limits, split[1], split[2], place)
        elif kind == "bytes":
            value = split[1]
            pair = (
                replace(limits, least=max(limits.least, value)),
                replace(limits, most=min(limits.most, value - 1)),
            )
        else:
            crossing = limits.crossing
            if crossing is None:
                raise FaultError(f"{place} divides what is under way, but nothing is")
            later = replace(crossing, least=max(crossing.least, split[1]))
            sooner = replace(crossing, most=min(crossing.most, split[1] - 1))
            pair = replace(limits, crossing=later), replace(limits, crossing=sooner)
        return [
            None if is_empty(part) else _Region(part, region.detail, region.window) for part in pair
        ]

    def _sets(self, region: _Region, split: Sequence[Any], place: str) -> list[_Region | None]:
        """Return every set that is left, by itself; those of the advice that are not: nothing."""
        cut, limits = self.cuts[region.detail], region.limits
        if region.sets is None or not _are_all_in(region.sets, split):
            raise FaultError(f"{place} does not list all sets that are left")
        left = {tuple(row) for row in region.sets.tolist()}
        return [
            _Region(
                replace(limits, low=counts, high=counts, least=moved, most=moved),
                region.detail,
                region.window,
            )
            if counts in left
            else None
            for counts in map(tuple, split[1:])
            for moved in [sum(size * n for size, n in zip(cut.sizes, counts, strict=False))]
        ]


def _are_all_in(sets: IntArray, split: Sequence[Any]) -> bool:
    """Return whether a division lists all of these sets."""
    return {tuple(row) for row in sets.tolist()} <= {tuple(counts) for counts in split[1:]}


def _takes(cut: Cut, crossing: Crossing) -> int:
    """Return the ticks of a transfer under way."""
    return int(cut.sides[crossing.side].away[crossing.place])


def _shortest(first: int, last: int, near: tuple[int, int], far: tuple[int, int]) -> int:
    """Return how long both sides are at least, whatever the ticks before the cut.

    Parameters
    ----------
    first, last : int
        Ticks of what is under way that may lie before the cut.
    near, far : pair of int
        Front and back, each with its earliest and its latest begin.
    """

    def length(before: int) -> int:
        front = max(near[FRONT], far[FRONT] - (last - before))
        return front + max(near[BACK], far[BACK] - (before - first))

    # Both are made of straight pieces; the least lies where two of them meet, or at an end.
    bends = last - (far[FRONT] - near[FRONT]), first + (far[BACK] - near[BACK])
    return min(length(min(max(place, first), last)) for place in (first, last, *bends))
