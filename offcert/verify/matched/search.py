"""The searches behind `check`: all ends of a side, and those that the other side can join.

`all_ends` goes through the amounts that have moved as `heads.search.search` does. But it keeps
every label that no other is as good as, and goes on after all operations have run. Once `join` has
put the two sides together, `kept` goes through the amounts backwards. It finds the keys from which
a joint end can be reached in time, and how long the whole schedule then takes at least. A finer
search of the side needs no other keys.

A *key* is an amount, in units, and a code, the number of tensors moved of each size told apart.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from offcert.core.compiled import IntArray, compiled, inlined, inner
from offcert.verify.growing import grown
from offcert.verify.heads.search import (
    CODE,
    FREE,
    NEXT,
    NONE,
    SPARE,
    STORED,
    UNKNOWN,
    WAITED,
    WIDTH,
    Tables,
    child_of,
    in_time,
    members,
    next_ready,
    operations_run,
    prospects,
    store_before,
    undominated,
    with_pair,
)

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

DONE, TOO_MUCH, TOO_LARGE = range(3)
# The end of a key that has none. By definition.
NEVER = 2**62


def no_keys(amounts: int) -> Keyed:
    """Return that no key has any row."""
    rows = np.zeros((0, 2), dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int64)
    return Keyed(np.zeros(amounts + 1, dtype=np.int64), nothing, np.zeros(1, dtype=np.int64), rows)


@inlined
def _seek(keyed: Keyed, amount: int, code: int, key: int) -> int:
    """Return the first key of an amount, from `key` on, whose code is at least `code`."""
    while key < keyed.bounds[amount + 1] and keyed.codes[key] < code:
        key += 1
    return key


@inlined
def _promising(
    known: Keyed, amount: int, key: int, child: tuple[int, int, int], limit: int
) -> bool:
    """Return whether a label can be part of a schedule within `limit` by the pairs of `key`.

    `key` is what `_seek` found; the code that was sought stands in `child`.
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
    tables : Tables
        The tables of the side.
    limit : int
        When the side must end, in ticks of its clock.
    amounts : int
        The least amount, in units, that is too much.
    ahead : pair of int64 array
        From `all_prospects`.
    known : Keyed
        The keys that a coarser search has kept, with their pairs. No other key leads to an end.
    ratio : int
        Divisor that makes a code one of the coarser search; 0 if there was none.
    whole : int
        When the whole schedule must end.
    max_labels : int
        How many labels to expand, and to hold at a time, at most.

    Returns
    -------
    status : int
        `DONE`; `TOO_MUCH` if a side that moves too much might end in time; `TOO_LARGE`.
    found : Keyed
        The labels, for each key in order of when the link is free; useless unless `DONE`.
    """
    bounds, pairs = ahead
    levels = len(bounds) - 1
    heads = np.full(amounts, NONE, dtype=np.int64)
    labels = np.zeros((1024, 4), dtype=np.int64)
    used = np.array([0, NONE])
    if in_time(bounds[0, 0], bounds[0, 1], pairs, (0, 0, 0), limit):
        labels[0, NEXT] = NONE
        heads[0], used[STORED] = 0, 1
    begins = np.zeros(amounts + 1, dtype=np.int64)
    codes, first = np.zeros(1024, dtype=np.int64), np.zeros(1024, dtype=np.int64)
    rows = np.zeros((1024, 2), dtype=np.int64)
    seeking = np.zeros(len(tables.units), dtype=np.int64)
    keys = count = run = 0
    status = DONE
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
            if keys == begins[level] or codes[keys - 1] != labels[label, CODE]:
                if keys + 1 == len(codes):
                    codes, first = grown(codes), grown(first)
                codes[keys], first[keys] = labels[label, CODE], count
                keys += 1
            if count == len(rows):
                rows = grown(rows)
            if used[STORED] + len(tables.units) > len(labels):
                labels = grown(labels, len(tables.units))
            rows[count, 0], rows[count, 1] = labels[label, FREE], labels[label, WAITED]
            count += 1
            for c in range(len(tables.units)):
                child = child_of(tables, labels[label], level, run, c)
                reached = level + tables.units[c]
                near = min(reached, levels)
                begin, end = bounds[near, 0], bounds[near, 1]
                if child[1] == NONE or not in_time(begin, end, pairs, child, limit):
                    continue
                if reached >= amounts:
                    status = TOO_MUCH
                    break
                if ratio > 0:
                    # Labels are in order of their codes, so those of their children are, too.
                    coarse = (child[0] // ratio, child[1], child[2])
                    seeking[c] = _seek(known, reached, coarse[0], seeking[c])
                    if not _promising(known, reached, seeking[c], coarse, whole):
                        continue
                heads[reached] = store_before(labels, used, heads[reached], child)
            if status == DONE and (count > max_labels or used[STORED] > max_labels):
                status = TOO_LARGE
            if status != DONE:
                break
        for label in listed:
            labels[label, NEXT] = used[SPARE]
            used[SPARE] = label
    begins[amounts], first[keys] = keys, count
    return status, Keyed(begins, codes[:keys].copy(), first[: keys + 1].copy(), rows[:count].copy())


@inlined
def _of_use(found: Keyed, key: int, pair: tuple[int, int], limit: int) -> bool:
    """Return whether a label of the key can end by `limit` with such a pair."""
    for row in range(found.first[key], found.first[key + 1]):
        if found.rows[row, 0] + pair[0] <= limit and found.rows[row, 1] + pair[1] <= limit:
            return True
    return False


@inlined
def _before_transfer(
    tables: Tables, run: int, more: bool, ready: int, c: int, after: IntArray
) -> tuple[int, int]:
    """Return the pair before a transfer of size `c` from the pair `after` it.

    `run` operations can run before, and `more` of them with what it moves.
    """
    free = tables.times[c] + after[0]
    if more:
        free = max(free, tables.times[c] - tables.clock[run] + after[1])
    return free, max(after[1], tables.clock[ready + 1] + free)


@compiled
def kept(tables: Tables, found: Keyed, other: IntArray, limit: int) -> Keyed:
    """Return the keys, with their pairs, from which a schedule within `limit` may be reached.

    A schedule that passes a label takes at least ``max(free + pair[0], waited + pair[1])`` ticks,
    for one of the pairs of the label's key. A key is left out if none of its labels allows `limit`.

    Parameters
    ----------
    tables : Tables
        The tables of the side.
    found : Keyed
        All its labels.
    other : int64 array, shape (K,)
        When the other side ends with each key; `NEVER` where no schedule within `limit` joins.
    limit : int
        Ticks for the whole schedule.
    """
    amounts = len(found.bounds) - 1
    runs = np.zeros(amounts, dtype=np.int64)
    for level in range(amounts):
        runs[level] = operations_run(tables, level * tables.unit, runs[max(0, level - 1)])
    spans = np.zeros((len(found.codes), 2), dtype=np.int64)
    pairs = np.zeros((1024, 2), dtype=np.int64)
    best = np.empty((WIDTH, 2), dtype=np.int64)
    seeking = np.zeros(len(tables.units), dtype=np.int64)
    stored = alive = 0
    for level in range(amounts - 1, -1, -1):
        run = runs[level]
        for c in range(len(tables.units)):
            if level + tables.units[c] < amounts:
                seeking[c] = found.bounds[level + tables.units[c]]
        for key in range(found.bounds[level], found.bounds[level + 1]):
            count = 0
            if other[key] < NEVER:
                pair = (other[key], tables.clock[-1] + other[key])
                if _of_use(found, key, pair, limit):
                    count = with_pair(best, count, pair[0], pair[1])
            for c in range(len(tables.units)):
                reached = level + tables.units[c]
                ready = next_ready(tables, found.codes[key], level, run, c)
                if reached >= amounts or ready == UNKNOWN:
                    continue
                code = found.codes[key] + tables.radix[c]
                seeking[c] = _seek(found, reached, code, seeking[c])
                if seeking[c] == found.bounds[reached + 1] or found.codes[seeking[c]] != code:
                    continue
                for row in range(spans[seeking[c], 0], spans[seeking[c], 1]):
                    more = runs[reached] > run
                    pair = _before_transfer(tables, run, more, ready, c, pairs[row])
                    if _of_use(found, key, pair, limit):
                        count = with_pair(best, count, pair[0], pair[1])
            spans[key, 0] = stored
            for row in range(count):
                if stored == len(pairs):
                    pairs = grown(pairs)
                pairs[stored, 0], pairs[stored, 1] = best[row, 0], best[row, 1]
                stored += 1
            spans[key, 1] = stored
            alive += count > 0
    return _compressed(found, spans, pairs, alive, stored)


@inner
def _compressed(found: Keyed, spans: IntArray, pairs: IntArray, alive: int, stored: int) -> Keyed:
    """Return the `alive` keys that have any of the `stored` pairs, in the order of `found`."""
    amounts = len(found.bounds) - 1
    bounds = np.zeros(amounts + 1, dtype=np.int64)
    codes = np.zeros(alive, dtype=np.int64)
    first = np.zeros(alive + 1, dtype=np.int64)
    rows = np.zeros((stored, 2), dtype=np.int64)
    keys = count = 0
    for level in range(amounts):
        bounds[level] = keys
        for key in range(found.bounds[level], found.bounds[level + 1]):
            if spans[key, 0] == spans[key, 1]:
                continue
            codes[keys], first[keys] = found.codes[key], count
            keys += 1
            for row in range(spans[key, 0], spans[key, 1]):
                rows[count, 0], rows[count, 1] = pairs[row, 0], pairs[row, 1]
                count += 1
    bounds[amounts], first[alive] = keys, count
    return Keyed(bounds, codes, first, rows)
