"""`Grid`: at which moments an execution is cut, and over which spans runs again count once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from offcert.core.network import Network

# Spans of up to so many windows are all there; longer ones end with the execution.
_LONGEST_INNER = 4
# All spans are there if their number times that of the computations is at most this, twice over.
_FEW_SPANS = 40_000


@dataclass(frozen=True)
class Grid:
    """Boundaries, the windows between them, and spans of several windows.

    Boundary 0 is the beginning; then come the moments; the last boundary is the end. Moment ``2o``
    is the start of the first run of computation o, ``2o + 1`` its end.

    Attributes
    ----------
    network : Network
        What is executed.
    moments : tuple of int
        Increasing, before the last computation's end.
    joined : tuple of (int, int)
        Spans of at least two windows, each by its first and last boundary.
    """

    network: Network
    moments: tuple[int, ...]
    joined: tuple[tuple[int, int], ...]

    @cached_property
    def at(self) -> tuple[int, ...]:
        """For each boundary, its moment; -1 is the beginning."""
        return (-1, *self.moments, 2 * len(self.network) - 1)

    @property
    def windows(self) -> int:
        """Number of windows."""
        return len(self.moments) + 1

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The windows, then those joined."""
        return (*((w, w + 1) for w in range(self.windows)), *self.joined)

    def runs(self, span: int) -> range:
        """Return the computations whose first runs are in a span."""
        begin, end = self.spans[span]
        return range((self.at[begin] + 1) // 2, (self.at[end] + 1) // 2)

    def single(self, window: int) -> bool:
        """Return whether a window is a single first run, so that nothing else can run in it."""
        return self.at[window] % 2 == 0 and self.at[window + 1] == self.at[window] + 1

    def running(self, boundary: int) -> int:
        """Return the computation that runs at a moment."""
        return self.at[boundary] // 2

    def duration(self, window: int) -> int:
        """Return the ticks of the first runs in a window."""
        inside = self.runs(window)
        return self.network.cumulative[inside.stop] - self.network.cumulative[inside.start]


def grid_of(network: Network, moments: Iterable[int], worst: int | None = None) -> Grid:
    """Return the grid of some moments, with the spans that are worth their time.

    Those up to the end, of a few windows, and from or to the worst moment; all where that is not
    many. One that begins with the execution says nothing of values that are made in it.

    Parameters
    ----------
    network : Network
        Any.
    moments : iterable of int
        In any order.
    worst : int, optional
        That where most has to be absent.
    """
    chosen = tuple(sorted(set(moments)))
    last = len(chosen) + 1
    marked = {last} if worst is None else {last, chosen.index(worst) + 1}
    sourced = any(writer < 0 for writer in network.writer)
    every = last * last * len(network) <= _FEW_SPANS
    joined = []
    for begin in range(0 if sourced else 1, last):
        for end in range(begin + 2, last + 1):
            near = end - begin <= _LONGEST_INNER
            if (every or near or marked & {begin, end}) and (begin, end) != (0, last):
                joined.append((begin, end))
    return Grid(network, chosen, tuple(joined))
