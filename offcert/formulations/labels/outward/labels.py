"""Labels of the outward search: the store of all searches, and what this one adds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, plain
from offcert.formulations.labels.store import HEAP, LABELS, NEVER, NONE, Ints32, new_store


class Labels(NamedTuple):
    """Labels of one search of one side, as in `store.Store`, and more.

    The ``key`` are the tensors of each class that have returned, less those that have left; ``fv``
    bounds the end of the side, and ``ft`` says how urgent the bytes ``moved`` were. ``spent`` are
    the link's ticks for these returns alone, ``left`` whether anything has left, ``link`` what the
    link alone says of the side's end; the last transfer ``began`` when ``kept`` operations had run
    and stayed run (the action is class + 1 for a return, minus that for a departure); ``bucket`` is
    a label's place in the table. ``nothing`` and ``limits`` are what `store.enter` asks for.
    """

    t: IntArray
    s: IntArray
    k: Ints32
    parent: Ints32
    action: Ints32
    alive: NDArray[np.int8]
    fv: IntArray
    ft: IntArray
    following: Ints32
    key: IntArray
    mask: IntArray
    table: Ints32
    heap: Ints32
    deferred: Ints32
    counters: IntArray
    order: IntArray
    tie: IntArray
    moved: IntArray
    spent: IntArray
    left: NDArray[np.int8]
    link: IntArray
    began: IntArray
    kept: Ints32
    bucket: Ints32
    nothing: IntArray
    limits: IntArray


def new_labels(classes: int, capacity: int) -> Labels:
    """Return an empty store; `capacity` is a power of two."""
    moved, spent, link, began = (np.empty(capacity, np.int64) for _ in range(4))
    return Labels(
        *new_store(capacity, classes, 0, best_first=True),
        moved=moved,
        spent=spent,
        left=np.zeros(capacity, np.int8),
        link=link,
        began=began,
        kept=np.empty(capacity, np.int32),
        bucket=np.empty(capacity, np.int32),
        nothing=np.zeros(0, np.int64),
        limits=np.full(4, NEVER),
    )


@plain
def forget(labels: Labels) -> None:
    """Empty the store; few labels take little time."""
    for label in range(labels.counters[LABELS]):
        labels.table[labels.bucket[label]] = NONE
    labels.counters[LABELS] = labels.counters[HEAP] = 0
