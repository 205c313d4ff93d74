"""Keys that a finer search of a side has to look at, once the other side is known; for `check`.

`kept` goes through the amounts backwards. It finds the keys from which a joint end can be reached
in time, and how long the whole schedule then takes at least.
"""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import IntArray, compiled, inlined, inner
from offcert.verification.ends.prospects import UNKNOWN, WIDTH, Tables, operations_run, with_pair
from offcert.verification.ends.search import NEVER, Keyed, next_ready, seek
from offcert.verification.growing import grown


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
    `found` are all labels of the side; `other` tells by key when the other side ends, `NEVER` where
    no schedule within `limit` joins.
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
                seeking[c] = seek(found, reached, code, seeking[c])
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
