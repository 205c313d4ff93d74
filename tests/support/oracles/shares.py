"""The values that a schedule gives to the variables of exported bounds, by their definitions alone.

Bytes of a transfer move evenly over its time; a byte is named by its place in its tensor, from 0 to
1, and every transfer begins with the first one. So what is there, has left or has come back of a
copy is an interval of places, and of several copies the union of their intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from offcert.core.execution import Execution
from offcert.core.network import Network
from support.oracles.schedules import Times

Interval = tuple[Fraction, Fraction]
# A time, and what comes first at one instant: ends of operations (0), releases (1), starts (2).
Moment = tuple[Fraction, int]
Share = tuple[str | int, ...]


def measure(intervals: Iterable[Interval]) -> Fraction:
    """Return the length of a union of intervals."""
    total, reached = Fraction(0), Fraction(0)
    for begin, end in sorted(intervals):
        total += max(end - max(begin, reached), Fraction(0))
        reached = max(reached, end)
    return total


def part(transfer: tuple[int, int], time: Fraction) -> Fraction:
    """Return the share of a transfer that is done by a time."""
    start, end = transfer
    if end == start:
        return Fraction(time >= end)
    return min(max((time - start) / (end - start), Fraction(0)), Fraction(1))


class Shares:
    """The values of the variables of a joint bound; durations are above 0.

    Parameters
    ----------
    network : Network
        What is computed.
    execution : Execution
        Of that network.
    times : Times
        A schedule of its trace.
    moments : sequence of int
        Where it is cut: ``2o`` at the start of the first run of o, ``2o + 1`` at its end.
    spans : sequence of (int, int)
        By their boundaries.
    """

    def __init__(
        self,
        network: Network,
        execution: Execution,
        times: Times,
        moments: Sequence[int],
        spans: Sequence[tuple[int, int]],
    ) -> None:
        self.network, self.execution, self.times, self.spans = network, execution, times, spans
        self.first = {c: execution.runs.index(c) for c in range(len(network))}
        self.at: list[Moment] = [(Fraction(0), -1)]
        for moment in (*moments, 2 * len(network) - 1):
            start, end = times.operations[self.first[moment // 2]]
            self.at.append((Fraction(end), 0) if moment % 2 else (Fraction(start), 2))
        self.writer = dict(enumerate(network.writer))
        tensors = execution.trace.tensors
        # For each tensor, from when on it is in which state; then when it is over.
        self.states = [self._states(number) for number in range(len(tensors))]
        self.over = [(Fraction(times.operations[t.uses[-1]][1]), 1) for t in tensors]

    def _states(self, tensor: int) -> list[tuple[Moment, int]]:
        value = self.execution.values[tensor]
        uses = self.execution.trace.tensors[tensor].uses
        begin = (Fraction(0), -1) if uses[0] < 0 else self._end(uses[0])
        found = [(begin, value)]
        # Uses between the first and the last are not all there where a copy stays anyway.
        for use in range(max(uses[0], 0), uses[-1] + 1):
            written = self.network.computations[self.execution.runs[use]].writes
            changes = sorted(v for v in written if self.network.values[v].base == value)
            found += [(self._end(use), change) for change in changes]
        return found

    def _end(self, position: int) -> Moment:
        return Fraction(self.times.operations[position][1]), 0

    def there_at(self, tensor: int, moment: Moment) -> Fraction:
        """Return the share of a tensor that is on the device."""
        if not self.states[tensor][0][0] <= moment < self.over[tensor]:
            return Fraction(0)
        for (v, before, _), back in self.times.prefetches.items():
            if v != tensor:
                continue
            opened = self._end(before) if before >= 0 else (Fraction(0), -1)
            release = max(Fraction(self.times.offloads[v][1]), opened[0]), 1
            if release <= moment and moment[0] <= back[1]:
                return part(back, moment[0])
        return Fraction(1)

    def state_at(self, tensor: int, moment: Moment) -> int:
        """Return the state that a tensor is in."""
        return [state for since, state in self.states[tensor] if since <= moment][-1]

    def present(self, boundary: int, value: int) -> Fraction:
        """Return the share of a value that is on the device at a boundary."""
        moment = self.at[boundary]
        return max(
            (
                self.there_at(tensor, moment)
                for tensor, states in enumerate(self.states)
                if states[0][0] <= moment and self.state_at(tensor, moment) == value
            ),
            default=Fraction(0),
        )

    def left(self, boundary: int, value: int) -> Fraction:
        """Return the share of a value that has left by a boundary, in a copy that ends as it."""
        time = self.at[boundary][0]
        done = (
            part(each, time)
            for tensor, each in self.times.offloads.items()
            if self.states[tensor][-1][1] == value
        )
        return max(done, default=Fraction(0))

    def returned(self, span: int, value: int) -> list[Interval]:
        """Return the places of a value that come back in a span."""
        begin, end = (self.at[boundary][0] for boundary in self.spans[span])
        return [
            (part(each, begin), part(each, end))
            for (tensor, _, _), each in self.times.prefetches.items()
            if self.states[tensor][-1][1] == value
        ]

    def back(self, span: int, value: int) -> Fraction:
        """Return the share of a value that comes back in a span."""
        return measure(self.returned(span, value))

    def again(self, span: int, computation: int) -> Fraction:
        """Return whether a computation runs in a span after its first run."""
        begin, end = (self.at[boundary] for boundary in self.spans[span])
        for position, ran in enumerate(self.execution.runs):
            start, stop = self.times.operations[position]
            inside = begin <= (Fraction(start), 2) and (Fraction(stop), 0) <= end
            if ran == computation and position != self.first[computation] and inside:
                return Fraction(1)
        return Fraction(0)

    def there(self, span: int, value: int) -> Fraction:
        """Return the share of a value that is on the device at some time in a span."""
        if self.writer[value] >= 0 and self.again(span, self.writer[value]):
            return Fraction(1)
        here = self.present(self.spans[span][0], value)
        return measure([(Fraction(0), here), *self.returned(span, value)])

    def length(self, window: int) -> Fraction:
        """Return the ticks of a window."""
        return self.at[window + 1][0] - self.at[window][0]

    def of(self, share: Share) -> Fraction:
        """Return the value of a variable by its name."""
        if share == ("makespan",):
            return Fraction(self.times.operations[-1][1])
        kind, *place = share
        value: Fraction = getattr(self, str(kind))(*place)
        return value
