"""One side of a pivot at one level: the arrays of the compiled search, which grow.

Then come the pairs of complete labels of both sides that may belong to one schedule. Both sides
move what is out at the cut, and each some tensors of its own. So two keys match if taking tensors
off both leaves the same key, with the units that the pivot needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray, compiled, inlined
from offcert.formulations.labels.common import OutOfLabelsError
from offcert.formulations.labels.ends import kernel
from offcert.formulations.labels.ends.kernel import NEVER, NONE, ExpandedLabels, slot
from offcert.formulations.labels.ends.tables import SideTables


class EndTable(NamedTuple):
    """A hash table from keys that the sides may share to the least end of one side."""

    w: IntArray
    code: IntArray
    end: IntArray


@compiled
def complete(side: SideTables, labels: ExpandedLabels) -> tuple[IntArray, IntArray]:
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
def _less(side: SideTables, least: int, w: int, code: int, c: int) -> bool:
    """Whether a key has a tensor of class `c` to spare, with `least` units left."""
    if w - side.size[c] < least:
        return False
    return side.radix[c] == 0 or code // side.radix[c] % side.base[c] > 0


@compiled
def fill_ends(
    side: SideTables,
    least: int,
    labels: ExpandedLabels,
    chosen: IntArray,
    ends: IntArray,
    table: EndTable,
) -> IntArray:
    """Enter the keys of complete labels, and those of fewer tensors that have `least` units.

    Return their places in the table, in ascending order of units; none if there is no room.
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
                if not _less(side, least, w, code, c):
                    continue
                at = slot(table.w, table.code, w - side.size[c], code - side.radix[c])
                if table.w[at] != NONE:
                    continue
                if entered == places.size:
                    return places[:0]
                places[entered], entered = at, entered + 1
                table.w[at], table.code[at] = w - side.size[c], code - side.radix[c]
                table.end[at] = ends[nth]
    places = places[:entered]
    return places[np.argsort(table.w[places], kind="mergesort")]


@compiled
def partners(
    side: SideTables,
    least: int,
    table: EndTable,
    places: IntArray,
    other: EndTable,
) -> tuple[IntArray, IntArray]:
    """Return by place the least end of the other side for the keys of this one, and a shared key.

    Tensors to spare may be taken off either; the second part is the place of the key at which both
    sides agree.
    """
    best = np.full(table.w.size, NEVER)
    shared = np.full(table.w.size, NONE)
    for place in places:
        w, code = table.w[place], table.code[place]
        at = slot(other.w, other.code, w, code)
        if other.w[at] != NONE:
            best[place], shared[place] = other.end[at], place
        for c in range(side.size.size):
            if _less(side, least, w, code, c):
                at = slot(table.w, table.code, w - side.size[c], code - side.radix[c])
                if best[at] < best[place]:
                    best[place], shared[place] = best[at], shared[at]
    return best, shared


@compiled
def places_of(table: EndTable, labels: ExpandedLabels, chosen: IntArray) -> IntArray:
    """Return the places of labels' keys in a table."""
    places = np.empty(chosen.size, np.int64)
    for nth in range(chosen.size):
        places[nth] = slot(table.w, table.code, labels.w[chosen[nth]], labels.code[chosen[nth]])
    return places


# Labels, and keys, between two looks at the clock, and those that arrays have room for at first.
# Arbitrary.
_STRIDE = 20_000
_FIRST_CAPACITY = 1 << 12
# Twice the keys that complete labels may share with the other side. Arbitrary.
_LARGEST_TABLE = 1 << 22


class Partners(NamedTuple):
    """For each complete label the least end of the other side, and the key that they share."""

    ends: IntArray
    w: IntArray
    code: IntArray


_NOBODY = Partners(*np.zeros((3, 0), np.int64))


@dataclass
class Level:
    """The findings of a level about one side."""

    tables: SideTables  # The side.
    # The remainder of a code of the next level modulo this is the code of its key here.
    modulus: int
    # Of all sequences that may be part of a schedule within the limit.
    labels: kernel.ExpandedLabels
    # The complete labels that end first among those with the same key, and when.
    chosen: IntArray
    ends: IntArray
    partners: Partners  # Of these; empty until `match`.
    keys: kernel.Keys  # Empty until `keep`.

    def path(self, label: int) -> list[tuple[int, int]]:
        """Return the transfers that lead to a label: the class, and the label before it."""
        path = []
        while self.labels.parent[label] >= 0:
            parent = int(self.labels.parent[label])
            path.append((int(self.labels.action[label]), parent))
            label = parent
        return path[::-1]

    def table(self, least: int) -> tuple[EndTable, IntArray]:
        """Return the ends by the keys that the other side may share, of at least `least` units.

        The second part is where the keys are in the table, those of few units first.

        Raises
        ------
        OutOfLabelsError
        """
        size = _power(4 * self.chosen.size)
        while size <= _LARGEST_TABLE:
            nothing = np.zeros(size, np.int64)
            table = EndTable(np.full(size, kernel.NONE), nothing, nothing.copy())
            known = self.labels, self.chosen, self.ends
            places = fill_ends(self.tables, least, *known, table)
            if places.size > 0 or self.chosen.size == 0:
                return table, places
            size *= 4
        raise OutOfLabelsError

    def match(self, own: tuple[EndTable, IntArray], other: EndTable, least: int) -> None:
        """Find the best partners of complete labels; `own` is the `table` of this level."""
        table, places = own
        best, shared = partners(self.tables, least, table, places, other)
        at = places_of(table, self.labels, self.chosen)
        keys = shared[at]
        # Where there is no partner this is -1, and the key taken for it is never looked at.
        self.partners = Partners(best[at], table.w[keys], table.code[keys])

    def forget(self) -> None:
        """Keep nothing but what the next level needs."""
        nothing = np.zeros(0, np.int64)
        self.labels = kernel.ExpandedLabels(*[nothing] * len(kernel.ExpandedLabels._fields))
        self.chosen, self.ends, self.partners = nothing, nothing, _NOBODY

    def keep(self, limit: int, pause: Callable[[], None]) -> None:
        """Find `keys`: what some schedule within the limit may pass."""
        self.keys = _keys(self.labels.w.size)
        self.keys.counters[kernel.REACH] = self.tables.prefix.size - 1
        self.keys.counters[kernel.FINAL] = self.chosen.size
        known = self.labels, self.chosen, self.partners.ends
        while True:
            status = kernel.retreat(self.tables, limit, *known, self.keys, _STRIDE)
            if status == kernel.DONE:
                return
            pause()
            if status == kernel.FULL:
                link, idle = (_doubled(column) for column in (self.keys.link, self.keys.idle))
                self.keys = self.keys._replace(link=link, idle=idle)


def search_level(
    tables: SideTables,
    before: Level | None,
    limit: int,
    modulus: int,
    max_labels: int,
    pause: Callable[[], None],
) -> Level:
    """Search one side; `limit` is on the schedule or, without a level before, on the side's end.

    Raises
    ------
    OutOfLabelsError
        If more than `max_labels` would have to be kept.
    """
    rows = _rows(_FIRST_CAPACITY, int((tables.size * tables.amount).sum()))
    columns = [np.empty(_FIRST_CAPACITY, np.int64) for _ in kernel.ExpandedLabels._fields]
    labels = kernel.ExpandedLabels(*columns)
    rows.code[0], rows.t[0], rows.s[0] = 0, 0, 0
    rows.parent[0], rows.action[0], rows.following[0] = kernel.NONE, kernel.NONE, kernel.NONE
    rows.first[0] = 0
    rows.counters[:] = 0, 1, kernel.NONE, 0, 0
    keys, reduced = (_keys(0), 0) if before is None else (before.keys, before.modulus)
    while True:
        status = kernel.advance(tables, keys, reduced, limit, rows, labels, _STRIDE)
        if rows.counters[kernel.KEPT] > max_labels or rows.counters[kernel.USED] > 4 * max_labels:
            raise OutOfLabelsError
        if status == kernel.DONE:
            break
        pause()
        if status == kernel.FULL:
            grown = map(_doubled, rows[1:-1])
            rows = kernel.Rows._make((rows.first, *grown, rows.counters))
            labels = kernel.ExpandedLabels(*(_doubled(column) for column in labels))
    kept = int(rows.counters[kernel.KEPT])
    labels = kernel.ExpandedLabels(*(column[:kept].copy() for column in labels))
    found = complete(tables, labels)
    return Level(tables, modulus, labels, *found, _NOBODY, _keys(0))


def _rows(capacity: int, units: int) -> kernel.Rows:
    columns = (np.empty(capacity, np.int64) for _ in kernel.Rows._fields[1:-1])
    first = np.full(units + 1, kernel.NONE)
    return kernel.Rows._make((first, *columns, np.zeros(5, np.int64)))


def _keys(labels: int) -> kernel.Keys:
    size = _power(2 * labels)
    nothing = np.zeros(size, np.int64)
    room = labels + 2 * kernel.WIDEST
    return kernel.Keys(
        w=np.full(size, kernel.NONE),
        code=nothing,
        first=nothing.copy(),
        amount=nothing.copy(),
        link=np.empty(room, np.int64),
        idle=np.empty(room, np.int64),
        counters=np.array([labels, 0, 0, 0]),
    )


def _power(least: int) -> int:
    """Return a power of two above `least`."""
    return 1 << max(1, least).bit_length()


def _doubled(column: IntArray) -> IntArray:
    larger = np.empty(2 * column.size, np.int64)
    larger[: column.size] = column
    return larger
