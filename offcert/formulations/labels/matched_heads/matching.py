"""The pairs of complete labels of both sides that may belong to one schedule.

Both sides move what is out at the cut, and each some tensors of its own. So two keys match if
taking tensors off both leaves the same key, with the units that the pivot needs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcert.core.compiled import compiled, inlined
from offcert.formulations.labels.atomic_heads.kernel import Ints, Tables
from offcert.formulations.labels.matched_heads.kernel import NEVER, NONE, Labels, slot


class EndTable(NamedTuple):
    """A hash table from keys that the sides may share to the least end of one side."""

    w: Ints
    code: Ints
    end: Ints


@compiled
def complete(side: Tables, labels: Labels) -> tuple[Ints, Ints]:
    """Return the complete labels that end first among those with the same key, and their ends."""
    last = side.prefix.size - 1
    most = side.required.max()
    chosen = np.empty(labels.w.size, np.int64)
    ends = np.empty(labels.w.size, np.int64)
    count = 0
    for label in range(labels.w.size):
        if side.unit * labels.w[label] < most:
            continue
        end = max(labels.t[label], labels.s[label] + side.prefix[last])
        if count > 0:
            known = chosen[count - 1]
            if labels.w[known] == labels.w[label] and labels.code[known] == labels.code[label]:
                if end < ends[count - 1]:
                    chosen[count - 1], ends[count - 1] = label, end
                continue
        chosen[count], ends[count] = label, end
        count += 1
    return chosen[:count].copy(), ends[:count].copy()


@inlined
def _less(side: Tables, radix: Ints, least: int, w: int, code: int, c: int) -> bool:
    """Whether a key has a tensor of class `c` to spare, with `least` units left."""
    if w - side.size[c] < least:
        return False
    return radix[c] == 0 or code // radix[c] % side.mask[c] > 0


@compiled
def fill_ends(
    side: Tables, radix: Ints, least: int, labels: Labels, chosen: Ints, ends: Ints, table: EndTable
) -> Ints:
    """Enter the keys of complete labels, and those of fewer tensors that have `least` units.

    Returns
    -------
    places : int64 array
        Of the keys in the table, in ascending order of units; none if there is no room for all.
    """
    places = np.empty(table.w.size // 2, np.int64)
    entered = 0
    # What ends first comes first, so a key that is there need not be looked at again.
    for nth in np.argsort(ends, kind="mergesort"):
        w, code = labels.w[chosen[nth]], labels.code[chosen[nth]]
        at = slot(table.w, table.code, w, code)
        if table.w[at] != NONE:
            continue
        begun = entered
        if entered == places.size:
            return places[:0]
        places[entered], entered = at, entered + 1
        table.w[at], table.code[at], table.end[at] = w, code, ends[nth]
        while begun < entered:
            w, code = table.w[places[begun]], table.code[places[begun]]
            begun += 1
            for c in range(side.size.size):
                if not _less(side, radix, least, w, code, c):
                    continue
                at = slot(table.w, table.code, w - side.size[c], code - radix[c])
                if table.w[at] != NONE:
                    continue
                if entered == places.size:
                    return places[:0]
                places[entered], entered = at, entered + 1
                table.w[at], table.code[at] = w - side.size[c], code - radix[c]
                table.end[at] = ends[nth]
    places = places[:entered]
    return places[np.argsort(table.w[places], kind="mergesort")]


@compiled
def partners(
    side: Tables, radix: Ints, least: int, table: EndTable, places: Ints, other: EndTable
) -> tuple[Ints, Ints]:
    """Return ends of the other side for the keys of this one, with or without tensors to spare.

    Returns
    -------
    best : int64 array, as long as the table
        The least end of the other side.
    shared : int64 array, as long as the table
        The place of the key at which both sides agree.
    """
    best = np.full(table.w.size, NEVER)
    shared = np.full(table.w.size, NONE)
    for place in places:
        w, code = table.w[place], table.code[place]
        at = slot(other.w, other.code, w, code)
        if other.w[at] != NONE:
            best[place], shared[place] = other.end[at], place
        for c in range(side.size.size):
            if _less(side, radix, least, w, code, c):
                at = slot(table.w, table.code, w - side.size[c], code - radix[c])
                if best[at] < best[place]:
                    best[place], shared[place] = best[at], shared[at]
    return best, shared


@compiled
def places_of(table: EndTable, labels: Labels, chosen: Ints) -> Ints:
    """Return the places of labels' keys in a table."""
    places = np.empty(chosen.size, np.int64)
    for nth in range(chosen.size):
        places[nth] = slot(table.w, table.code, labels.w[chosen[nth]], labels.code[chosen[nth]])
    return places
