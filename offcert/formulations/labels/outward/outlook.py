"""What can be out and absent after one transfer more; worked out once for each label expanded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcert.core.compiled import inlined, plain
from offcert.formulations.labels.outward.model import Ints, OutwardSide
from offcert.formulations.labels.outward.question import Question


class Outlook(NamedTuple):
    """What a label's successors need to know of it: they differ in one tensor of one class.

    ``now`` (C) are the tensors of each class that are back, less those that have left: the label's
    while `look` works things out, a successor's while something is asked about that. ``seen`` (C)
    are those for which the rest was worked out, so the label's: ``absent`` and ``out`` (K), the
    bytes that can be absent during an operation and out when it starts; ``overdue`` (K), the bytes
    that are out and should be back by then; ``ticks`` (K), the time in which what may be out when
    an operation starts returns; ``more`` (1), how many classes may have more out than at the cut.
    ``began`` and ``kept`` (K+1) are when its next transfer can begin, and how many operations have
    run by then and stay run.
    """

    now: Ints
    seen: Ints
    absent: Ints
    out: Ints
    overdue: Ints
    ticks: Ints
    more: Ints
    began: Ints
    kept: Ints


def new_outlook(side: OutwardSide) -> Outlook:
    """Return an outlook of nothing."""
    classes, last = side.out.shape
    sizes = classes, classes, last, last, last, last, 1, last + 1, last + 1
    return Outlook(*(np.zeros(size, np.int64) for size in sizes))


@plain
def look_at_cut(question: Question, outlook: Outlook) -> None:
    """Begin with what a question says of nothing returned."""
    for k in range(question.out.size):
        outlook.absent[k], outlook.out[k] = question.absent[k], question.out[k]
        outlook.overdue[k], outlook.ticks[k] = question.overdue[k], question.ticks[k]
    for c in range(outlook.now.size):
        outlook.seen[c] = 0


@plain
def look(side: OutwardSide, question: Question, outlook: Outlook) -> None:
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
    """Return what can be out or absent, which is `known` for the label.

    `left` tensors of the class can be out, of which at most `limit` count at the operation asked
    about.
    """
    return known - change * weight * (left < limit + (change < 0))


@inlined
def fits(need: int, most: int, can: int) -> bool:
    """Whether what an operation needs can be absent: `most` are out in all, so many `can` be."""
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
