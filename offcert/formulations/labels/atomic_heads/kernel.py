"""The compiled search of one side, best first.

A label is what a sequence of transfers leads to: the bytes ``w`` that have left, the time ``t`` at
which the link is free, the operations ``k`` that have run as early as possible, and their idle time
``s``. Of the tensors that have left, a label's key holds the total, in units, and how many there
are of each *counted* class. Of other classes the first tensor may leave again and again. To count
fewer classes is a relaxation with far fewer labels.

``f`` bounds the end of the side from below, by the best of the ways to the end that `completion`
has found for what has left, in which no class is counted. Labels with the least ``f`` come first
and of those the one that has moved most, so a search whose bound is tight runs straight to an end.
The first complete label ends the search: its ``f`` is the least end.

``f`` bounds *real* sequences, in which no tensor leaves twice. For others it can exceed what the
relaxation attains. That is harmless. A label of a real sequence that ends at ``E`` has ``f <= E``,
and so has a label that replaces it, as that is no worse in anything. So until the sequence is
complete there is such a label, and none with a larger ``f`` is expanded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, inlined, inlined_and_entered, plain
from offcert.formulations.labels.common import Ints32, pop, push

COMPLETE, EXHAUSTED, PAUSED, FULL = range(4)
# Places of `Labels.counters`.
STORED, WAITING, BEST, FINAL = range(4)


class SideTables(NamedTuple):
    """A side as arrays: ``K`` operations, ``C`` classes, at most ``R`` items in one.

    ``size`` is in units, rounded up; ``ready[c, r]`` is when the r-th item of a class is
    ready; ``amount`` the number of items; ``word``, ``shift`` and ``mask`` the place of a class in
    the key (mask 0: not counted); ``most[k]`` all units ready after ``k`` operations; ``rate``
    bytes and ticks; ``first``, ``link`` and ``idle`` the ways to the end (`completion`) from every
    level of ``grain`` units.
    """

    prefix: IntArray
    required: IntArray
    floor: IntArray
    most: IntArray
    size: IntArray
    time: IntArray
    ready: IntArray
    amount: IntArray
    word: IntArray
    shift: IntArray
    mask: IntArray
    rate: IntArray
    unit: int
    grain: int
    first: IntArray
    link: IntArray
    idle: IntArray


class Labels(NamedTuple):
    """Labels of one search, the hash table over their keys and the heap over their ``f``."""

    w: IntArray
    t: IntArray
    s: IntArray
    f: IntArray
    counted: IntArray
    others: IntArray
    k: Ints32
    parent: Ints32
    action: Ints32
    following: Ints32
    alive: NDArray[np.bool_]
    heap: Ints32
    table: Ints32
    counters: IntArray


def new_labels(capacity: int) -> Labels:
    """Return empty arrays for `capacity` labels, a power of two."""
    return Labels(
        w=np.empty(capacity, np.int64),
        t=np.empty(capacity, np.int64),
        s=np.empty(capacity, np.int64),
        f=np.empty(capacity, np.int64),
        counted=np.empty(capacity, np.int64),
        others=np.empty(capacity, np.int64),
        k=np.empty(capacity, np.int32),
        parent=np.empty(capacity, np.int32),
        action=np.empty(capacity, np.int32),
        following=np.empty(capacity, np.int32),
        alive=np.zeros(capacity, np.bool_),
        heap=np.empty(capacity, np.int32),
        table=np.full(2 * capacity, -1, np.int32),
        counters=np.array([0, 0, 0, -1]),
    )


def grown(labels: Labels) -> Labels:
    """Return the labels with twice the room."""
    larger = new_labels(2 * labels.w.size)
    for name, old in labels._asdict().items():
        if name != "table":
            getattr(larger, name)[: old.size] = old
    _rehash(larger)
    return larger


@inlined
def _slot(labels: Labels, units: int, counted: int, others: int) -> int:
    size = labels.table.size
    mixed = (np.uint64(units) ^ np.uint64(1469598103934665603)) * np.uint64(0x9E3779B97F4A7C15)
    for word in (counted, others):
        mixed = (mixed ^ (mixed >> np.uint64(29)) ^ np.uint64(word)) * np.uint64(0x9E3779B97F4A7C15)
    place = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(size - 1))
    while True:
        head = labels.table[place]
        if head < 0 or (
            labels.w[head] == units
            and labels.counted[head] == counted
            and labels.others[head] == others
        ):
            return int(place)
        place = (place + 1) & (size - 1)


@plain
def _rehash(labels: Labels) -> None:
    # In the order in which they were stored, so each list ends with the newest label, as it began.
    for label in range(labels.counters[STORED]):
        place = _slot(labels, labels.w[label], labels.counted[label], labels.others[label])
        labels.table[place] = label


@inlined
def _ticks(rate: IntArray, amount: int) -> int:
    return -(-amount * rate[1] // rate[0])


@inlined_and_entered
def bound_on_end(side: SideTables, w: int, t: int, s: int, k: int) -> int:
    """Return a bound on the end of a side of which `w` units have left and `k` operations run."""
    level = min(-(-w // side.grain), side.first.size - 1)
    f = 2**62
    # Pairs are stored from the last level to the first.
    end = side.first[level - 1] if level > 0 else side.link.size
    for way in range(side.first[level], end):
        f = min(f, max(t + side.link[way], s + side.idle[way]))
    if side.grain == 1:
        return f
    # To the byte, what is coarser there.
    f = max(f, s + side.floor[k], t)
    missing = 0
    for j in range(k, side.prefix.size):
        if side.required[j] - side.unit * w > missing:
            missing = side.required[j] - side.unit * w
            f = max(f, t + _ticks(side.rate, missing) - side.prefix[j] + side.floor[j])
    return f


@inlined
def _settle(side: SideTables, w: int, t: int, s: int, k: int) -> tuple[int, int, int]:
    """Run operations as far as possible; return idle time, their number, and the bound on the end.

    `w` is in units.
    """
    last = side.prefix.size - 1
    if k < last and side.unit * w >= side.required[k]:
        s = max(s, t - side.prefix[k])
        while k < last and side.unit * w >= side.required[k]:
            k += 1
    return s, k, bound_on_end(side, w, t, s, k)


@inlined
def _enter(
    labels: Labels,
    key: tuple[int, int, int],
    t: int,
    s: int,
    k: int,
    f: int,
    origin: tuple[int, int],
) -> None:
    """Add a label unless it is dominated; drop those that it dominates.

    `key` is what has left, in units, and the two words that count; `origin` the label and the class
    it comes from.
    """
    place = _slot(labels, key[0], key[1], key[2])
    label = labels.table[place]
    while label >= 0:
        if labels.alive[label]:
            lt, ls = labels.t[label], labels.s[label]
            if lt <= t and ls <= s:
                return
            if t <= lt and s <= ls:
                labels.alive[label] = False
        label = labels.following[label]
    new = labels.counters[STORED]
    labels.counters[STORED] += 1
    labels.w[new], labels.counted[new], labels.others[new] = key
    labels.t[new], labels.s[new], labels.k[new], labels.f[new] = t, s, k, f
    labels.parent[new], labels.action[new] = origin
    labels.alive[new] = True
    labels.following[new] = labels.table[place]
    labels.table[place] = new
    push(labels.heap, labels.counters[WAITING], new, labels.f, labels.w)
    labels.counters[WAITING] += 1


@plain
def start(side: SideTables, labels: Labels) -> None:
    """Enter the label of nothing moved."""
    s, k, f = _settle(side, 0, 0, 0, 0)
    _enter(labels, (0, 0, 0), 0, s, k, f, (-1, -1))


@inlined
def _expand(side: SideTables, labels: Labels, label: int, limit: int) -> None:
    w, t, s, k = labels.w[label], labels.t[label], labels.s[label], int(labels.k[label])
    words = (labels.counted[label], labels.others[label])
    for c in range(side.size.size):
        r = (words[side.word[c]] >> side.shift[c]) & side.mask[c]
        if r >= side.amount[c] or side.ready[c, r] >= k or w + side.size[c] > side.most[k]:
            continue
        end = max(t, s + side.prefix[side.ready[c, r] + 1]) + side.time[c]
        s2, k2, f = _settle(side, w + side.size[c], end, s, k)
        f = max(f, labels.f[label])
        if f <= limit:
            more = np.int64(side.mask[c] > 0) << side.shift[c]
            one, two = words
            if side.word[c] == 0:
                one += more
            else:
                two += more
            _enter(labels, (w + side.size[c], one, two), end, s2, k2, f, (int(label), c))


@plain
def run(side: SideTables, labels: Labels, limit: int, budget: int) -> int:
    """Expand labels until one is complete, none is left within the limit, or `budget` is spent.

    ``counters[BEST]`` is a lower bound on the end of the side whenever this returns, except after
    EXHAUSTED, when no end is within the limit.
    """
    last = side.prefix.size - 1
    counters = labels.counters
    while counters[WAITING] > 0:
        if counters[STORED] + side.size.size > labels.w.size:
            return FULL
        if budget == 0:
            return PAUSED
        label = pop(labels.heap, labels.counters[WAITING], labels.f, labels.w)
        labels.counters[WAITING] -= 1
        if not labels.alive[label]:
            continue
        budget -= 1
        counters[BEST] = max(counters[BEST], labels.f[label])
        if labels.k[label] == last and side.unit * labels.w[label] >= side.required[last]:
            counters[FINAL] = label
            return COMPLETE
        _expand(side, labels, label, limit)
    return EXHAUSTED
