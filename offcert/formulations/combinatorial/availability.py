"""When a link has moved an amount of data, if data becomes available over time."""

from __future__ import annotations

from collections.abc import Sequence

_NEVER = -1


class Availability:
    """Data that a link may move; items are added and taken away.

    A link that moves what is there in the order in which it became available, bit by bit, is idle
    last just before some item appears, and from then on works without a pause. So `amount` bytes
    take the largest ``ready + (amount - bytes before it) * unit`` over the items that it gets to. A
    tree over the items keeps, for each of its nodes, the bytes and the largest
    ``ready - bytes before it in the node * unit``: every call takes O(log n).

    Parameters
    ----------
    order : sequence of int
        All items, numbered from 0, in the order in which they become available.
    unit : int
        Time that a byte takes.
    """

    def __init__(self, order: Sequence[int], unit: int) -> None:
        self._unit = unit
        self._width = 1 << max(0, len(order) - 1).bit_length()
        self._leaf = [0] * len(order)
        for place, item in enumerate(order):
            self._leaf[item] = self._width + place
        self._bytes = [0] * (2 * self._width)
        # Without a largest value, where nothing is in a node.
        self._latest: list[int | None] = [None] * (2 * self._width)

    def put(self, item: int, ready: int, size: int) -> None:
        """Add an item that is available from `ready` on; not before those that it follows."""
        self._set(self._leaf[item], size, ready)

    def take_away(self, item: int) -> None:
        """Take an item away."""
        self._set(self._leaf[item], 0, None)

    def _set(self, node: int, size: int, latest: int | None) -> None:
        sums, latests, unit = self._bytes, self._latest, self._unit
        sums[node], latests[node] = size, latest
        node >>= 1
        while node:
            one, other = latests[2 * node], latests[2 * node + 1]
            if other is not None:
                other -= sums[2 * node] * unit
                one = other if one is None or other > one else one
            sums[node] = sums[2 * node] + sums[2 * node + 1]
            latests[node] = one
            node >>= 1

    def time_to_move(self, amount: int) -> int:
        """Return when `amount` bytes have been moved: at least 1, at most all that are there."""
        sums, latests, unit = self._bytes, self._latest, self._unit
        node, before, latest = 1, 0, 0
        while node < self._width:
            node *= 2
            if before + sums[node] < amount:
                known = latests[node]
                if known is not None:
                    latest = max(latest, known - before * unit)
                before += sums[node]
                node += 1
        known = latests[node]
        if known is not None:
            latest = max(latest, known - before * unit)
        return latest + amount * unit
