"""What lies where in an arena, found by address."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Addresses(Generic[Item]):
    """Items that lie in an arena, of which none overlaps another."""

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        self._items: list[Item] = []

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def at(self, low: int) -> Item | None:
        """Return what begins at an address; None if nothing does."""
        place = bisect_left(self._lows, low)
        begins = place < len(self._lows) and self._lows[place] == low
        return self._items[place] if begins else None

    def met(self, low: int, high: int) -> list[Item]:
        """Return what has bytes between two addresses."""
        return self._items[self._stretch(low, high)]

    def put(self, low: int, high: int, item: Item) -> None:
        """Let an item lie between two addresses, instead of what has bytes there."""
        stretch = self._stretch(low, high)
        self._lows[stretch], self._highs[stretch] = [low], [high]
        self._items[stretch] = [item]

    def clear(self, low: int, high: int) -> None:
        """Forget what has bytes between two addresses."""
        stretch = self._stretch(low, high)
        del self._lows[stretch], self._highs[stretch], self._items[stretch]

    def _stretch(self, low: int, high: int) -> slice:
        first = bisect_left(self._lows, low)
        if first > 0 and self._highs[first - 1] > low:
            first -= 1
        return slice(first, bisect_left(self._lows, high, first))
