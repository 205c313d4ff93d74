"""The store of a search: labels, a heap of those that wait, and a hash table over their keys.

A label is a row of the arrays it is kept in; a heap and a table hold numbers of rows. Nothing here
allocates but `grown`: arrays grow outside the compiled searches. Searches hand over tuples of their
own, whose fields have the names of `Store`'s and more.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, inlined, plain, plain_inner

Ints32 = NDArray[np.int32]

# A place of a table in which no label is entered. By definition.
NONE = -1


@plain_inner
def place_of(table: Ints32, keys: NDArray[np.integer], key: IntArray) -> int:
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
def _before(least: IntArray, most: IntArray, one: int, two: int) -> bool:
    if least[one] != least[two]:
        return bool(least[one] < least[two])
    return bool(most[one] > most[two])


@plain_inner
def push(heap: Ints32, size: int, label: int, least: IntArray, most: IntArray) -> None:
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
def pop(heap: Ints32, size: int, least: IntArray, most: IntArray) -> int:
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


# Places in `Store.counters`.
LABELS, HEAP, DEFERRED, BUCKETS, FINALS, STRADDLES, BEST, POPPED = range(8)
# Larger than every time, and far enough from overflow to add two.
NEVER = np.int64(2**62 - 1)
# Labels that a store has room for at first. By definition.
FIRST_CAPACITY = 1 << 12


class Store(NamedTuple):
    """The labels of a side and the structures over them.

    By label: the time ``t`` when the link is free, the idle time ``s``, the operations ``k`` that
    have run, bounds on the end of the side ``fv`` and of the whole ``ft``, the ``parent``, the
    ``action`` that led here, whether it is ``alive`` or dominated, the next one with the same key
    (``following``), the ``key`` and the ``mask`` of the classes that have returned; ``r`` and
    ``held`` are for a second link, otherwise 0. ``table`` hashes keys to
    labels; the heap is by ``order``, then by ``tie``, which are two of the others.
    """

    t: IntArray
    r: IntArray
    held: IntArray
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


# `Store`, or the tuple of a search that has its fields and more, which no type can say.
Pool = Any


def store_with(name: str, module: str, fields: str) -> Any:
    """Return a class of tuples, a module's, that have the fields of `Store` and some more."""
    return namedtuple(name, (*Store._fields, *fields.split()), module=module)


def new_store(capacity: int, words: int, masks: int, best_first: bool = False) -> Store:
    """Return an empty store of keys and masks of so many words.

    The heap is by ``t``, or, if `best_first`, by ``fv`` and then by the most ``ft``.
    """
    columns: dict[str, Any] = {
        name: np.empty(capacity, np.int64) for name in ("t", "r", "held", "s", "fv", "ft")
    }
    numbers = ("k", "parent", "action", "following", "heap", "deferred")
    rows: dict[str, Any] = {name: np.empty(capacity, np.int32) for name in numbers}
    return Store(
        **columns,
        **rows,
        alive=np.empty(capacity, np.int8),
        key=np.empty((capacity, words), np.int64),
        mask=np.empty((capacity, masks), np.int64),
        table=np.full(2 * capacity, -1, np.int32),
        counters=np.array([0, 0, 0, 0, 0, 0, NEVER, 0]),
        order=columns["fv" if best_first else "t"],
        tie=columns["ft" if best_first else "t"],
    )


@plain_inner
def bucket(pool: Pool, key: IntArray) -> int:
    """Return the first label with these counts, or -1; `pool.following` leads to the others."""
    return pool.table[place_of(pool.table, pool.key, key)]


@plain
def rebuild(old: Ints32, new: Pool) -> None:
    """Enter the buckets of one table into another, larger one."""
    for i in range(old.size):
        head = old[i]
        if head >= 0:
            new.table[place_of(new.table, new.key, new.key[head])] = head


@inlined
def _subset(pool: Pool, label: int, mask: IntArray) -> bool:
    """Whether `mask` has every class that has returned in `label`."""
    for i in range(mask.size):  # noqa: SIM110, compiled code has no generators
        if pool.mask[label, i] & ~mask[i]:
            return False
    return True


@inlined
def _superset(pool: Pool, label: int, mask: IntArray) -> bool:
    for i in range(mask.size):  # noqa: SIM110
        if mask[i] & ~pool.mask[label, i]:
            return False
    return True


@inlined
def wait(pool: Pool, label: int) -> None:
    """Put a label on the heap."""
    push(pool.heap, pool.counters[HEAP], label, pool.order, pool.tie)
    pool.counters[HEAP] += 1


@inlined
def take(pool: Pool) -> int:
    """Take the first label off the heap."""
    label = pop(pool.heap, pool.counters[HEAP], pool.order, pool.tie)
    pool.counters[HEAP] -= 1
    return label


@inlined
def enter(
    pool: Pool,
    key: IntArray,
    mask: IntArray,
    t: int,
    r: int,
    held: int,
    s: int,
    k: int,
    fv: int,
    ft: int,
    parent: int,
    action: int,
    limits: IntArray,
) -> None:
    """Add a label unless it is hopeless or dominated; drop those that it dominates."""
    if fv > limits[2] or ft > limits[3]:
        return
    place = place_of(pool.table, pool.key, key)
    head = pool.table[place]
    previous = -1
    label = head
    while label >= 0:
        after = pool.following[label]
        lt, ls, lk = pool.t[label], pool.s[label], pool.k[label]
        lr, lh = pool.r[label], pool.held[label]
        if (
            lt <= t
            and ls <= s
            and lk >= k
            and lr <= r
            and lh >= held
            and _subset(pool, label, mask)
        ):
            return
        if (
            t <= lt
            and s <= ls
            and k >= lk
            and r <= lr
            and held >= lh
            and _superset(pool, label, mask)
        ):
            pool.alive[label] = 0
            if previous < 0:
                head = after
            else:
                pool.following[previous] = after
        else:
            previous = label
        label = after
    new = pool.counters[LABELS]
    pool.counters[LABELS] += 1
    if pool.table[place] < 0:
        pool.counters[BUCKETS] += 1
    pool.t[new], pool.s[new], pool.k[new] = t, s, k
    pool.r[new], pool.held[new] = r, held
    pool.fv[new], pool.ft[new] = fv, ft
    pool.parent[new], pool.action[new], pool.alive[new] = parent, action, 1
    for i in range(key.size):
        pool.key[new, i] = key[i]
    for i in range(mask.size):
        pool.mask[new, i] = mask[i]
    pool.following[new] = head
    pool.table[place] = new
    if fv <= limits[0] and ft <= limits[1]:
        wait(pool, new)
    else:
        pool.deferred[pool.counters[DEFERRED]] = new
        pool.counters[DEFERRED] += 1


def grown(pool: Pool) -> Pool:
    """Return the store with twice the room."""
    capacity = 2 * pool.t.size
    larger: dict[int, NDArray[Any]] = {}
    for array in pool:
        # Neither the table, which is rebuilt, nor what does not grow.
        if array.shape[0] == pool.t.size and id(array) not in larger:
            larger[id(array)] = np.empty((capacity, *array.shape[1:]), array.dtype)
            larger[id(array)][: array.shape[0]] = array
    same = pool._make(larger.get(id(array), array) for array in pool)
    new = same._replace(table=np.full(2 * capacity, -1, np.int32))
    rebuild(pool.table, new)
    return new
