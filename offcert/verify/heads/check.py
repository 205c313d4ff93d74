"""Verification of heads and tails with whole tensors; see `offcert.verify.heads.check`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.platform import Kind
from offcert.core.trace import Tensor
from offcert.proofs.kinds.labels import AtomicHeads, Ends
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verify.absence import cheapest_cover
from offcert.verify.heads.search import IN_TIME, TOO_LATE, Tables, floors, search
from offcert.verify.limits import Allowance, BeyondLimitsError, TooLargeError

# The largest number in the arrays. Derived: it stays inside 64 bits.
_LARGEST = 2**62
# Units up to which bytes that have moved are told apart. Arbitrary.
MOST_LEVELS = 1 << 22
# Labels to be searched on each side, unless the caller wants less. Arbitrary.
MOST_LABELS = 10_000_000

Sizes = Sequence[int]


def confirm_heads(
    problem: Problem,
    pivot: int,
    head: int,
    tail: int,
    claimed: int,
    *,
    counted: tuple[Sizes, Sizes] = ((), ()),
    units: tuple[int, int] = (1, 1),
    max_labels: int = MOST_LABELS,
) -> bool:
    """Return whether no schedule of `problem` is shorter than `claimed` ticks.

    Parameters
    ----------
    problem : Problem
        Atomic transfers, any trace and link; false for others.
    pivot : int
        The operation whose head and tail give the bound.
    head, tail : int
        Ticks before its start, and from then on, that no schedule can do without.
    claimed : int
        The bound, in ticks.
    counted : pair of sequence of int
        For the head and the tail, the sizes of which no more tensors may move than there are.
    units : pair of int
        For the head and the tail, to whose multiples sizes are rounded up.
    max_labels : int
        How much to search at most, on each side.

    Returns
    -------
    bool
        False if the bound is wrong, the advice is insufficient, or the search is too large.
    """
    advice = (head, tail), counted, units
    try:
        return heads_fault(problem, pivot, *advice, claimed, max_labels) is None
    except BeyondLimitsError:
        return False


def heads_fault(
    problem: Problem,
    pivot: int,
    times: tuple[int, int],
    counted: tuple[Sizes, Sizes],
    units: tuple[int, int],
    claimed: int,
    max_labels: int = MOST_LABELS,
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or which part fails to show it.

    Parameters are those of `confirm_heads`, with head and tail as `times`.

    Raises
    ------
    BeyondLimitsError
        If the search is too large.
    """
    trace = problem.trace
    if trace.least_memory > problem.platform.memory or claimed <= sum(trace.durations):
        return None
    if problem.transfers is not Transfers.ATOMIC:
        return f"nothing of the kind holds with {problem.transfers} transfers"
    if min(times) < 0 or sum(times) < claimed:
        return f"details.head and details.tail make {times[0]} and {times[1]} only"
    return ends_fault(problem, pivot, times, counted, units, max_labels)


def ends_fault(
    problem: Problem,
    pivot: int,
    times: tuple[int, int],
    counted: tuple[Sizes, Sizes],
    units: tuple[int, int],
    max_labels: int = MOST_LABELS,
    place: str = "details",
) -> str | None:
    """Return None if no schedule's front or back is shorter than `times`, or the fault.

    Parameters are those of `confirm_heads`; `place` is where the numbers stand, for the message.
    """
    if problem.transfers is not Transfers.ATOMIC:
        return f"nothing of the kind holds with {problem.transfers} transfers"
    if not 0 <= pivot < len(problem.trace):
        count = len(problem.trace)
        return f"{place}.pivot must be below the number of operations, {count}, not {pivot}"
    sides = _both(problem, pivot, times, counted, units)
    if sides is None:
        return "its numbers are too large for the search"
    for name, side, time in zip(("head", "tail"), sides, times, strict=True):
        end = search(side, time - 1, max_labels)
        if end == IN_TIME:
            return f"{place}.{name} is too much: as far as the search can tell, {time - 1} will do"
        if end != TOO_LATE:
            raise BeyondLimitsError(f"the search for {place}.{name} is too large")
    return None


def within_reach(
    problem: Problem,
    pivot: int,
    head: int,
    tail: int,
    *,
    counted: tuple[Sizes, Sizes] = ((), ()),
    units: tuple[int, int] = (1, 1),
) -> bool:
    """Return whether `confirm_heads` can work with the numbers of such a claim at all."""
    return _both(problem, pivot, (head, tail), counted, units) is not None


def _both(
    problem: Problem,
    pivot: int,
    times: tuple[int, int],
    counted: tuple[Sizes, Sizes],
    units: tuple[int, int],
) -> list[Tables] | None:
    """Return both sides as arrays, or None if that is not possible."""
    if not 0 <= pivot < len(problem.trace):
        return None
    try:
        return [
            side_tables(problem, pivot, kind, time, sizes, unit)
            for kind, time, sizes, unit in zip(Kind, times, counted, units, strict=True)
        ]
    except TooLargeError:
        return None


@dataclass(frozen=True)
class _Movable:
    """A tensor that may be absent during the pivot, as one side sees it."""

    size: int
    time: int
    ready: int
    absent: list[bool]


def _bandwidth(problem: Problem, kind: Kind) -> Fraction:
    """Return bytes per tick in one direction."""
    return problem.platform.rate(kind)


def ticks_of(problem: Problem, kind: Kind, size: int) -> int:
    """Return the ticks of one transfer, rounded up by definition."""
    whole, rest = divmod(size, _bandwidth(problem, kind))
    return whole + (rest > 0)


def link_rate(problem: Problem, kind: Kind, volume: int) -> tuple[int, int]:
    """Return the bandwidth for up to `volume` bytes, made faster if 64 bits would not do."""
    rate = _bandwidth(problem, kind)
    # Even where nothing can move, both numbers are stored.
    excess = max(0, (max(1, volume) * rate.denominator).bit_length() - 62)
    # Nothing is faster than this: all that `volume` bytes can be made up of takes one tick.
    return min(-(-rate.numerator >> excess), _LARGEST - 1), rate.denominator >> excess


def gap_at(tensor: Tensor, operation: int) -> tuple[int, int] | None:
    """Return the uses around `operation` if the tensor may be absent while it runs."""
    before = [use for use in tensor.uses if use < operation]
    after = [use for use in tensor.uses if use > operation]
    if operation in tensor.uses or not (before and after and tensor.evictable and tensor.size > 0):
        return None
    return before[-1], after[0]


def _side(
    problem: Problem, pivot: int, kind: Kind, only: Mapping[int, tuple[int, int]] | None
) -> tuple[list[int], list[int], list[_Movable]]:
    """Return the clock, what must be absent, and who can be, on one side of the pivot."""
    trace = problem.trace
    last = len(trace) - 1
    before = kind is Kind.OFFLOAD
    order = list(range(pivot)) if before else list(range(last, pivot - 1, -1))
    columns = [*order, pivot]
    clock = [0]
    for operation in order:
        clock.append(clock[-1] + trace.durations[operation])
    held = [trace.operations[operation].workspace for operation in columns]
    movable: list[list[int]] = [[] for _ in columns]
    others = [0] * len(columns)
    movables = []
    for index, tensor in enumerate(trace.tensors):
        across = gap_at(tensor, pivot) if only is None else only.get(index)
        absent = []
        for j, operation in enumerate(columns):
            gap = gap_at(tensor, operation)
            held[j] += tensor.size * (tensor.uses[0] <= operation <= tensor.uses[-1])
            # One offload serves all gaps of a tensor, but each has its own prefetch.
            absent.append(gap is not None and across is not None and (before or gap == across))
            if gap is not None:
                movable[j].append(tensor.size)
                others[j] += 0 if absent[j] else tensor.size
        if across is not None:
            ready = tensor.uses[0] if before else last - across[1]
            movables.append(
                _Movable(tensor.size, ticks_of(problem, kind, tensor.size), ready, absent)
            )
    cover = [
        cheapest_cover(sizes, max(0, amount - problem.platform.memory))
        for sizes, amount in zip(movable, held, strict=True)
    ]
    need = [max(0, amount - free) for amount, free in zip(cover, others, strict=True)]
    return clock, need, sorted(movables, key=lambda movable: movable.ready)


def side_tables(
    problem: Problem,
    pivot: int,
    kind: Kind,
    time: int,
    counted: Sizes,
    unit: int,
    only: Mapping[int, tuple[int, int]] | None = None,
    most: Mapping[int, int] | None = None,
) -> Tables:
    """Return one side as arrays, to be searched up to `time`.

    Parameters
    ----------
    problem, pivot, counted, unit
        As for `confirm_heads`. The first of the sizes counted has the least weight in the code of a
        label.
    kind : Kind
        Offloads leave before the pivot, prefetches (in reversed time) after it.
    only : mapping of int to (int, int), optional
        Tensors, with the uses around a gap of theirs: all others are absent whenever they may be,
        at no cost. By default those that may be absent during the pivot.
    most : mapping of int to int, optional
        The sizes there are, on either side, and how many leave at most; by default, on this one.

    Raises
    ------
    TooLargeError
        If a number might not fit into 64 bits, or sizes or unit make no sense.
    """
    clock, need, movables = _side(problem, pivot, kind, only)
    classes: dict[int, list[_Movable]] = defaultdict(list)
    for movable in movables:
        classes[movable.size].append(movable)
    most = {size: len(members) for size, members in classes.items()} if most is None else most
    if unit < 1 or len(set(counted)) < len(counted) or not set(counted) <= set(most):
        raise TooLargeError
    radix, weight = dict.fromkeys(most, 0), 1
    for size in counted:
        radix[size] = weight
        weight *= most[size] + 1
    rate = link_rate(problem, kind, sum(movable.size for movable in movables))
    _require_small(clock, need, movables, rate, weight, time, unit)
    at_hand = [
        sum(-(-movable.size // unit) for movable in movables if movable.ready < run)
        for run in range(len(clock))
    ]
    floor = floors(
        _array(clock),
        _array(need),
        _array([movable.size for movable in movables]),
        _array([movable.ready for movable in movables]),
        np.array([movable.absent for movable in movables], dtype=np.bool_).reshape(-1, len(clock)),
        _array(rate),
    )
    width = max(map(len, classes.values()), default=1)
    return Tables(
        clock=_array(clock),
        need=_array(need),
        floor=floor,
        at_hand=_array(at_hand),
        units=_array([-(-size // unit) for size in classes]),
        times=_array([members[0].time for members in classes.values()]),
        ready=_array(
            [
                [member.ready for member in members] + [0] * (width - len(members))
                for members in classes.values()
            ]
        ).reshape(-1, width),
        amount=_array([len(members) for members in classes.values()]),
        bases=_array([most[size] + 1 for size in classes]),
        radix=_array([radix[size] for size in classes]),
        rate=_array(rate),
        unit=unit,
    )


def _require_small(
    clock: list[int],
    need: list[int],
    movables: list[_Movable],
    rate: tuple[int, int],
    codes: int,
    time: int,
    unit: int,
) -> None:
    """Raise if what a search up to `time` adds up might leave 64 bits, or it were endless."""
    volume, most = sum(movable.size for movable in movables), max(need)
    # No operation lacks more bytes, so no time worked out from what is lacking is longer.
    slowest = most * rate[1] // rate[0] + 1
    longest = max((movable.time for movable in movables), default=0)
    largest = max(
        codes,
        volume + (len(movables) + 1) * unit,
        # The latest end of a transfer, and what may be added to it.
        time + longest + 2 * clock[-1] + (len(clock) + 2) * slowest,
    )
    if largest >= _LARGEST or most > volume or most > MOST_LEVELS * unit:
        raise TooLargeError


def _array(values: Sequence[object]) -> IntArray:
    return np.array(values, dtype=np.int64)


def atomic_heads(
    problem: Problem, value: int, proof: AtomicHeads, allowance: Allowance
) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    advice = proof.times, proof.counted, proof.units
    return heads_fault(problem, proof.pivot, *advice, value, allowance.labels(MOST_LABELS))


def ends(problem: Problem, pivot: int, proof: Ends, allowance: Allowance) -> str | None:
    """Return None if no front and no back of a schedule is shorter, or why that is not shown."""
    advice = proof.times, proof.counted, proof.units
    labels = allowance.labels(MOST_LABELS)
    return ends_fault(problem, pivot, *advice, labels, place="details.ends")
