"""A detector of races: which accesses to memory are certain to come one before the other.

The clocks of `offcert.runtime.simulated.streams` are vector clocks: a use is known by its
stream and its number there, and came before another if the other's stream knew of it. Uses of
which at least one writes must be ordered so; that is what sanitizers of CUDA check, and it does
not depend on what happened to be first.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum

from offcert.core.errors import OffcertError
from offcert.runtime.simulated.streams import Knowledge


class RaceKind(StrEnum):
    """The kind of access that a copy is not certain to come before or after."""

    ALLOCATION = "allocation"
    OPERATORS = "operators"
    FREE = "free"
    COPY = "copy"
    HOST = "host"
    CLOSE = "close"


class RaceError(OffcertError):
    """Work of two streams uses the same memory, and nothing orders it."""


@dataclass(frozen=True, slots=True)
class DataRace:
    """Two uses of the same memory that nothing orders."""

    kind: RaceKind  # Kind of the access whose order is not certain
    size: int  # Bytes of it
    what: str  # A sentence


class Uses:
    """The latest uses of a piece of memory: of the writers the last one, of the readers all.

    That is enough: who comes after the last writer comes after those before, or they have been
    found to race.
    """

    __slots__ = ("reads", "writer", "written")

    def __init__(self, streams: int) -> None:
        self.writer = 0
        self.written = 0
        self.reads = [0] * streams

    def copy(self) -> Uses:
        """Return the same, to be changed apart."""
        other = Uses(0)
        other.writer, other.written, other.reads = self.writer, self.written, self.reads.copy()
        return other

    def unordered(self, knows: Knowledge, writing: bool) -> int | None:
        """Return a stream whose use is not known to have ended, and would be in the way."""
        if knows[self.writer] < self.written:
            return self.writer
        if writing:
            for stream, count in enumerate(self.reads):
                if knows[stream] < count:
                    return stream
        return None

    def add(self, stream: int, number: int, writing: bool) -> None:
        """Add a use, the number of which in its stream is given."""
        if writing:
            self.writer, self.written = stream, number
            self.reads = [0] * len(self.reads)
        else:
            self.reads[stream] = number


class HostUses:
    """The uses of the `size` bytes of an arena by some streams."""

    def __init__(self, size: int, streams: int) -> None:
        # Stretches of the same uses, by where they begin; the next one begins where one ends.
        self._begins = [0]
        self._uses = [Uses(streams)]
        self._size = size

    def use(
        self, begin: int, size: int, stream: int, knows: Knowledge, writing: bool
    ) -> int | None:
        """Take note of a use of some bytes, and return a stream with one that is in its way.

        The `stream` uses them as the work that it was given last, and `knows` what comes before.
        """
        if size == 0:
            return None
        first, last = self._cut(begin), self._cut(begin + size)
        found = None
        for uses in self._uses[first:last]:
            other = uses.unordered(knows, writing)
            found = other if found is None else found
            uses.add(stream, knows[stream], writing)
        if writing:
            # The uses of these bytes are all alike now.
            del self._begins[first + 1 : last], self._uses[first + 1 : last]
        return found

    def unknown(self, knows: Knowledge) -> int | None:
        """Return a stream with a use of any byte that is not known to have ended."""
        for uses in self._uses:
            other = uses.unordered(knows, True)
            if other is not None:
                return other
        return None

    def _cut(self, at: int) -> int:
        """Let a stretch begin at a byte; return which."""
        if at >= self._size:
            return len(self._begins)
        place = bisect_left(self._begins, at)
        if place == len(self._begins) or self._begins[place] != at:
            self._begins.insert(place, at)
            self._uses.insert(place, self._uses[place - 1].copy())
        return place
