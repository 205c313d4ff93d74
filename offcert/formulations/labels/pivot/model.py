"""Nested single-gap traces, cut in two at a pivot: the data of the pivot dynamic program.

The trace is cut just before one operation, the *pivot*. The *front* side holds the operations
before it; the *back* side holds the pivot and all later ones in reversed time. In reversed time a
prefetch is a transfer after which memory is free, and an offload is one from whose start on memory
is taken, so both sides are the same problem and share one search. Equal tensors of which each is
written, opened and closed outside the next one form a *class*: what is out is a count for each
(Lemma 1 of docs/theory/pivot.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from offcert.core.errors import MethodError
from offcert.core.platform import Kind
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.labels.ends.side import floor_of, link_rate
from offcert.questions.schedule.problem import Problem, Transfers


@dataclass(frozen=True)
class NestedTensor:
    """One evictable tensor."""

    gap: int  # Its only gap (index into ``trace.gaps``).
    # The operations ``a``, ``p`` and ``q``; -1 stands for the start.
    writer: int
    before: int
    after: int
    size: int  # Bytes.


@dataclass(frozen=True)
class NestedProblem:
    """A problem on a nested single-gap trace."""

    problem: Problem  # Atomic.
    # Equal tensors whose order of availability is total, outermost first.
    classes: tuple[tuple[NestedTensor, ...], ...]
    items: tuple[tuple[int, int], ...]  # Class and rank of every tensor, outermost first.
    # For each operation, bytes that must be absent while it runs, rounded up to a sum of sizes.
    required: tuple[int, ...]
    # For each operation, bytes that must be absent between the previous operation and it.
    idle_required: tuple[int, ...]

    @property
    def volume(self) -> int:
        """Bytes of all evictable tensors, and what operations need of them at most."""
        total = sum(members[0].size * len(members) for members in self.classes)
        return total + max(self.required, default=0)


@dataclass
class NestedSide:
    """One side of the cut, in its own time and with its own numbering of operations."""

    # Directions of a transfer out and of a transfer back, in true time.
    out: Kind
    back: Kind
    # Number of operations, ``K``; column ``K`` of what is indexed by operation is the pivot.
    operations: int
    prefix: list[int]  # Sums of durations (length K+1).
    # Bytes that must be absent during an operation, and just before it (length K+1).
    required: list[int]
    idle_required: list[int]
    # By class and rank: a transfer out may start when ``available`` has ended; the tensor counts as
    # absent for operations strictly between ``opens`` and ``closes``; a transfer back must end
    # before ``deadline`` starts (``K`` or more: it may stay out).
    available: list[list[int]]
    opens: list[list[int]]
    closes: list[list[int]]
    deadline: list[list[int]]
    # By class: tensors on this side, and those that may be out at the cut (a prefix).
    count: list[int]
    eligible: list[int]
    # By class and operation: how many tensors can be absent during the operation, and in the idle
    # time just before it.
    spans: list[list[int]] = field(default_factory=list)
    between: list[list[int]] = field(default_factory=list)
    # ``floor[j]`` plus the idle time before operation ``j`` is a lower bound on the side's end
    # (length K+1).
    floor: list[int] = field(default_factory=list)
    # Bytes and ticks of the link, out and back, at least as fast as it is (length 2).
    rates: list[tuple[int, int]] = field(default_factory=list)


def nested(problem: Problem) -> NestedProblem:
    """Return the data of a problem, or refuse it.

    Raises
    ------
    MethodError
        If transfers are not atomic, an evictable tensor has several gaps, or the gaps are not
        nested.
    """
    if problem.transfers is not Transfers.ATOMIC:
        raise MethodError(f"the pivot program needs atomic transfers, not {problem.transfers}")
    trace = problem.trace
    items = []
    seen: set[int] = set()
    for index, gap in enumerate(trace.gaps):
        tensor = trace.tensors[gap.tensor]
        if gap.tensor in seen:
            raise MethodError(f"the pivot program needs one gap per tensor; {tensor.name} has more")
        seen.add(gap.tensor)
        items.append(NestedTensor(index, tensor.uses[0], gap.before, gap.after, tensor.size))
    items.sort(key=lambda item: (item.before, -item.after, item.writer))
    for outer, inner in pairwise(items):
        if inner.after > outer.after:
            names = [trace.tensors[trace.gaps[item.gap].tensor].name for item in (outer, inner)]
            raise MethodError(f"the pivot program needs nested gaps; {' and '.join(names)} are not")
    classes, places = _classify(items)
    required = required_absent(problem, subset_sum=True)
    idle = (max(0, live - problem.platform.memory) for live in trace.live_before)
    return NestedProblem(problem, classes, places, tuple(required), tuple(idle))


def _classify(
    items: Sequence[NestedTensor],
) -> tuple[tuple[tuple[NestedTensor, ...], ...], tuple[tuple[int, int], ...]]:
    """Put each tensor, outermost first, into the first class whose order it continues."""
    classes: list[list[NestedTensor]] = []
    places = []
    for item in items:
        fitting = (
            index
            for index, members in enumerate(classes)
            if members[0].size == item.size and members[-1].writer <= item.writer
        )
        index = next(fitting, len(classes))
        if index == len(classes):
            classes.append([])
        places.append((index, len(classes[index])))
        classes[index].append(item)
    return tuple(map(tuple, classes)), tuple(places)


def front_side(data: NestedProblem, pivot: int) -> NestedSide:
    """Return the side of the operations before `pivot`.

    A tensor is on this side if its writer is before the cut; it may be out at the cut if it is
    needed again after the pivot only.
    """
    durations = data.problem.trace.durations[:pivot]
    side = NestedSide(
        out=Kind.OFFLOAD,
        back=Kind.PREFETCH,
        operations=pivot,
        prefix=list(accumulate(durations, initial=0)),
        required=list(data.required[: pivot + 1]),
        idle_required=list(data.idle_required[: pivot + 1]),
        available=[[item.writer for item in members] for members in data.classes],
        opens=[[item.before for item in members] for members in data.classes],
        closes=[[item.after for item in members] for members in data.classes],
        deadline=[[item.after for item in members] for members in data.classes],
        count=[sum(item.writer < pivot for item in members) for members in data.classes],
        eligible=[
            sum(item.writer < pivot < item.after for item in members) for members in data.classes
        ],
    )
    _complete(data, side, cut_repeats_pivot=False)
    return side


def back_side(data: NestedProblem, pivot: int) -> NestedSide:
    """Return the side of `pivot` and the operations after it, in reversed time.

    A transfer out is a prefetch: it may start (reversed) when the operation that closes the gap has
    ended (reversed). A transfer back is an offload: it must end (reversed) before the writer starts
    (reversed), and the tensor counts as absent until the operation that opens the gap.
    """
    last = len(data.problem.trace) - 1
    durations = data.problem.trace.durations[pivot:][::-1]
    reverse = [[last - item.after for item in members] for members in data.classes]
    required = list(data.required[pivot:][::-1])
    idle = list(data.idle_required[pivot:][::-1])
    side = NestedSide(
        out=Kind.PREFETCH,
        back=Kind.OFFLOAD,
        operations=len(durations),
        prefix=list(accumulate(durations, initial=0)),
        # What is out at the cut must satisfy the pivot; nothing is idle before the first operation.
        required=[*required, data.required[pivot]],
        idle_required=[0, *idle],
        available=reverse,
        opens=reverse,
        closes=[[last - item.before for item in members] for members in data.classes],
        deadline=[[last - item.writer for item in members] for members in data.classes],
        count=[sum(item.after > pivot for item in members) for members in data.classes],
        eligible=[
            sum(item.writer < pivot < item.after for item in members) for members in data.classes
        ],
    )
    # The column of the cut repeats the pivot: the operation beyond the cut may use more tensors.
    _complete(data, side, cut_repeats_pivot=True)
    return side


def _complete(data: NestedProblem, side: NestedSide, cut_repeats_pivot: bool) -> None:
    columns = range(side.operations + 1)
    for index in range(len(data.classes)):
        gaps = [(side.opens[index][r], side.closes[index][r]) for r in range(side.count[index])]
        spans = [sum(p < j < q for p, q in gaps) for j in columns]
        if cut_repeats_pivot:
            spans[-1] = spans[-2]
        side.spans.append(spans)
        side.between.append([sum(p < j <= q for p, q in gaps) for j in columns])
    side.rates = [
        link_rate(data.problem.platform.rate(kind), 2 * data.volume)
        for kind in (side.out, side.back)
    ]
    here = [(c, r) for c, r in data.items if r < side.count[c]]
    side.floor = floor_of(
        side.prefix,
        side.required,
        side.rates[0],
        [data.classes[c][r].size for c, r in here],
        [side.available[c][r] for c, r in here],
        np.array([[r < spanning for spanning in side.spans[c]] for c, r in here], bool).reshape(
            len(here), len(side.prefix)
        ),
    )
