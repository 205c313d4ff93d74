"""The pivot program run again: each side of a cut is searched, and both are joined."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.platform import Kind, Link
from offcert.core.threads import cores, in_threads
from offcert.proofs.kinds.labels import Pivot
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.absence import cheapest_cover
from offcert.verification.ends.check import MOST_LABELS as MOST_OF_ENDS
from offcert.verification.ends.check import ends_fault, ends_within_reach
from offcert.verification.ends.prospects import floors
from offcert.verification.ends.sides import ticks_of
from offcert.verification.limits import Allowance, BeyondLimitsError, TooLargeError
from offcert.verification.pivot.search import search
from offcert.verification.pivot.tables import Tables, new_standing

# The largest number in the arrays. Derived: it stays inside 64 bits.
_LARGEST = 2**62
# Classes whose tensors must not leave twice, at most: each takes a bit. Derived.
_MOST_ONCE = 62


@dataclass(frozen=True)
class Evictable:
    """A tensor with one gap: bytes, ticks each way, and the operations around the gap."""

    gap: int
    size: int
    leaving: int
    returning: int
    writer: int
    before: int
    after: int


@dataclass(frozen=True)
class Movable:
    """A tensor as one side sees it."""

    ready: int
    opens: int
    closes: int
    due: int


@dataclass(frozen=True)
class Found:
    """The rows of `search.search` for a side, and its earliest end."""

    labels: IntArray
    straddles: IntArray
    earliest: int


# The outcome of a side that cannot end in time, and is not searched. By definition.
_NOTHING = Found(np.zeros((0, 5), np.int64), np.zeros((0, 5), np.int64), 0)


class Side:
    """One side of the cut: its operations, and all tensors that may move beside them."""

    def __init__(
        self,
        problem: Problem,
        classes: Sequence[Sequence[Evictable]],
        pivot: int,
        whole_limit: int,
        limit: int,
        once: Collection[int],
        backwards: bool,
    ) -> None:
        trace = problem.trace
        memory, last = problem.platform.memory, len(trace) - 1
        self.limit, self.whole_limit = limit, whole_limit
        self.duplex = problem.platform.link is Link.DUPLEX
        self.sizes = [members[0].size for members in classes]
        leaving = [members[0].leaving for members in classes]
        returning = [members[0].returning for members in classes]
        to_host, to_device = (problem.platform.rate(kind) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
        # Backwards, the tensor that comes to the device is the one that moves out.
        self.out_times, self.back_times = leaving, returning
        if backwards:
            self.out_times, self.back_times = returning, leaving
        self.out_rate, self.back_rate = (to_device, to_host) if backwards else (to_host, to_device)
        self.once = frozenset(
            c for c, members in enumerate(classes) if any(v.gap in once for v in members)
        )
        order = list(range(last, pivot - 1, -1)) if backwards else list(range(pivot))
        self.count = len(order)
        self.clock = [0]
        for operation in order:
            self.clock.append(self.clock[-1] + trace.durations[operation])
        # What is out at the cut is out when the pivot starts.
        columns = [*order, pivot]
        self.need = [max(0, trace.demand[operation] - memory) for operation in columns]
        self.idle_need = [
            max(0, _live_before(problem, last - j + 1 if backwards else j) - memory)
            for j in range(self.count + 1)
        ]
        self.movable = [[_seen(v, last, backwards) for v in members] for members in classes]
        self.radix = [1]
        for members in classes:
            self.radix.append(self.radix[-1] * (len(members) + 1))
        self.here = [
            sum((v.after > pivot) if backwards else (v.writer < pivot) for v in members)
            for members in classes
        ]
        self.across = [sum(v.writer < pivot < v.after for v in members) for members in classes]
        self.spans = [
            [
                sum(v.before < operation < v.after for v in members[: self.here[c]])
                for operation in columns
            ]
            for c, members in enumerate(classes)
        ]
        for j, operation in enumerate(columns):
            spanning = [v.size for m in classes for v in m if v.before < operation < v.after]
            self.need[j] = cheapest_cover(spanning, self.need[j])
        # What may be out at the cut passes the link on the other side, too: the earliest begin
        # there, with class and rank, latest first.
        total = sum(trace.durations)
        done = [0]
        for duration in trace.durations:
            done.append(done[-1] + duration)
        self.way = sorted(
            (
                (done[v.writer + 1] if backwards else total - done[v.after], c, r)
                for c, members in enumerate(classes)
                for r, v in enumerate(members[: self.across[c]])
            ),
            reverse=True,
        )

    def _head(self) -> IntArray:
        """For each operation, how early the side can end if nothing has waited before it."""
        movable = [
            (self.sizes[c], move.ready, [rank < spanning for spanning in self.spans[c]])
            for c, members in enumerate(self.movable)
            for rank, move in enumerate(members)
        ]
        sizes, ready, absent = zip(*movable, strict=True)
        rate = self.out_rate.numerator, self.out_rate.denominator
        return floors(
            _array(self.clock),
            _array(self.need),
            _array(sizes),
            _array(ready),
            np.array(absent, dtype=np.bool_),
            _array(rate),
        )

    def ends(self, labels: IntArray) -> IntArray:
        """When the side is over, for labels that have run everything."""
        return np.maximum(labels[:, 2] + self.clock[self.count], labels[:, 0])

    def tensor(self, c: int, out: int) -> Movable:
        """Return the next tensor of a class to leave when so many, as one number, are out."""
        return self.movable[c][out // self.radix[c] % (len(self.movable[c]) + 1)]

    def search(self, max_labels: int) -> Found:
        """Return every complete label that ends within the limit.

        Raises `BeyondLimitsError` if it takes more labels than allowed, and `TooLargeError` if a
        number might not fit into 64 bits.
        """
        tables = self.tables()
        finished, labels, straddles = search(
            tables, new_standing(tables), self.limit, self.whole_limit, max_labels
        )
        if not finished:
            raise BeyondLimitsError("the search is too large")
        ends = np.concatenate((self.ends(labels), straddles[:, 0]))
        return Found(labels, straddles, int(ends.min(initial=self.limit + 1)))

    def tables(self) -> Tables:
        """Return the side as arrays.

        Raises `TooLargeError` if a number might not fit into 64 bits.
        """
        width = max(map(len, self.movable))
        rates = (self.out_rate, self.back_rate)
        volume = sum(
            size * len(members) for size, members in zip(self.sizes, self.movable, strict=True)
        )
        largest = max(
            self.radix[-1],
            # Ticks of everything, before the division and after.
            (volume + max(self.need)) * max(rate.denominator for rate in rates),
            max(rate.numerator for rate in rates),
            2
            * (
                self.clock[-1]
                + sum(
                    max(one, two) * len(m)
                    for one, two, m in zip(
                        self.out_times, self.back_times, self.movable, strict=True
                    )
                )
            ),
            abs(self.whole_limit),
            abs(self.limit),
        )
        if largest >= _LARGEST or len(self.once) > _MOST_ONCE:
            raise TooLargeError
        bits = {c: 1 << bit for bit, c in enumerate(sorted(self.once))}

        def padded(attribute: str) -> IntArray:
            rows = [[getattr(move, attribute) for move in members] for members in self.movable]
            return _array([row + [0] * (width - len(row)) for row in rows])

        return Tables(
            clock=_array(self.clock),
            need=_array(self.need),
            idle_need=_array(self.idle_need),
            head=self._head(),
            sizes=_array(self.sizes),
            out_times=_array(self.out_times),
            back_times=_array(self.back_times),
            here=_array(self.here),
            across=_array(self.across),
            spans=_array(self.spans),
            ready=padded("ready"),
            opens=padded("opens"),
            closes=padded("closes"),
            due=padded("due"),
            once=_array([bits.get(c, 0) for c in range(len(self.sizes))]),
            radix=_array(self.radix[:-1]),
            way=_array(self.way).reshape(-1, 3),
            rates=_array([(rate.numerator, rate.denominator) for rate in rates]),
            duplex=self.duplex,
        )


def _array(values: Sequence[object]) -> IntArray:
    return np.array(values, dtype=np.int64)


def _seen(tensor: Evictable, last: int, backwards: bool) -> Movable:
    if backwards:
        after = last - tensor.after
        return Movable(after, after, last - tensor.before, last - tensor.writer)
    return Movable(tensor.writer, tensor.before, tensor.after, tensor.after)


def _live_before(problem: Problem, operation: int) -> int:
    """Bytes on the device between `operation` and the one before it, if nothing is absent."""
    return sum(
        tensor.size
        for tensor in problem.trace.tensors
        if tensor.uses[0] < operation <= tensor.uses[-1]
    )


# Labels to be searched on each side, unless the caller wants less. Arbitrary.
MOST_LABELS = 16_000_000


def pivot(problem: Problem, value: int, proof: Pivot, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    most = allowance.labels(MOST_LABELS, searches=2), allowance.labels(MOST_OF_ENDS)
    return pivot_fault(problem, value, proof, *most)


def pivot_fault(
    problem: Problem,
    claimed: int,
    proof: Pivot,
    max_labels: int = MOST_LABELS,
    most_of_ends: int = MOST_OF_ENDS,
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or which part fails to show it.

    It is a fault if transfers are not atomic, an evictable tensor has several gaps, or gaps are not
    nested. A side whose limit is below its proved end is not searched. `max_labels` says how much
    to search at most on each side, `most_of_ends` for each of the ends; beyond them it raises
    `BeyondLimitsError`.
    """
    trace = problem.trace
    limits = front_limit, back_limit = proof.front_limit, proof.back_limit
    if trace.least_memory > problem.platform.memory or claimed <= sum(trace.durations):
        return None
    ends = (0, 0)
    if proof.ends is not None:
        fault = ends_fault(problem, proof.pivot, proof.ends, most_of_ends, "details.ends")
        if fault is not None:
            return fault
        ends = proof.ends.times
    classes = classes_of(problem)
    if not classes:
        return "the program is for atomic transfers and nested traces"
    if not 0 <= proof.pivot < len(trace):
        return f"details.pivot must name an operation, not {proof.pivot}"
    for name, limit in (("front", front_limit), ("back", back_limit)):
        if limit > 2 * claimed:
            # No shorter schedule has a side that long: it would only make the search endless.
            return f"details.{name}_limit must be at most {2 * claimed}, not {limit}"
    sides = front, back = [
        Side(problem, classes, proof.pivot, claimed - 1, limits[index], proof.once, index == 1)
        for index in range(2)
    ]

    def searched(index: int) -> Found:
        return sides[index].search(max_labels) if limits[index] >= ends[index] else _NOTHING

    try:
        one, two = in_threads(searched, range(2), cores())
    except TooLargeError:
        return "its numbers are too large for the search"
    # If one side of a shorter schedule ended after its limit, the other would end before it can.
    if front_limit + max(two.earliest, ends[1]) < claimed - 1:
        return f"details.front_limit is too small: a front of more than {front_limit} may do"
    if back_limit + max(one.earliest, ends[0]) < claimed - 1:
        return f"details.back_limit is too small: a back of more than {back_limit} may do"
    shortest = min(_lengths(front, one, back, two), default=claimed)
    if shortest < claimed:
        return f"at details.pivot {proof.pivot} two sides are joined in {shortest}"
    return None


def within_reach(problem: Problem, claimed: int, proof: Pivot) -> bool:
    """Return whether `pivot_fault` can work with the numbers of such a claim at all."""
    pivot, classes = proof.pivot, classes_of(problem)
    if not classes or not 0 <= pivot < len(problem.trace):
        return claimed <= problem.trace.compute_time
    try:
        for backwards in (False, True):
            Side(problem, classes, pivot, claimed - 1, claimed, (), backwards).tables()
    except TooLargeError:
        return False
    return proof.ends is None or ends_within_reach(problem, pivot, proof.ends)


def _lengths(front: Side, one: Found, back: Side, two: Found) -> Iterator[int]:
    """Yield the length of every combination of a front and a back with the same tensors out."""
    ends = front.ends(one.labels), back.ends(two.labels)
    for row, other in _pairs(one.labels, two.labels):
        if not one.labels[row, 3] & two.labels[other, 3]:
            # On a duplex link either way may be busy at the cut, and then ends before it is needed.
            links = one.labels[row, :2] + two.labels[other, 1::-1]
            yield int(max(ends[0][row] + ends[1][other], *links))
    for side, found, opposite, others in ((front, one, back, two), (back, two, front, one)):
        ends_there = opposite.ends(others.labels)
        for row, other in _pairs(found.straddles, others.labels):
            end, begin, of, returned, out = found.straddles[row].tolist()
            free, _, waited, gone, _ = others.labels[other].tolist()
            if returned & gone:
                continue
            ready = opposite.tensor(of, out).ready
            # If the operation ended before the link was free, the link decides.
            begins = max(free, waited + opposite.clock[ready + 1])
            link = begin + side.back_times[of] + begins
            yield int(max(end + ends_there[other], link))


def _pairs(one: IntArray, two: IntArray) -> Iterator[tuple[int, int]]:
    """Yield the rows of both that agree in the last column, what is out."""
    rows = np.flatnonzero(np.isin(one[:, -1], two[:, -1]))
    partners = defaultdict(list)
    for other in np.flatnonzero(np.isin(two[:, -1], one[:, -1])).tolist():
        partners[int(two[other, -1])].append(other)
    for row in rows.tolist():
        for other in partners[int(one[row, -1])]:
            yield row, other


def classes_of(problem: Problem) -> list[list[Evictable]] | None:
    """Return equal tensors in order, outermost first; None if the method does not apply."""
    trace = problem.trace
    if problem.transfers is not Transfers.ATOMIC:
        return None
    tensors = []
    for index, gap in enumerate(trace.gaps):
        size, uses = trace.tensors[gap.tensor].size, trace.tensors[gap.tensor].uses
        leaving, returning = (
            ticks_of(problem, kind, size) for kind in (Kind.OFFLOAD, Kind.PREFETCH)
        )
        tensors.append(Evictable(index, size, leaving, returning, uses[0], gap.before, gap.after))
    if len({gap.tensor for gap in trace.gaps}) < len(tensors):
        return None
    for one in tensors:
        for two in tensors:
            if one.before < two.before and one.after < two.after:
                return None
    classes: list[list[Evictable]] = []
    for tensor in sorted(tensors, key=lambda v: (v.before, -v.after, v.writer)):
        for members in classes:
            if members[0].size == tensor.size and members[-1].writer <= tensor.writer:
                members.append(tensor)
                break
        else:
            classes.append([tensor])
    return classes
