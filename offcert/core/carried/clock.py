"""The events with which operations begin when segments run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from offcert.core.carried.unroll import CarriedUnrolling, Group
from offcert.core.network import Network

# An event of the clock: kind, path, call, part, again (`offcert.runtime.watch.events.Event`).
Tick = tuple[str, str, int, int, int]


class Clock:
    """Numbers the calls of modules when segments run again; `tick` in the order of operations.

    The first operation of a segment that runs again begins when the segment says so, what the
    backward pass goes on with when it says that it has; all others as when they ran first, with the
    next numbers of calls.

    Parameters
    ----------
    ticks : sequence of Tick
        Of the captured step.
    network : Network
        Of that.
    unrolling : CarriedUnrolling
        What runs again, and when.
    """

    def __init__(
        self, ticks: Sequence[Tick], network: Network, unrolling: CarriedUnrolling
    ) -> None:
        self._plain = ticks
        self._network = network
        self._unrolling = unrolling
        self._counts = Counter(("call", each.path) for each in unrolling.record.calls)
        self._waiting = list(reversed(unrolling.groups))
        self._group: Group | None = None
        # Of the calls in it that it makes again.
        self._numbers: dict[tuple[str, int], int] = {}
        # That something begins to run again, and that something has, if nothing came after.
        self._again: Tick | None = None
        self._resumed: Tick | None = None

    def tick(self, position: int, computation: int) -> Tick:
        """Return the event with which an operation begins."""
        self._move_on(position)
        plain = self._plain[computation]
        if self._group is not None:
            event = self._again or (*plain[:2], self._numbers[plain[1], plain[2]], *plain[3:])
        elif self._network.computations[computation].repeatable:
            return plain
        else:
            event = self._again or self._resumed or plain
        self._again = self._resumed = None
        return event

    def _move_on(self, position: int) -> None:
        """End the segment that has run again, and begin the next ones."""
        while True:
            if self._group is not None and position >= self._group.end:
                self._resumed = self._event("resume", self._group)
                self._group = None
            if self._group is not None or not self._waiting:
                return
            if self._waiting[-1].begin != position:
                return
            self._begin(self._waiting.pop())

    def _begin(self, group: Group) -> None:
        if not group.nested:
            # What is inside asks first, and for that what is around it.
            chain = [group]
            for following in reversed(self._waiting):
                if not following.nested:
                    break
                chain.append(following)
            for each in reversed(chain):
                event = self._event("again", each)
                self._again = self._again or event
        span = self._unrolling.spans[group.segment]
        self._group = group
        self._numbers = {
            (call.path, call.call): self._count("call", call.path)
            for call in self._unrolling.record.calls
            if span.enter <= call.enter <= min(group.stop, span.leave)
            and (not span.line or (call.path, call.call) in span.line)
        }

    def _event(self, kind: str, group: Group) -> Tick:
        path = self._unrolling.spans[group.segment].path
        return kind, path, self._count(kind, path), 0, 0

    def _count(self, kind: str, path: str) -> int:
        number = self._counts[kind, path]
        self._counts[kind, path] = number + 1
        return number
