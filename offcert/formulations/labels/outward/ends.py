"""Bounds on the end of a side, from what a label says; see `kernel`."""

from __future__ import annotations

from offcert.core.compiled import inlined
from offcert.formulations.labels.outward.model import OutwardSide
from offcert.formulations.labels.outward.outlook import Outlook, can_be, more_out, overdue
from offcert.formulations.labels.outward.question import MOST, TICKS, TWICE, Question


@inlined
def _ticks(amount: int, numerator: int, denominator: int) -> int:
    whole = amount // numerator
    rest = amount - whole * numerator
    return whole * denominator + (rest * denominator + numerator - 1) // numerator


@inlined
def _lacking(
    side: OutwardSide, question: Question, outlook: Outlook, c: int, change: int, moved: int, k: int
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
def _lacking_later(
    side: OutwardSide,
    question: Question,
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
    question: Question,
    outlook: Outlook,
    c: int,
    change: int,
    moved: int,
    spent: int,
    free: int,
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
        departing = _ticks(lacking, rates[2], rates[3])
    later = _lacking_later(side, question, outlook, c, change, moved, k, lacking)
    if later > 0:
        both = _ticks(later, rates[0], rates[1]) + _ticks(later, rates[2], rates[3])
        both = max(both, asked[TWICE])
    longest, length = link + both, idle + total
    if k < last:
        length = max(length, free + departing + total - side.prefix[k])
    # What holds only if nothing leaves any more.
    stays, stays_link, remaining = 0, 0, question.high[c] - outlook.now[c]
    if k > 0:
        stays = idle + side.prefix[k - 1] + question.rest[k - 1]
    if k < last:
        stays = max(stays, free + question.rest[k])
    back, limits = side.back[c], side.out[c]
    for j in range(k, last):
        returning = link - can_be(outlook.ticks[j], back, change, remaining, limits[j])
        longest = max(longest, returning + departing + total - side.prefix[j])
        stays_link = max(stays_link, returning + question.rest[j])
    # This holds only if nothing has left so far: otherwise operations may have run sooner.
    if left == 0 and not more_out(outlook, c, change):
        leaves = link + asked[TWICE]
        longest = max(longest, min(stays_link, leaves))
        length = max(length, min(stays, leaves))
    return max(length, longest), longest
