"""The search of one side of a pivot, for `check`: all ends that it may have.

Every transfer moves at least one unit, so labels are expanded in order of the amount that has
moved: all labels with one amount are known before the first of them is expanded. There is no queue
by promise, there are no parents and no table of keys: the search shares nothing with the program
whose result it confirms. A label that cannot end in time is not stored.

A *key* is an amount, in units, and a code, the number of tensors moved of each size told apart.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from offcert.core.compiled import IntArray, compiled, inlined, inner
from offcert.verification.ends.prospects import (
    NONE,
    UNKNOWN,
    Tables,
    in_time,
    operations_run,
    prospects,
)
from offcert.verification.growing import grown

# Columns of a label: how many of each counted size have left, when the link is free, the ticks that
# the device has waited, and the next label with the same amount moved.
CODE, FREE, WAITED, NEXT = range(4)
# How many rows of labels have been used so far, and the first of those that are free again.
STORED, SPARE = range(2)

# Keys in order of amount and code, each with rows of two numbers: labels (when the link is free,
# ticks waited) or pairs (ticks from then on to the end of the whole, at least).
Keyed = namedtuple(
    "Keyed",
    [
        "bounds",  # (W+1,) first key of each amount below W, and how many keys there are
        "codes",  # (K,) increasing within one amount
        "first",  # (K+1,) first row of each key
        "rows",  # (R, 2)
    ],
)

# Outcomes of a search: no label can move the amount that is too much in time, or one may, or it is
# too large to say. By definition.
DONE, REACHED, TOO_LARGE = range(3)
# The end of a key that has none. By definition.
NEVER = 2**62


def no_keys(amounts: int) -> Keyed:
    """Return that no key has any row."""
    rows = np.zeros((0, 2), dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int64)
    return Keyed(np.zeros(amounts + 1, dtype=np.int64), nothing, np.zeros(1, dtype=np.int64), rows)


@inner
def members(labels: IntArray, first: int) -> IntArray:
    """Return the labels of the list that begins with `first`."""
    count, label = 0, first
    while label != NONE:
        count, label = count + 1, labels[label, NEXT]
    listed = np.empty(count, dtype=np.int64)
    label = first
    for index in range(count):
        listed[index] = label
        label = labels[label, NEXT]
    return listed


@inner
def undominated(labels: IntArray, listed: IntArray) -> IntArray:
    """Return the labels that no other with the same code is as good as."""
    for column in (WAITED, FREE, CODE):
        listed = listed[np.argsort(labels[listed, column], kind="mergesort")]
    count = 0
    for label in listed:
        # The labels of one code are in order of `FREE`, so to be kept each must have waited less.
        known = listed[max(0, count - 1)]
        same = count > 0 and labels[known, CODE] == labels[label, CODE]
        if not same or labels[known, WAITED] > labels[label, WAITED]:
            listed[count] = label
            count += 1
    return listed[:count]


@inlined
def store_before(labels: IntArray, used: IntArray, first: int, child: tuple[int, int, int]) -> int:
    """Put a label before `first`, where there is room; return its place."""
    new = used[SPARE]
    if new == NONE:
        new = used[STORED]
        used[STORED] += 1
    else:
        used[SPARE] = labels[new, NEXT]
    labels[new, CODE], labels[new, FREE], labels[new, WAITED] = child
    labels[new, NEXT] = first
    return int(new)


@inlined
def next_ready(tables: Tables, code: int, level: int, run: int, c: int) -> int:
    """Return after which operation the next tensor of size `c` leaves; `UNKNOWN` if none can."""
    rank = 0
    if tables.radix[c] > 0:
        rank = code // tables.radix[c] % tables.bases[c]
        if rank == tables.amount[c]:
            return UNKNOWN
    ready = tables.ready[c, rank]
    if ready >= run or level + tables.units[c] > tables.at_hand[run]:
        return UNKNOWN
    return ready


@inlined
def child_of(tables: Tables, label: IntArray, level: int, run: int, c: int) -> tuple[int, int, int]:
    """Return code, time at which the link is free and ticks waited after a transfer of size `c`.

    The second is `NONE` if there is nothing to transfer.
    """
    code, free, waited = label[CODE], label[FREE], label[WAITED]
    ready = next_ready(tables, code, level, run, c)
    if ready == UNKNOWN:
        return code, NONE, waited
    reached = level + tables.units[c]
    free = max(free, waited + tables.clock[ready + 1]) + tables.times[c]
    if operations_run(tables, reached * tables.unit, run) > run:
        waited = max(waited, free - tables.clock[run])
    return code + tables.radix[c], free, waited


@inlined
def seek(keyed: Keyed, amount: int, code: int, key: int) -> int:
    """Return the first key of an amount, from `key` on, whose code is at least `code`."""
    while key < keyed.bounds[amount + 1] and keyed.codes[key] < code:
        key += 1
    return key


@inlined
def _promising(
    known: Keyed, amount: int, key: int, child: tuple[int, int, int], limit: int
) -> bool:
    """Return whether a label can be part of a schedule within `limit` by the pairs of `key`.

    `key` is what `seek` found; the code that was sought stands in `child`.
    """
    if key == known.bounds[amount + 1] or known.codes[key] != child[0]:
        return False
    return in_time(known.first[key], known.first[key + 1], known.rows, child, limit)


@compiled
def all_prospects(tables: Tables) -> tuple[IntArray, IntArray]:
    """Return how long the rest takes from each amount, whichever sizes are told apart."""
    return prospects(tables, -(-tables.need.max() // tables.unit))


@compiled
def all_ends(
    tables: Tables,
    limit: int,
    amounts: int,
    ahead: tuple[IntArray, IntArray],
    known: Keyed,
    ratio: int,
    whole: int,
    max_labels: int,
) -> tuple[int, Keyed]:
    """Return all labels of one side that can end in time and that no other label dominates.

    Parameters
    ----------
    limit, whole : int
        When the side must end, in ticks of its clock, and the whole schedule.
    amounts : int
        The least amount, in units, that is too much. If it is all that the side needs, labels are
        not returned: the question is whether the side can end in time at all.
    ahead : pair of int64 array
        From `all_prospects`.
    known, ratio
        The keys that a coarser search has kept, with their pairs: no other key leads to an end. The
        ratio makes a code one of that search; 0 if there was none.
    max_labels : int
        How many labels to expand, and to hold at a time, at most.

    Returns
    -------
    status : int
        `DONE`; `REACHED` if a side that moves too much might end in time; `TOO_LARGE`.
    found : Keyed
        The labels, for each key in order of when the link is free; useless unless `DONE`.
    """
    bounds, pairs = ahead
    levels = len(bounds) - 1
    heads = np.full(max(1, amounts), NONE, dtype=np.int64)
    labels = np.zeros((1024, 4), dtype=np.int64)
    used = np.array([0, NONE])
    status = DONE
    if in_time(bounds[0, 0], bounds[0, 1], pairs, (0, 0, 0), limit):
        labels[0, NEXT] = NONE
        heads[0], used[STORED] = 0, 1
        status = DONE if amounts > 0 else REACHED
    begins = np.zeros(amounts + 1, dtype=np.int64)
    codes, first = np.zeros(1024, dtype=np.int64), np.zeros(1024, dtype=np.int64)
    rows = np.zeros((1024, 2), dtype=np.int64)
    seeking = np.zeros(len(tables.units), dtype=np.int64)
    keys = count = run = expanded = 0
    for level in range(amounts):
        begins[level] = keys
        if heads[level] == NONE or status != DONE:
            continue
        run = operations_run(tables, level * tables.unit, run)
        for c in range(len(tables.units)):
            if ratio > 0 and level + tables.units[c] < amounts:
                seeking[c] = known.bounds[level + tables.units[c]]
        listed = members(labels, heads[level])
        for label in undominated(labels, listed):
            expanded += 1
            if amounts > levels:
                if keys == begins[level] or codes[keys - 1] != labels[label, CODE]:
                    if keys + 1 == len(codes):
                        codes, first = grown(codes), grown(first)
                    codes[keys], first[keys] = labels[label, CODE], count
                    keys += 1
                if count == len(rows):
                    rows = grown(rows)
                rows[count, 0], rows[count, 1] = labels[label, FREE], labels[label, WAITED]
                count += 1
            if used[STORED] + len(tables.units) > len(labels):
                labels = grown(labels, len(tables.units))
            for c in range(len(tables.units)):
                child = child_of(tables, labels[label], level, run, c)
                reached = level + tables.units[c]
                near = min(reached, levels)
                begin, end = bounds[near, 0], bounds[near, 1]
                if child[1] == NONE or not in_time(begin, end, pairs, child, limit):
                    continue
                if reached >= amounts:
                    status = REACHED
                    break
                if ratio > 0:
                    # Labels are in order of their codes, so those of their children are, too.
                    coarse = (child[0] // ratio, child[1], child[2])
                    seeking[c] = seek(known, reached, coarse[0], seeking[c])
                    if not _promising(known, reached, seeking[c], coarse, whole):
                        continue
                heads[reached] = store_before(labels, used, heads[reached], child)
            if status == DONE and (expanded > max_labels or used[STORED] > max_labels):
                status = TOO_LARGE
            if status != DONE:
                break
        for label in listed:
            labels[label, NEXT] = used[SPARE]
            used[SPARE] = label
    begins[amounts], first[keys] = keys, count
    return status, Keyed(begins, codes[:keys].copy(), first[: keys + 1].copy(), rows[:count].copy())
