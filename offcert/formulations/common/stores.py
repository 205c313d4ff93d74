"""Stores of labels for label searches: a heap of labels, a hash table over their keys.

A label is a row of the arrays it is kept in; a heap and a table hold numbers of rows. Nothing here
allocates: arrays grow outside the compiled searches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import plain_inner

Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

# A place of a table in which no label is entered. By definition.
NONE = -1


@plain_inner
def place_of(table: Ints32, keys: NDArray[np.integer], key: Ints) -> int:
    """Return the place of a key in a table, free (`NONE`) or of the first label that has it.

    The table's size is a power of two, and larger than the number of labels entered; row ``i`` of
    `keys` is the key of label ``i``.
    """
    mask = np.uint64(table.size - 1)
    mixed = np.uint64(1469598103934665603)
    for i in range(key.size):
        mixed = (mixed ^ np.uint64(key[i])) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed ^ (mixed >> np.uint64(29))
    place = np.int64(mixed & mask)
    while True:
        head = table[place]
        if head < 0:
            return int(place)
        same = True
        for i in range(key.size):
            if keys[head, i] != key[i]:
                same = False
                break
        if same:
            return int(place)
        place = (place + 1) & np.int64(mask)


@plain_inner
def _before(least: Ints, most: Ints, one: int, two: int) -> bool:
    if least[one] != least[two]:
        return bool(least[one] < least[two])
    return bool(most[one] > most[two])


@plain_inner
def push(heap: Ints32, size: int, label: int, least: Ints, most: Ints) -> None:
    """Put a label on a heap of `size` labels: the least `least` first, then the most `most`."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if not _before(least, most, label, heap[above]):
            break
        heap[place] = heap[above]
        place = above
    heap[place] = label


@plain_inner
def pop(heap: Ints32, size: int, least: Ints, most: Ints) -> int:
    """Take the first label off a heap of `size` labels."""
    top, moved = heap[0], heap[size - 1]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size - 1:
            break
        if child + 2 < size and _before(least, most, heap[child + 1], heap[child]):
            child += 1
        if not _before(least, most, heap[child], moved):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved
    return int(top)
