"""The compiled search of one side alone, best first.

A label is what a sequence of transfers leads to: the units ``w`` that have left and how many of
each *counted* class (both its key), the time ``t`` at which the link is free, the operations ``k``
that have run as early as possible, and their idle time ``s``. Of other classes the first tensor may
leave again and again. To count fewer classes is a relaxation with far fewer labels.

``fv`` bounds the end of the side from below, by the best of the ways to the end (`tables.ways`) for
what has left, in which no class is counted. Labels with the least come first and of those the one
that has moved most, so a search whose bound is tight runs straight to an end. The first complete
label ends the search: its ``fv`` is the least end.

``fv`` bounds *real* sequences, in which no tensor leaves twice. For others it can exceed what the
relaxation attains. That is harmless. A label of a real sequence that ends at ``E`` has ``fv <= E``,
and so has a label that replaces it, as that is no worse in anything. So until the sequence is
complete there is such a label, and none with a larger ``fv`` is expanded.
"""

from __future__ import annotations

from offcert.core.compiled import IntArray, inlined, plain
from offcert.formulations.labels.ends.tables import SideTables, bound_on_end, transfer
from offcert.formulations.labels.store import BEST, FINALS, HEAP, LABELS, Store, enter, take

COMPLETE, EXHAUSTED, PAUSED, FULL = range(4)


@plain
def start(side: SideTables, labels: Store, key: IntArray, mask: IntArray, limits: IntArray) -> None:
    """Enter the label of nothing moved; parameters as for `run`."""
    k, last = 0, side.prefix.size - 1
    while k < last and side.required[k] <= 0:
        k += 1
    labels.counters[BEST] = labels.counters[FINALS] = -1
    key[0] = key[1] = 0
    f = bound_on_end(side, 0, 0, 0, k)
    enter(labels, key, mask, 0, 0, 0, 0, k, f, 0, -1, -1, limits)


@inlined
def _expand(
    side: SideTables,
    labels: Store,
    label: int,
    key: IntArray,
    mask: IntArray,
    limits: IntArray,
) -> None:
    w, code = labels.key[label, 0], labels.key[label, 1]
    t, s, k = labels.t[label], labels.s[label], int(labels.k[label])
    for c in range(side.size.size):
        end, idle, run = transfer(side, w, code, t, s, k, c)
        if end < 0:
            continue
        key[0], key[1] = w + side.size[c], code + side.radix[c]
        f = max(labels.fv[label], bound_on_end(side, key[0], end, idle, run))
        enter(labels, key, mask, end, 0, 0, idle, run, f, key[0], label, c, limits)


@plain
def run(
    side: SideTables,
    labels: Store,
    key: IntArray,
    mask: IntArray,
    limits: IntArray,
    budget: int,
) -> int:
    """Expand labels until one is complete, none is left within the limit, or `budget` is spent.

    ``counters[BEST]`` is a lower bound on the end of the side whenever this returns, except after
    EXHAUSTED, when no end is within the limit. `limits` are on ``fv`` and on the units moved, each
    twice; `key` and `mask` are scratch space (no class returns, so masks are empty).
    """
    last, counters = side.prefix.size - 1, labels.counters
    while counters[HEAP] > 0:
        if counters[LABELS] + side.size.size > labels.t.size:
            return FULL
        if budget == 0:
            return PAUSED
        label = take(labels)
        if labels.alive[label] == 0:
            continue
        budget -= 1
        counters[BEST] = max(counters[BEST], labels.fv[label])
        if labels.k[label] == last and side.unit * labels.key[label, 0] >= side.required[last]:
            counters[FINALS] = label
            return COMPLETE
        _expand(side, labels, label, key, mask, limits)
    return EXHAUSTED
