"""Outward bounds established again: schedules are divided into parts as advised, and searched."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.threads import cores, in_threads
from offcert.proofs.kinds.labels import Outward
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.limits import Allowance, BeyondLimitsError, TooLargeError
from offcert.verification.outward.search import NONE, REFUTED, search
from offcert.verification.outward.sets import (
    BACK,
    FRONT,
    Crossing,
    FaultError,
    SetLimits,
    around,
    by_class,
    everything,
    finer,
    is_empty,
    least_ticks,
    listed,
    order_fault,
    places_of,
    tightened,
    with_crossing,
    within_ticks,
)
from offcert.verification.outward.tables import Asked, Cut, cut_at

# Labels of one side, in a part that is divided further, and in one that is not. Arbitrary.
_MOST_LABELS = 40_000
_MOST_OF_THE_LAST = 200_000
# Parts that threads share: so many that all threads have about as much to do. Arbitrary.
AT_ONCE = 64

Split = Sequence[Any]


@dataclass(frozen=True, eq=False)
class _Region:
    """A part; how fine it is counted, how far followed, and the sets that are left, if listed."""

    limits: SetLimits
    detail: int = 0
    window: int = 0
    sets: IntArray | None = None


# A part, or nothing if it is known to hold nothing, and the place of the advice on it.
_Task = tuple[_Region | None, int]


class Budget:
    """The labels and the time that all threads may spend together."""

    def __init__(self, labels: int, seconds: float) -> None:
        self._left = labels
        self._deadline = time.monotonic() + seconds
        self._lock = threading.Lock()

    def spend(self, labels: int) -> None:
        """Take some labels off it; raise if there are no more, or the time is over."""
        with self._lock:
            self._left -= labels
            over = self._left < 0
        if over:
            raise BeyondLimitsError("the search is too large")
        if time.monotonic() > self._deadline:
            raise BeyondLimitsError("the time is over")


class Walk:
    """A search through all parts into which the advice divides the schedules.

    The cuts count ever smaller tensors; `windows` are the parts of the bytes that the pivot needs
    which are followed, at first and later; schedules of more than `longest` ticks are of no
    interest.
    """

    def __init__(
        self, cuts: list[Cut], windows: Sequence[int], longest: int, budget: Budget
    ) -> None:
        self.cuts = cuts
        self.windows = windows
        self.longest = longest
        self.budget = budget

    def follow(self, splits: Sequence[Split], workers: int) -> None:
        """Check that nothing is left once all parts have been divided as advised.

        Raises `FaultError` if something is, or the advice is none.
        """
        whole = everything(self.cuts[0])
        parts = with_crossing(self.cuts[0], whole, range(len(self.cuts[0].sizes)))
        roots, self._children = places_of(splits, len(parts))
        self._splits = splits
        tasks: list[_Task] = list(zip(map(_Region, parts), roots, strict=True))
        while tasks and len(tasks) < AT_ONCE:
            tasks = [part for task in tasks for part in self._step(task)]
        # What is counted finest and followed farthest takes longest, so it begins first.
        tasks.sort(key=_how_fine, reverse=True)
        for _ in in_threads(self._follow_one, tasks, workers):
            pass

    def _follow_one(self, task: _Task) -> None:
        tasks = [task]
        while tasks:
            tasks.extend(reversed(self._step(tasks.pop())))

    def _step(self, task: _Task) -> list[_Task]:
        """Return the parts into which a part is divided; none if it holds no schedule."""
        region, index = task
        split, place = self._splits[index], f"details.splits[{index}]"
        if region is not None:
            region = self._to_divide(region, split)
        if region is None:
            return []
        if not split:
            raise FaultError(
                f"as far as the search can tell, {self.longest} will do in the part that "
                f"{place} leaves whole"
            )
        parts = self._divided(region, split, place)
        return list(zip(parts, self._children[index], strict=True))

    def _to_divide(self, region: _Region, split: Split) -> _Region | None:
        """Return a region with tighter limits, or None if no schedule is left in it.

        If its sets are listed anyway, it is not searched.
        """
        if split and split[0] == "sets":
            left = self._what_is_left(region, 0)
            if left is None or (left.sets is not None and _are_all_in(left.sets, split)):
                return left
        return self._what_is_left(region, _MOST_LABELS if split else _MOST_OF_THE_LAST)

    def _what_is_left(self, region: _Region, room: int) -> _Region | None:
        """Make the limits tighter until nothing changes any more; None if they hold nothing.

        Either side is searched with `room` for so many labels, or not at all.
        """
        cut, limits = self.cuts[region.detail], region.limits
        while True:
            before = limits
            tighter = tightened(cut, limits, self.longest)
            lost: int | None = 0
            if tighter is not None and room > 0:
                lost = self._lost(cut, tighter, region.window, room)
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

    def _lost(self, cut: Cut, limits: SetLimits, window: int, room: int) -> int | None:
        """Return the least ticks of both sides beyond those in which `O` leaves and returns.

        None if no schedule is within the time. If something is under way at the cut, a side whose
        link is free later is longer, but by no more ticks than that. So what is found for the
        earliest and for the latest begin bounds all that lie between.
        """
        known = least_ticks(cut, limits)
        if known is None:
            return None
        limits = replace(limits, ticks=known)
        crossing = limits.crossing or Crossing(BACK, NONE, 0, 0)
        takes = crossing.most if crossing.place == NONE else _takes(cut, crossing)
        first, last = crossing.least, crossing.most
        begins, later = (first, takes - last), (last, takes - first)

        def search_side(side: int, begin: int, other: int) -> tuple[int, int] | None:
            return self._side(cut, limits, (window, room), side, begin, other)

        front = search_side(FRONT, begins[FRONT], known[BACK] + begins[BACK])
        if front is None:
            return None
        back = search_side(BACK, begins[BACK], front[0])
        if back is None:
            return None
        if first < last:
            # What ends even later than that does so wherever the transfer begins.
            others = back[0] - (last - first), front[0] - (last - first)
            far = [search_side(side, later[side], others[side]) for side in (FRONT, BACK)]
            ends = [end[0] for end in far if end is not None]
            if len(ends) < len(far):
                return None
            near = front[0], back[0]
            if shortest(first, last, near, (ends[FRONT], ends[BACK])) > self.longest:
                return None
        return front[1] + back[1]

    def _side(
        self, cut: Cut, limits: SetLimits, far: tuple[int, int], side: int, begin: int, other: int
    ) -> tuple[int, int] | None:
        """Search a side; return its least length, and by how much its link is longer than `O`.

        It is searched as far as the first of `far`, a window, says, with the second's labels.
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
            enough=min(limits.least, max(1, cut.need // self.windows[far[0]])),
            to_end=False,
        )
        low, high = (np.array(counts, dtype=np.int64) for counts in (limits.low, limits.high))
        status, length, link, stored = search(tables, low, high, asked, far[1])
        self.budget.spend(stored)
        return None if status == REFUTED else (int(length), int(link) - limits.ticks[side])

    def _divided(self, region: _Region, split: Split, place: str) -> list[_Region | None]:
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

    def _sets(self, region: _Region, split: Split, place: str) -> list[_Region | None]:
        """Return a part for every set that is left, and None for advised ones that are not."""
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


def _how_fine(task: _Task) -> tuple[int, int]:
    region, _ = task
    return (0, 0) if region is None else (region.detail, region.window)


def _are_all_in(sets: IntArray, split: Split) -> bool:
    """Return whether a division lists all of these sets."""
    return {tuple(row) for row in sets.tolist()} <= {tuple(counts) for counts in split[1:]}


def _takes(cut: Cut, crossing: Crossing) -> int:
    """Return the ticks of a transfer under way."""
    return int(cut.sides[crossing.side].away[crossing.place])


def shortest(first: int, last: int, near: tuple[int, int], far: tuple[int, int]) -> int:
    """Return the least length of both sides together, over all begins of what is under way.

    Of its ticks `first` to `last` may lie before the cut; `near` and `far` are front and back, each
    with its earliest and its latest begin.
    """

    def length(before: int) -> int:
        front = max(near[FRONT], far[FRONT] - (last - before))
        return front + max(near[BACK], far[BACK] - (before - first))

    # Both are made of straight pieces; the least lies where two of them meet, or at an end.
    bends = last - (far[FRONT] - near[FRONT]), first + (far[BACK] - near[BACK])
    return min(length(min(max(place, first), last)) for place in (first, last, *bends))


# The largest number in the arrays. Derived: sums stay inside 64 bits.
_LARGEST = 2**61
# Labels to be searched in all, unless the caller wants less. Arbitrary.
MOST_LABELS = 40_000_000


def outward(problem: Problem, value: int, proof: Outward, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    labels = allowance.labels(MOST_LABELS)
    return outward_fault(problem, value, proof, max_labels=labels, max_seconds=allowance.seconds)


def outward_fault(
    problem: Problem,
    claimed: int,
    proof: Outward,
    *,
    max_labels: int = MOST_LABELS,
    max_seconds: float = math.inf,
    workers: int = 0,
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or where that fails to be shown.

    It is a fault if transfers are not atomic. `max_labels` and `max_seconds`
    say how much to search at most, in as many threads as there are `workers`, or processors; beyond
    them it raises `BeyondLimitsError`.
    """
    pivot, free_below, windows = proof.pivot, proof.free_below, proof.windows
    trace = problem.trace
    if trace.least_memory > problem.platform.memory or claimed <= sum(trace.durations):
        return None
    if problem.transfers is not Transfers.ATOMIC:
        return f"nothing of the kind holds with {problem.transfers} transfers"
    if not 0 <= pivot < len(trace):
        return f"details.pivot must be below the number of operations, {len(trace)}, not {pivot}"
    unordered = order_fault("free_below", free_below) or order_fault("windows", windows)
    if unordered is not None:
        return unordered
    try:
        cuts = [cut_at(problem, pivot, least) for least in free_below]
        if claimed >= _LARGEST:
            raise TooLargeError
        if min(cut.need for cut in cuts) <= 0:
            return (
                "details.pivot must be an operation during which some tensor of at least "
                f"{min(free_below)} bytes has to be absent, not {pivot}"
            )
        budget = Budget(max_labels, max_seconds)
        Walk(cuts, windows, claimed - 1, budget).follow(proof.splits, workers or cores())
    except TooLargeError:
        return "its numbers are too large for the search"
    except FaultError as error:
        return str(error)
    return None
