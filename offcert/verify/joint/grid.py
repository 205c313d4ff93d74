"""Where an execution is cut, for verification."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from offcert.core.errors import InputError


class Cuts:
    """Boundaries of windows, and spans between any two boundaries.

    Parameters
    ----------
    moments : sequence of int
        The start (``2o``) and the end (``2o + 1``) of first runs o, increasing.
    joined : sequence of sequence of int
        Spans of several windows, by their boundaries: the beginning is 0, the end comes last.
    computations : int
        How many there are.

    Raises
    ------
    InputError
        If there is no such moment or span.
    """

    def __init__(
        self, moments: Sequence[int], joined: Sequence[Sequence[int]], computations: int
    ) -> None:
        self.end = 2 * computations - 1
        for index, moment in enumerate(moments):
            if moment >= self.end:
                place = f"details.moments[{index}]"
                raise InputError(f"{place} must be below {self.end}, not {moment}")
        for index, (one, two) in enumerate(pairwise(moments)):
            if two <= one:
                raise InputError(f"details.moments[{index + 1}] must be above {one}, not {two}")
        # The moment of each boundary; the beginning is before all.
        self.moment = [-1, *moments, self.end]
        self.windows = len(moments) + 1
        self.spans = [(window, window + 1) for window in range(self.windows)]
        for index, span in enumerate(joined):
            if len(span) != 2 or not span[0] + 2 <= span[1] <= self.windows:
                raise InputError(
                    f"details.spans[{index}] must be two boundaries, at most {self.windows}, with "
                    f"another one between them, not {list(span)}"
                )
            self.spans.append((span[0], span[1]))

    def made(self, maker: int, boundary: int) -> bool:
        """Return whether the first run of a computation is over at a boundary; -1 always is."""
        return 2 * maker + 1 <= self.moment[boundary]

    def over(self, maker: int, boundary: int) -> bool:
        """Return whether time may have passed since the first run of a computation."""
        return 2 * maker + 1 < self.moment[boundary]

    def known(self, maker: int, span: int) -> bool:
        """Return whether the first run of a computation is over when a span begins."""
        return self.made(maker, self.spans[span][0])

    def first_runs(self, span: int) -> range:
        """Return the computations whose first runs lie in a span."""
        begin, end = (self.moment[boundary] for boundary in self.spans[span])
        return range((begin + 1) // 2, (end + 1) // 2)

    def single(self, window: int) -> bool:
        """Return whether a window is one first run, from its start to its end."""
        begin, end = self.moment[window], self.moment[window + 1]
        return begin % 2 == 0 and end == begin + 1

    def running(self, boundary: int) -> int:
        """Return the computation that runs at a boundary that is a moment."""
        return self.moment[boundary] // 2

    def ends(self, boundary: int) -> bool:
        """Return whether a boundary that is a moment is the end of a first run."""
        return self.moment[boundary] % 2 == 1
