"""Live bytes of a step under a plan, operation by operation."""

from __future__ import annotations

from offcert.runtime.watch.tracker import LiveBytes


class Counts:
    """Live bytes that a counter finds while a step runs, until another one begins.

    Parameters
    ----------
    counter : LiveBytes or None
        Without one nothing is counted.

    Attributes
    ----------
    at_begin, at_end, peaks : list of int
        Live bytes when each operation began and ended, and the most while it ran.
    """

    def __init__(self, counter: LiveBytes | None) -> None:
        self.at_begin: list[int] = []
        self.at_end: list[int] = []
        self.peaks: list[int] = []
        self._counter = counter

    def begin(self, operation: int) -> None:
        """Take note that an operation begins, after what the plan moves before it."""
        counter = self._counter
        if counter is None:
            return
        counter.look()
        # What comes before the first operation is a part of it.
        self.at_begin.append(counter.live if operation else 0)
        counter.now = operation
        if operation:
            counter.start_peak()

    def end(self) -> None:
        """Take note that the latest operation has ended."""
        if self._counter is not None:
            self._counter.look()
            self.at_end.append(self._counter.live)
            self.peaks.append(self._counter.peak)

    def stop(self) -> None:
        """Count no more operators."""
        if self._counter is not None:
            self._counter.stop()

    def supersede(self) -> None:
        """Take note that another step begins: what is alive is not this one's alone then."""
        self._counter = None
