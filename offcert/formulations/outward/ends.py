"""Bounds on the end of a side, from what a label says; see `kernel`."""

from __future__ import annotations

from offcert.formulations.outward.labels import TOUCHED, Labels
from offcert.formulations.outward.model import Side
from offcert.formulations.outward.question import (
    MOST,
    TICKS,
    TWICE,
    Question,
    gone,
    may_be_absent,
)
from offcert.formulations.stores import compiled


@compiled
def _ticks(amount: int, numerator: int, denominator: int) -> int:
    whole = amount // numerator
    rest = amount - whole * numerator
    return whole * denominator + (rest * denominator + numerator - 1) // numerator


@compiled
def _lacking(side: Side, question: Question, labels: Labels, moved: int, k: int) -> int:
    """Return the bytes that departures must free before operation `k` can run."""
    if k == side.need.size or side.need[k] <= 0:
        return 0
    absent = question.asked[MOST] - moved
    for c in range(labels.now.size):
        surely = question.low[c] - labels.now[c] - side.out[c, k]
        if surely > 0:
            absent -= side.size[c] * surely
    return int(max(0, side.need[k] - min(absent, may_be_absent(side, question, labels, k))))


@compiled
def _lacking_later(
    side: Side, question: Question, labels: Labels, moved: int, k: int, least: int
) -> int:
    """Return the most bytes that departures must free before any operation after `k` can run."""
    lacking = max(least, side.later_need[k] - (question.asked[MOST] - moved))
    if question.spare[k] + lacking < moved:
        for operation in range(k + 1, side.need.size):
            need = side.need[operation]
            if need > lacking and question.absent[operation] - moved < need - lacking:
                lacking = max(lacking, need - may_be_absent(side, question, labels, operation))
    return int(lacking)


@compiled
def _out_ticks(side: Side, question: Question, labels: Labels, e: int) -> int:
    """Return the time in which what may be out when something is due returns."""
    return int(question.ticks[e] - gone(side.back, side.out, side.due[e], question, labels))


@compiled
def bounds(
    side: Side,
    question: Question,
    labels: Labels,
    moved: int,
    spent: int,
    free: int,
    idle: int,
    k: int,
    left: int,
) -> tuple[int, int]:
    """Return bounds on the end of the side: all that is known, and what the link says."""
    asked, rates, last = question.asked, side.rates, side.need.size
    total = side.prefix[last]
    link = free - spent + asked[TICKS]
    lacking, departing, both = _lacking(side, question, labels, moved, k), 0, 0
    if lacking > 0:
        departing = _ticks(lacking, rates[2], rates[3])
    later = _lacking_later(side, question, labels, moved, k, lacking)
    if later > 0:
        both = _ticks(later, rates[0], rates[1]) + _ticks(later, rates[2], rates[3])
        both = max(both, asked[TWICE])
    longest, length = link + both, idle + total
    if k < last:
        length = max(length, free + departing + total - side.prefix[k])
    # What holds only if nothing leaves any more.
    stays, stays_link = 0, 0
    if k > 0:
        stays = idle + side.prefix[k - 1] + question.rest[k - 1]
    if k < last:
        stays = max(stays, free + question.rest[k])
    for e in range(side.due.size):
        operation = side.due[e]
        if operation >= k:
            returning = link - _out_ticks(side, question, labels, e)
            longest = max(longest, returning + departing + total - side.prefix[operation])
            stays_link = max(stays_link, returning + question.rest[operation])
    # Once something has left, operations may have run sooner than their idle time says.
    if left == 0 and not _more_out(labels):
        leaves = link + asked[TWICE]
        longest = max(longest, min(stays_link, leaves))
        length = max(length, min(stays, leaves))
    return max(length, longest), longest


@compiled
def _more_out(labels: Labels) -> bool:
    """Whether more of some class may be out than at the cut."""
    for i in range(labels.counters[TOUCHED]):  # noqa: SIM110
        if labels.now[labels.touched[i]] < 0:
            return True
    return False
