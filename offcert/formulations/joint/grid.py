"""`Grid`: at which moments an execution is cut, and over which spans runs again count once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from offcert.core.network import Network

# Numbers of moments of the grids that are tried, one after the other.
_MOMENTS = (1, 3, 6, 10, 16, 26)
# Spans times computations of a grid, beyond which its program is not worth its time.
_LARGEST = 60_000


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


def grids(network: Network, demands: Sequence[int], memory: int) -> Iterator[Grid]:
    """Yield grids that are worth trying, the smallest first.

    The first has one moment, where most has to be absent: what is not on the device then must come
    back or run again, and so must what that reads. This is nearly all that larger grids say, but
    for little memory, or a few large values.

    Parameters
    ----------
    network : Network
        Any.
    demands : sequence of int
        For each computation, bytes during its first run if nothing is absent.
    memory : int
        Bytes.
    """
    crowded = [number for number, demand in enumerate(demands) if demand > memory]
    if not crowded:
        return
    worst = max(crowded, key=demands.__getitem__)
    for count in _MOMENTS:
        if count >= len(crowded):
            break
        every = len(crowded) / count
        chosen = {worst, *(crowded[int((i + 0.5) * every)] for i in range(count - 1))}
        yield _grid(network, [2 * number for number in chosen])
    for moments in (
        [2 * number for number in crowded],
        range(2 * len(network) - 1),
    ):
        grid = _grid(network, moments)
        if len(grid.spans) * len(network) <= _LARGEST:
            yield grid


def _grid(network: Network, moments: Sequence[int]) -> Grid:
    """Return a grid with all spans, the whole one left out: it begins with nothing made yet."""
    last = len(moments) + 1
    joined = tuple((i, j) for i in range(last) for j in range(i + 2, last + 1) if j - i < last)
    return Grid(network, tuple(sorted(moments)), joined)
