"""The compiled search of one side at one level: all that may be part of a short schedule.

A label is what a sequence of transfers leads to: the units ``w`` that have left, how many of each
*counted* class (``code``), the time ``t`` at which the link is free and the idle time ``s``. Which
operations have run follows from ``w``. Every transfer adds to ``w``, so labels are expanded in
order of ``w``, and all labels of one amount are known before the first of them is expanded.

`advance` goes from the beginning to the end. `retreat` goes back again, over the *keys* (``w`` and
``code``) that were met, with what the other side takes for the same key. For every key that some
schedule within the limit may pass it leaves pairs ``(link, idle)``, such that the schedule takes at
least ``max(t + link, s + idle)`` for one of them. The next level, with more classes counted, only
looks where these pairs allow it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray, compiled, inlined, inner
from offcert.formulations.labels.ends.tables import (
    SideTables,
    bound_on_end,
    put,
    rank_of,
    transfer,
)

DONE, PAUSED, FULL = range(3)
# Places of `Rows.counters`: the next amount, rows used so far, the first of those free again,
# labels expanded, and operations run.
LEVEL, USED, SPARE, KEPT, RUN = range(5)
# Places of `Keys.counters`: labels and complete labels not yet looked at, pairs, operations run.
LEFT, FINAL, PAIRS, REACH = range(4)
# The mark of no label, and the end of a key that has none. By definition.
NONE = -1
NEVER = 2**62
# Pairs of a key that are told apart. Arbitrary.
WIDEST = 32


class Rows(NamedTuple):
    """Labels that wait, in lists by amount that begin at ``first`` and go on at ``following``.

    ``parent`` is the label (of `ExpandedLabels`) before the last transfer, ``action`` its class.
    """

    first: IntArray
    following: IntArray
    code: IntArray
    t: IntArray
    s: IntArray
    parent: IntArray
    action: IntArray
    counters: IntArray


class ExpandedLabels(NamedTuple):
    """Labels that have been expanded, ordered by ``w``, ``code`` and ``t``."""

    w: IntArray
    code: IntArray
    t: IntArray
    s: IntArray
    parent: IntArray
    action: IntArray


class Keys(NamedTuple):
    """A hash table from keys to their pairs; ``w`` is `NONE` where there is no key.

    A key's pairs are ``amount`` from ``first`` on.
    """

    w: IntArray
    code: IntArray
    first: IntArray
    amount: IntArray
    link: IntArray
    idle: IntArray
    counters: IntArray


@inlined
def slot(table_w: IntArray, table_code: IntArray, w: int, code: int) -> int:
    """Return the place of a key in a hash table, taken or free."""
    mask = np.uint64(table_w.size - 1)
    mixed = (np.uint64(w) ^ np.uint64(1469598103934665603)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29)) ^ np.uint64(code)) * np.uint64(0x9E3779B97F4A7C15)
    place = np.int64((mixed ^ (mixed >> np.uint64(32))) & mask)
    while table_w[place] != NONE and (table_w[place] != w or table_code[place] != code):
        place = (place + 1) & np.int64(mask)
    return int(place)


@inner
def _ordered(rows: Rows, first: int) -> IntArray:
    """Return the rows of a list by code, time and idle time."""
    count, row = 0, first
    while row != NONE:
        count, row = count + 1, rows.following[row]
    listed = np.empty(count, np.int64)
    row = first
    for place in range(count):
        listed[place] = row
        row = rows.following[row]
    if count == 1:
        return listed
    for column in (rows.s, rows.t, rows.code):
        listed = listed[np.argsort(column[listed], kind="mergesort")]
    return listed


@inlined
def _may_end(
    side: SideTables, keys: Keys, modulus: int, label: tuple[int, int, int, int, int], limit: int
) -> bool:
    """Whether a schedule within the limit may have a label: its key, times and operations run."""
    w, code, t, s, k = label
    if modulus == 0:
        return bound_on_end(side, w, t, s, k) <= limit
    place = slot(keys.w, keys.code, w, code % modulus)
    if keys.w[place] == NONE:
        return False
    for pair in range(keys.first[place], keys.first[place] + keys.amount[place]):
        if t + keys.link[pair] <= limit and s + keys.idle[pair] <= limit:
            return True
    return False


@inlined
def _store(rows: Rows, w: int, code: int, t: int, s: int, parent: int, action: int) -> None:
    counters = rows.counters
    row = counters[SPARE]
    if row == NONE:
        row = counters[USED]
        counters[USED] += 1
    else:
        counters[SPARE] = rows.following[row]
    rows.code[row], rows.t[row], rows.s[row] = code, t, s
    rows.parent[row], rows.action[row] = parent, action
    rows.following[row] = rows.first[w]
    rows.first[w] = row


@inlined
def _expand(
    side: SideTables,
    keys: Keys,
    modulus: int,
    limit: int,
    rows: Rows,
    labels: ExpandedLabels,
    label: int,
) -> None:
    """Store the labels that follow a label."""
    w, code, t, s = labels.w[label], labels.code[label], labels.t[label], labels.s[label]
    for c in range(side.size.size):
        end, idle, run = transfer(side, w, code, t, s, rows.counters[RUN], c)
        more, coded = w + side.size[c], code + side.radix[c]
        if end >= 0 and _may_end(side, keys, modulus, (more, coded, end, idle, run), limit):
            _store(rows, more, coded, end, idle, label, c)


@compiled
def advance(
    side: SideTables,
    keys: Keys,
    modulus: int,
    limit: int,
    rows: Rows,
    labels: ExpandedLabels,
    budget: int,
) -> int:
    """Expand labels until there are none, `budget` of them, or no room.

    `keys` are those that the level before has left; a code modulo `modulus` is the code of its key
    there, and `limit` is on the length of the schedule. With modulus 0 there was no level before:
    the ways to the end of the side decide, and `limit` is on that end.
    """
    counters = rows.counters
    while counters[LEVEL] < rows.first.size:
        w = counters[LEVEL]
        if rows.first[w] == NONE:
            counters[LEVEL] += 1
            continue
        if budget <= 0:
            return PAUSED
        listed = _ordered(rows, rows.first[w])
        room = listed.size * side.size.size
        if counters[USED] + room > rows.code.size or counters[KEPT] + listed.size > labels.w.size:
            return FULL
        while (
            counters[RUN] < side.prefix.size - 1 and side.unit * w >= side.required[counters[RUN]]
        ):
            counters[RUN] += 1
        begin = counters[KEPT]
        for row in listed:
            new, code = counters[KEPT], rows.code[row]
            # In order of time, so what comes later must have waited less.
            if new > begin and labels.code[new - 1] == code and labels.s[new - 1] <= rows.s[row]:
                continue
            labels.w[new], labels.code[new] = w, code
            labels.t[new], labels.s[new] = rows.t[row], rows.s[row]
            labels.parent[new], labels.action[new] = rows.parent[row], rows.action[row]
            counters[KEPT] += 1
            _expand(side, keys, modulus, limit, rows, labels, new)
        for row in listed:
            rows.following[row] = counters[SPARE]
            counters[SPARE] = row
        budget -= listed.size
        counters[LEVEL] += 1
    return DONE


@inlined
def _pairs(
    side: SideTables,
    keys: Keys,
    w: int,
    code: int,
    end: int,
    xs: IntArray,
    ys: IntArray,
) -> int:
    """Write the pairs of a key, whose partners end at `end` if it is complete; return how many."""
    last, k = side.prefix.size - 1, keys.counters[REACH]
    count = 0
    if end < NEVER:
        count = put(xs, ys, count, end, side.prefix[last] + end)
    for c in range(side.size.size):
        rank = rank_of(side, code, c)
        if rank == side.amount[c]:
            continue
        if side.ready[c, rank] >= k:
            continue
        more = w + side.size[c]
        place = slot(keys.w, keys.code, more, code + side.radix[c])
        if keys.w[place] == NONE:
            continue
        waits = k < last and side.unit * more >= side.required[k]
        for pair in range(keys.first[place], keys.first[place] + keys.amount[place]):
            x = side.time[c] + keys.link[pair]
            if waits:
                x = max(x, side.time[c] - side.prefix[k] + keys.idle[pair])
            y = max(keys.idle[pair], side.prefix[side.ready[c, rank] + 1] + x)
            count = put(xs, ys, count, x, y)
    return count


@compiled
def retreat(
    side: SideTables,
    limit: int,
    labels: ExpandedLabels,
    chosen: IntArray,
    others: IntArray,
    keys: Keys,
    budget: int,
) -> int:
    """Find the pairs of all keys, from the last on, until none is left, or `budget`, or no room.

    A key with no label within `limit`, on the length of the schedule, is left out. `labels` are all
    of the side, `chosen` complete ones, one a key, and `others` the least ends of their partners.
    """
    counters = keys.counters
    needs = side.required.copy()
    for operation in range(1, needs.size):
        needs[operation] = max(needs[operation], needs[operation - 1])
    xs, ys = np.empty(WIDEST + 1, np.int64), np.empty(WIDEST + 1, np.int64)
    while counters[LEFT] > 0:
        if budget <= 0:
            return PAUSED
        if counters[PAIRS] + WIDEST > keys.link.size:
            return FULL
        last = counters[LEFT] - 1
        w, code = labels.w[last], labels.code[last]
        begin = last
        while begin > 0 and labels.w[begin - 1] == w and labels.code[begin - 1] == code:
            begin -= 1
        while counters[REACH] > 0 and side.unit * w < needs[counters[REACH] - 1]:
            counters[REACH] -= 1
        end, complete = NEVER, counters[FINAL] - 1
        if (
            complete >= 0
            and labels.w[chosen[complete]] == w
            and labels.code[chosen[complete]] == code
        ):
            end = others[complete]
            counters[FINAL] -= 1
        count = _pairs(side, keys, w, code, end, xs, ys)
        best = NEVER
        for label in range(begin, last + 1):
            for pair in range(count):
                best = min(best, max(labels.t[label] + xs[pair], labels.s[label] + ys[pair]))
        if best <= limit:
            place = slot(keys.w, keys.code, w, code)
            keys.w[place], keys.code[place] = w, code
            keys.first[place], keys.amount[place] = counters[PAIRS], count
            for pair in range(count):
                keys.link[counters[PAIRS]], keys.idle[counters[PAIRS]] = xs[pair], ys[pair]
                counters[PAIRS] += 1
        counters[LEFT] = begin
        budget -= 1
    return DONE
