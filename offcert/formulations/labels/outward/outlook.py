"""Lower bounds on the end of a side, given a label of its search (see `kernel`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray, inlined, plain, plain_inner
from offcert.formulations.labels.outward.model import NOTHING, OutwardSide

# Places of `SideQuestion.asked`.
LEAST, MOST, BEGIN, LEAVING, TICKS, LIMIT, WINDOW, TWICE, ROOM, TO_END, ONE_SET = range(11)
# The largest number that is still multiplied. Derived: it stays inside 64 bits.
SCALED = 2**60


class SideQuestion(NamedTuple):
    """A question about a side, and its consequences while nothing has returned.

    ``low`` and ``high`` (C) are the least and most tensors of each class in `O`. ``asked`` are: the
    least and most bytes of `O`; when the link is free at first; the class that is leaving then (or
    `NONE`); the least ticks in which all of `O` returns; the latest end that is of interest; after
    how many bytes returned the search ends; the least that a departure costs the link back; how
    many labels may be stored; whether all operations must have run; and (filled in) whether `O` is
    one set, over one link.

    ``absent`` (K) are the bytes that can be absent during an operation, ``out`` (K) those that may
    be out when it starts, ``overdue`` (K) those that are and must not be; ``ticks`` (K) the time in
    which what may be out when it starts returns; ``spare`` (K+1) the least excess over its need
    that any operation from one on has; ``rest`` (K) the least time from the start of an operation
    to the end of the side, if nothing leaves.
    """

    low: IntArray
    high: IntArray
    asked: IntArray
    absent: IntArray
    out: IntArray
    overdue: IntArray
    ticks: IntArray
    spare: IntArray
    rest: IntArray
    used: IntArray


@plain
def prepare(side: OutwardSide, question: SideQuestion) -> None:
    """Fill in what follows from a question."""
    high, last = question.high, side.need.size
    question.asked[ONE_SET] = 1 if side.shared else 0
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
def _fill_rest(side: OutwardSide, question: SideQuestion) -> None:
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
def _time_to_move(
    side: OutwardSide, question: SideQuestion, k: int, scale: int, a_byte: int
) -> int:
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


class Outlook(NamedTuple):
    """A view of a label for its successors, which differ in one tensor of one class.

    ``now`` (C) are the tensors of each class that are back, less those that have left: the label's
    while `look` works things out, a successor's while something is asked about that. ``seen`` (C)
    are those for which the rest was worked out, so the label's: ``absent`` and ``out`` (K), the
    bytes that can be absent during an operation and out when it starts; ``overdue`` (K), the bytes
    that are out and should be back by then; ``ticks`` (K), the time in which what may be out when
    an operation starts returns; ``more`` (1), how many classes may have more out than at the cut.
    ``began`` and ``kept`` (K+1) are when its next transfer can begin, and how many operations have
    run by then and stay run.
    """

    now: IntArray
    seen: IntArray
    absent: IntArray
    out: IntArray
    overdue: IntArray
    ticks: IntArray
    more: IntArray
    began: IntArray
    kept: IntArray


def new_outlook(side: OutwardSide) -> Outlook:
    """Return an outlook of nothing."""
    classes, last = side.out.shape
    sizes = classes, classes, last, last, last, last, 1, last + 1, last + 1
    return Outlook(*(np.zeros(size, np.int64) for size in sizes))


@plain
def look_at_cut(question: SideQuestion, outlook: Outlook) -> None:
    """Start an outlook at the cut, where nothing has returned."""
    for k in range(question.out.size):
        outlook.absent[k], outlook.out[k] = question.absent[k], question.out[k]
        outlook.overdue[k], outlook.ticks[k] = question.overdue[k], question.ticks[k]
    for c in range(outlook.now.size):
        outlook.seen[c] = 0


@plain
def look(side: OutwardSide, question: SideQuestion, outlook: Outlook) -> None:
    """Work out what follows from the tensors that are back.

    Only what differs from the label before is worked out again, which often is little.
    """
    now, seen, high, low = outlook.now, outlook.seen, question.high, question.low
    outlook.more[0] = 0
    for c in range(now.size):
        outlook.more[0] += now[c] < 0
        if now[c] == seen[c]:
            continue
        was, left, size = high[c] - seen[c], high[c] - now[c], side.size[c]
        had, surely = low[c] - seen[c], low[c] - now[c]
        absent, out = side.absent[c], side.out[c]
        for k in range(out.size):
            outlook.absent[k] += size * (min(left, absent[k]) - min(was, absent[k]))
            more = min(left, out[k]) - min(was, out[k])
            outlook.out[k] += size * more
            outlook.ticks[k] += side.back[c] * more
            outlook.overdue[k] += size * (max(surely, out[k]) - max(had, out[k]))
        seen[c] = now[c]


# The functions below are about a successor: of one class one tensor more (`change` 1) or less (-1)
# is back. They take numbers, one operation at a time: to hand on tuples of arrays would take
# longer.


@inlined
def can_be(known: int, weight: int, change: int, left: int, limit: int) -> int:
    """Return the bytes that can be out or absent, which are `known` for the label.

    `left` tensors of the class can be out, of which at most `limit` count at the operation asked
    about.
    """
    return known - change * weight * (left < limit + (change < 0))


@inlined
def fits(need: int, most: int, can: int) -> bool:
    """Whether `need` bytes can be absent, if `most` are out in all and `can` may be out here."""
    return bool(need <= 0 or need <= min(most, can))


@inlined
def overdue(known: int, weight: int, change: int, surely: int, limit: int) -> int:
    """Return the bytes that are out and should be back, which are `known` for the label.

    `surely` tensors of the class are out, of which `limit` may be at the operation asked about.
    """
    return known + weight * (max(surely, limit) - max(surely + change, limit))


@inlined
def more_out(outlook: Outlook, c: int, change: int) -> bool:
    """Whether more of some class may be out than at the cut."""
    mine = outlook.now[c]
    return bool(outlook.more[0] - (mine - change < 0) + (mine < 0) > 0)


@inlined
def _ticks(amount: int, numerator: int, denominator: int) -> int:
    whole = amount // numerator
    rest = amount - whole * numerator
    return whole * denominator + (rest * denominator + numerator - 1) // numerator


@inlined
def _lacking(
    side: OutwardSide,
    question: SideQuestion,
    outlook: Outlook,
    c: int,
    change: int,
    moved: int,
    k: int,
) -> int:
    """Return the bytes that departures must free before operation `k` can run."""
    if k == side.need.size or side.need[k] <= 0:
        return 0
    size, now = side.size[c], outlook.now[c]
    left, surely = question.high[c] - now, question.low[c] - now
    absent = can_be(outlook.absent[k], size, change, left, side.absent[c, k])
    late = overdue(outlook.overdue[k], size, change, surely, side.out[c, k])
    return int(max(0, side.need[k] - min(absent, question.asked[MOST] - moved - late)))


@inlined
def is_due(
    side: OutwardSide,
    question: SideQuestion,
    outlook: Outlook,
    c: int,
    change: int,
    moved: int,
    k: int,
) -> bool:
    """Whether operation `k` has to wait until some tensor is back.

    Of class `c` one tensor more (`change` 1) or less (-1) is back than with the label that was
    looked at; `moved` are the bytes that are back.
    """
    size, now = side.size[c], outlook.now[c]
    left, surely = question.high[c] - now, question.low[c] - now
    if overdue(outlook.overdue[k], size, change, surely, side.out[c, k]) > 0:
        return True
    may = can_be(outlook.out[k], size, change, left, side.out[c, k])
    return bool(question.asked[LEAST] - moved > may)


@inlined
def _lacking_later(
    side: OutwardSide,
    question: SideQuestion,
    outlook: Outlook,
    c: int,
    change: int,
    moved: int,
    k: int,
    least: int,
) -> int:
    """Return the most bytes that departures must free before any operation after `k` can run."""
    lacking = max(least, side.later_need[k] - (question.asked[MOST] - moved))
    if question.spare[k] + lacking < moved:
        size, left, limits = side.size[c], question.high[c] - outlook.now[c], side.absent[c]
        for j in range(k + 1, side.need.size):
            if side.need[j] > 0:
                absent = can_be(outlook.absent[j], size, change, left, limits[j])
                lacking = max(lacking, side.need[j] - absent)
    return int(lacking)


@inlined
def bounds(
    side: OutwardSide,
    question: SideQuestion,
    outlook: Outlook,
    c: int,
    change: int,
    moved: int,
    spent: int,
    free: int,
    out: int,
    idle: int,
    k: int,
    left: int,
) -> tuple[int, int]:
    """Return two bounds on the end of the side: the best one, and that of the link alone.

    Of class `c` one tensor more (`change` 1) or less (-1) is back than with the label that was
    looked at.
    """
    asked, rates, last = question.asked, side.rates, side.need.size
    total = side.prefix[last]
    link = free - spent + asked[TICKS]
    lacking, departing, both = _lacking(side, question, outlook, c, change, moved, k), 0, 0
    if lacking > 0:
        # On a duplex link the first to leave may have been under way at the cut.
        first = 0 if side.shared or left == 1 else side.largest
        departing = _ticks(max(0, lacking - first), rates[2], rates[3])
    later = _lacking_later(side, question, outlook, c, change, moved, k, lacking)
    if later > 0:
        both = _ticks(later, rates[0], rates[1])
        if side.shared:
            both += _ticks(later, rates[2], rates[3])
        both = max(both, asked[TWICE])
    longest, length = link + both, idle + total
    if k < last:
        begin = out + departing
        if not side.shared and is_due(side, question, outlook, c, change, moved, k):
            # It waits for a return, too, and that begins when all has left that ever left before.
            begin = max(begin, free)
        length = max(length, begin + total - side.prefix[k])
    if not side.shared:
        # Returns do not wait for departures.
        departing = 0
    # What holds only if nothing leaves any more.
    stays, stays_link, remaining = 0, 0, question.high[c] - outlook.now[c]
    surely = question.low[c] - outlook.now[c]
    if k > 0:
        stays = idle + side.prefix[k - 1] + question.rest[k - 1]
    if k < last:
        stays = max(stays, free + question.rest[k])
    back, limits = side.back[c], side.out[c]
    for j in range(k, last):
        returning = link - can_be(outlook.ticks[j], back, change, remaining, limits[j])
        # Over two links the operation may start while the last to return is still under way, unless
        # that, or more, has to be back before it.
        if side.shared or returning > free or (change > 0 and limits[j] <= surely):
            longest = max(longest, returning + departing + total - side.prefix[j])
        stays_link = max(stays_link, returning + question.rest[j])
    # This holds only if nothing has left so far: otherwise operations may have run sooner.
    if left == 0 and not more_out(outlook, c, change):
        leaves = link + asked[TWICE]
        longest = max(longest, min(stays_link, leaves))
        length = max(length, min(stays, leaves))
    return max(length, longest), longest
