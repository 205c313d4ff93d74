"""What is asked about a side, and what follows from it while nothing has returned."""

from __future__ import annotations

from typing import NamedTuple

from offcert.core.compiled import plain, plain_inner
from offcert.formulations.labels.outward.model import NOTHING, Ints, OutwardSide

# Places of `Question.asked`.
LEAST, MOST, BEGIN, LEAVING, TICKS, LIMIT, WINDOW, TWICE, ROOM, TO_END, ONE_SET = range(11)
# Larger numbers are not multiplied any more.
SCALED = 2**60


class Question(NamedTuple):
    """What is asked about a side, and what follows from it while nothing has returned.

    ``low`` and ``high`` (C) are the least and most tensors of each class in `O`. ``asked`` are: the
    least and most bytes of `O`; when the link is free at first; the class that is leaving then (or
    `NONE`); the least ticks in which all of `O` returns; the latest end that is of interest; after
    how many bytes returned the search ends; the least link time of a departure and a return; how
    many labels may be stored; whether all operations must have run; and (filled in) whether `O` is
    one set.

    ``absent`` (K) are the bytes that can be absent during an operation, ``out`` (K) those that may
    be out when it starts, ``overdue`` (K) those that are and must not be; ``ticks`` (K) the time in
    which what may be out when it starts returns; ``spare`` (K+1) the least excess over its need
    that any operation from one on has; ``rest`` (K) the least time from the start of an operation
    to the end of the side, if nothing leaves.
    """

    low: Ints
    high: Ints
    asked: Ints
    absent: Ints
    out: Ints
    overdue: Ints
    ticks: Ints
    spare: Ints
    rest: Ints
    used: Ints


@plain
def prepare(side: OutwardSide, question: Question) -> None:
    """Fill in what follows from a question."""
    high, last = question.high, side.need.size
    question.asked[ONE_SET] = 1
    for c in range(high.size):
        if question.low[c] < high[c]:
            question.asked[ONE_SET] = 0
    for k in range(last):
        absent, out, overdue, ticks = 0, 0, 0, 0
        for c in range(high.size):
            absent += side.size[c] * min(high[c], side.absent[c, k])
            out += side.size[c] * min(high[c], side.out[c, k])
            overdue += side.size[c] * max(0, question.low[c] - side.out[c, k])
            ticks += side.back[c] * min(high[c], side.out[c, k])
        question.absent[k], question.out[k] = absent, out
        question.overdue[k], question.ticks[k] = overdue, ticks
    question.spare[last] = -NOTHING
    for k in range(last - 1, -1, -1):
        question.spare[k] = question.spare[k + 1]
        if side.need[k] > 0:
            question.spare[k] = min(question.spare[k], question.absent[k] - side.need[k])
    _fill_rest(side, question)


@plain_inner
def _fill_rest(side: OutwardSide, question: Question) -> None:
    """Find the least time from the start of each operation to the end of the side.

    Seen from that end, what an operation needs must have been moved before it, bit by bit and each
    tensor only once it is there. Times are counted in parts of a tick that make all of them whole.
    """
    last, scale, a_byte = side.need.size, side.rates[0], side.rates[1]
    total = side.prefix[last]
    bytes_out = 0
    for c in range(question.high.size):
        bytes_out += side.size[c] * question.high[c]
    exact = (total + 1) < SCALED // scale and bytes_out < SCALED // max(a_byte, 1)
    since = 0
    for k in range(last - 1, -1, -1):
        duration = side.prefix[k + 1] - side.prefix[k]
        if not exact:
            question.rest[k] = total - side.prefix[k]
            continue
        if side.need[k] > 0:
            since = max(since, _time_to_move(side, question, k, scale, a_byte))
        since += duration * scale
        question.rest[k] = -(-since // scale)


@plain_inner
def _time_to_move(side: OutwardSide, question: Question, k: int, scale: int, a_byte: int) -> int:
    """Return when, from the far end, a link can have moved what operation `k` needs."""
    used, missing, free = question.used, side.need[k], 0
    for c in range(used.size):
        used[c] = 0
    for i in range(side.item_class.size):
        c, due = side.item_class[i], side.item_due[i]
        if side.item_closes[i] <= k or used[c] >= question.high[c]:
            continue
        used[c] += 1
        # What is there from the beginning is due after the last operation.
        there = question.rest[due] * scale if due < side.need.size else 0
        part = min(missing, side.size[c])
        free = max(free, there) + part * a_byte
        missing -= part
        if missing == 0:
            break
    return free
