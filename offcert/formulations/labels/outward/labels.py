"""Labels of the outward search: their store, the hash table over tensors out, and the heap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, plain, plain_inner
from offcert.formulations.labels.common import NONE, Ints32, pop, push

# Places of `Labels.counters`: labels stored, and on the heap.
STORED, WAITING = range(2)


class Labels(NamedTuple):
    """Labels of one search of one side.

    By label: ``returned`` (of each class, less what has left; maybe negative), the bytes ``moved``,
    how urgent those were (``progress``) and the link's ticks ``spent`` for these returns alone; the
    time ``free`` from which the link is free, the operations ``run`` and their idle time ``idle``;
    whether anything has ``left``; what bounds the end of the side (``length``) and what the link
    alone says of it (``link``); the label ``before``, the ``action`` that led here (class + 1 for a
    return, minus that for a departure), when it ``began`` and how many operations had then run and
    stayed run (``kept``); its place in the table (``bucket``).
    """

    returned: NDArray[np.int16]
    moved: IntArray
    progress: IntArray
    spent: IntArray
    free: IntArray
    idle: IntArray
    run: Ints32
    left: NDArray[np.int8]
    length: IntArray
    link: IntArray
    before: Ints32
    action: Ints32
    began: IntArray
    kept: Ints32
    alive: NDArray[np.int8]
    following: Ints32
    bucket: Ints32
    table: Ints32
    heap: Ints32
    counters: IntArray


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
        counters=np.zeros(2, np.int64),
    )


@plain
def forget(labels: Labels) -> None:
    """Empty the store; few labels take little time."""
    for label in range(labels.counters[STORED]):
        labels.table[labels.bucket[label]] = NONE
    labels.counters[STORED], labels.counters[WAITING] = 0, 0


@plain_inner
def wait(labels: Labels, label: int) -> None:
    """Put a label on the heap: the shorter comes first, of equal ones that which got further."""
    push(labels.heap, labels.counters[WAITING], label, labels.length, labels.progress)
    labels.counters[WAITING] += 1


@plain_inner
def take(labels: Labels) -> int:
    """Take the first label off the heap."""
    label = pop(labels.heap, labels.counters[WAITING], labels.length, labels.progress)
    labels.counters[WAITING] -= 1
    return label
