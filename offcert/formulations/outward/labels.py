"""Labels of the outward search: their store, the hash table over what is out, and the heap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offcert.formulations.outward.model import Ints
from offcert.formulations.pivot.pool import Ints32, compiled

# Places of `Labels.counters`: labels stored, and on the heap; classes listed in `touched`.
STORED, WAITING, TOUCHED = range(3)
# No label.
NONE = -1


class Labels(NamedTuple):
    """Labels of one search of one side, and scratch space for ``C`` classes.

    By label: ``returned`` (of each class, less what has left; maybe negative), the bytes ``moved``,
    how urgent those were (``progress``) and the link's ticks ``spent`` for these returns alone; the
    time ``free`` from which the link is free, the operations ``run`` and their idle time ``idle``;
    whether anything has ``left``; what bounds the end of the side (``length``) and what the link
    alone says of it (``link``); the label ``before``, the ``action`` that led here (class + 1 for a
    return, minus that for a departure), when it ``began`` and how many operations had then run and
    stayed run (``kept``); its place in the table (``bucket``).
    """

    returned: NDArray[np.int16]
    moved: Ints
    progress: Ints
    spent: Ints
    free: Ints
    idle: Ints
    run: Ints32
    left: NDArray[np.int8]
    length: Ints
    link: Ints
    before: Ints32
    action: Ints32
    began: Ints
    kept: Ints32
    alive: NDArray[np.int8]
    following: Ints32
    bucket: Ints32
    table: Ints32
    heap: Ints32
    counters: Ints
    now: Ints
    touched: Ints


def new_labels(classes: int, capacity: int) -> Labels:
    """Return an empty store; `capacity` is a power of two."""
    times = [np.empty(capacity, np.int64) for _ in range(8)]
    numbers = [np.empty(capacity, np.int32) for _ in range(7)]
    return Labels(
        returned=np.empty((capacity, classes), np.int16),
        moved=times[0],
        progress=times[7],
        spent=times[1],
        free=times[2],
        idle=times[3],
        run=numbers[0],
        left=np.zeros(capacity, np.int8),
        length=times[4],
        link=times[5],
        before=numbers[1],
        action=numbers[2],
        began=times[6],
        kept=numbers[3],
        alive=np.empty(capacity, np.int8),
        following=numbers[4],
        bucket=numbers[6],
        table=np.full(2 * capacity, NONE, np.int32),
        heap=numbers[5],
        counters=np.zeros(3, np.int64),
        now=np.zeros(classes, np.int64),
        touched=np.zeros(classes, np.int64),
    )


@compiled
def place_of(labels: Labels, returned: Ints) -> int:
    """Return the place in the table of labels with these counts, free or not."""
    mask = np.uint64(labels.table.size - 1)
    mixed = np.uint64(1469598103934665603)
    for c in range(returned.size):
        mixed = (mixed ^ np.uint64(returned[c])) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed ^ (mixed >> np.uint64(29))
    place = np.int64(mixed & mask)
    while True:
        head = labels.table[place]
        if head < 0:
            return int(place)
        same = True
        for c in range(returned.size):
            if labels.returned[head, c] != returned[c]:
                same = False
                break
        if same:
            return int(place)
        place = (place + 1) & np.int64(mask)


@compiled
def forget(labels: Labels) -> None:
    """Empty the store; few labels take little time."""
    for label in range(labels.counters[STORED]):
        labels.table[labels.bucket[label]] = NONE
    labels.counters[STORED], labels.counters[WAITING] = 0, 0


@compiled
def _sooner(labels: Labels, one: int, two: int) -> bool:
    """Whether one label is worked off before another: the shorter, then what got further."""
    if labels.length[one] != labels.length[two]:
        return bool(labels.length[one] < labels.length[two])
    return bool(labels.progress[one] > labels.progress[two])


@compiled
def push(labels: Labels, label: int) -> None:
    """Put a label on the heap."""
    heap = labels.heap
    place = labels.counters[WAITING]
    labels.counters[WAITING] += 1
    while place > 0:
        above = (place - 1) >> 1
        if not _sooner(labels, label, heap[above]):
            break
        heap[place] = heap[above]
        place = above
    heap[place] = label


@compiled
def pop(labels: Labels) -> int:
    """Take the first label off the heap."""
    heap = labels.heap
    top = heap[0]
    labels.counters[WAITING] -= 1
    size = labels.counters[WAITING]
    moved = heap[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _sooner(labels, heap[child + 1], heap[child]):
            child += 1
        if not _sooner(labels, heap[child], moved):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved
    return int(top)
