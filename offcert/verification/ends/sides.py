"""One side of a pivot as arrays, derived again from the uses of the tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.platform import Kind
from offcert.core.trace import Tensor
from offcert.questions.schedule.problem import Problem
from offcert.verification.absence import cheapest_cover
from offcert.verification.ends.prospects import Tables, floors
from offcert.verification.limits import TooLargeError

# The largest number in the arrays. Derived: it stays inside 64 bits.
_LARGEST = 2**62
# Units up to which bytes that have moved are told apart. Arbitrary.
MOST_LEVELS = 1 << 22

Sizes = Sequence[int]


@dataclass(frozen=True)
class _Movable:
    """A tensor that may be absent during the pivot, as one side sees it."""

    size: int
    time: int
    ready: int
    absent: list[bool]


def ticks_of(problem: Problem, kind: Kind, size: int) -> int:
    """Return the ticks of one transfer, rounded up by definition."""
    return -(-size // problem.platform.rate(kind))


def link_rate(problem: Problem, kind: Kind, volume: int) -> tuple[int, int]:
    """Return the bandwidth for up to `volume` bytes, made faster if 64 bits would not do."""
    rate = problem.platform.rate(kind)
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
    problem, pivot
        A problem, and the operation at whose start schedules are cut.
    kind : Kind
        Offloads leave before the pivot, prefetches (in reversed time) after it.
    counted : sequence of int
        The sizes of which no more tensors may move than there are; the first has the least weight
        in the code of a label.
    unit : int
        Bytes to whose multiples sizes are rounded up.
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
