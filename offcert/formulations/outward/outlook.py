"""What can be out and absent after one transfer more than a label has; worked out once a label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcert.core.compiled import inlined, plain
from offcert.formulations.outward.model import Ints, Side
from offcert.formulations.outward.question import Question


class Outlook(NamedTuple):
    """What a label's successors need to know of it: they differ in one tensor of one class.

    ``now`` (C) are the tensors of each class that are back, less those that have left: of the label
    when it is looked from, of a successor when something is asked. The rest is the label's:
    ``absent`` and ``out`` (K) are the bytes that can be absent during an operation and out when it
    starts; ``overdue`` (K) the bytes that are out and should be back by then; ``ticks`` (K) the
    time in which what may be out when an operation starts returns; ``more`` (1) of how many classes
    more may be out than at the cut. ``began`` and ``kept`` (K+1) are when its next transfer can
    begin, and how many operations have run by then and stay run.
    """

    now: Ints
    absent: Ints
    out: Ints
    overdue: Ints
    ticks: Ints
    more: Ints
    began: Ints
    kept: Ints


def new_outlook(side: Side) -> Outlook:
    """Return an outlook of nothing."""
    classes, last = side.out.shape
    sizes = classes, last, last, last, last, 1, last + 1, last + 1
    return Outlook(*(np.zeros(size, np.int64) for size in sizes))


@plain
def look(side: Side, question: Question, outlook: Outlook) -> None:
    """Work out what follows from the tensors that are back."""
    now, high, low = outlook.now, question.high, question.low
    for k in range(question.out.size):
        outlook.absent[k], outlook.out[k] = question.absent[k], question.out[k]
        outlook.overdue[k], outlook.ticks[k] = question.overdue[k], question.ticks[k]
    outlook.more[0] = 0
    for c in range(now.size):
        if now[c] == 0:
            continue
        outlook.more[0] += now[c] < 0
        left, size = high[c] - now[c], side.size[c]
        absent, out = side.absent[c], side.out[c]
        for k in range(out.size):
            outlook.absent[k] -= size * (min(high[c], absent[k]) - min(left, absent[k]))
            fewer = min(high[c], out[k]) - min(left, out[k])
            outlook.out[k] -= size * fewer
            outlook.ticks[k] -= side.back[c] * fewer
            surely = max(low[c] - now[c], out[k]) - max(low[c], out[k])
            outlook.overdue[k] += size * surely


# The rest is of a successor: of one class one tensor more (`change` 1) or less (-1) is back. It is
# asked about an operation at a time, in numbers: handing on tuples of arrays would take longer.


@inlined
def can_be(known: int, weight: int, change: int, left: int, limit: int) -> int:
    """Return what can be out or absent, of which something weighs `known` for the label.

    `left` are the tensors of the class that can be out; where it is asked, `limit` can be, at most.
    """
    return known - change * weight * (left < limit + (change < 0))


@inlined
def fits(need: int, most: int, can: int) -> bool:
    """Whether what an operation needs can be absent: `most` are out in all, so many `can` be."""
    return bool(need <= 0 or need <= min(most, can))


@inlined
def overdue(known: int, weight: int, change: int, surely: int, limit: int) -> int:
    """Return the bytes that are out and should be back, of which there are `known` for the label.

    `surely` are the tensors of the class that are out; where it is asked, `limit` may be.
    """
    return known + weight * (max(surely, limit) - max(surely + change, limit))


@inlined
def more_out(outlook: Outlook, c: int, change: int) -> bool:
    """Whether more of some class may be out than at the cut."""
    mine = outlook.now[c]
    return bool(outlook.more[0] - (mine - change < 0) + (mine < 0) > 0)
