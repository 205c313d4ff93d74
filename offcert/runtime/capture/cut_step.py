"""A recording cut into operations, and the storages that become one tensor."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from offcert.core.errors import InputError
from offcert.runtime.capture.capture import Clock
from offcert.runtime.capture.moments import Life, Moment
from offcert.runtime.watch.events import (
    AGAIN,
    END,
    ENTER,
    INPUT,
    LEAVE,
    OPERATOR,
    OUTPUT,
    RESUME,
    UNPACK,
    Event,
)


class CutStep:
    """Moments in a row, cut into operations at the ticks of a clock."""

    def __init__(self, moments: Sequence[Moment], clock: Clock) -> None:
        self.moments = moments
        self.clock = clock
        self.ticks = _operator_ticks(moments) if clock is Clock.OPERATORS else _ticks(moments)
        if not self.ticks:
            raise InputError("the model computes nothing")
        self.names = [self._name(index) for index in range(len(self.ticks))]

    def __len__(self) -> int:
        """Return the number of operations."""
        return len(self.ticks)

    def _name(self, operation: int) -> str:
        if self.clock is Clock.OPERATORS:
            moments = self.moments_of(operation)
            return _operator_name(next(moment for moment in moments if moment.launches))
        return _operation_name(self.moments[self.ticks[operation]])

    def operation(self, moment: int) -> int:
        """Return the operation that a moment belongs to; what comes too early goes to the first."""
        return max(0, min(bisect_right(self.ticks, moment), len(self.ticks)) - 1)

    def moments_of(self, operation: int) -> Sequence[Moment]:
        """Return the moments of an operation."""
        first = 0 if operation == 0 else self.ticks[operation]
        last = operation + 1 == len(self.ticks)
        return self.moments[first : len(self.moments) if last else self.ticks[operation + 1]]

    def live_after(self, operation: int) -> int:
        """Return the live bytes when the next operation begins, or the step ends."""
        following = operation + 1
        moment = self.ticks[following] if following < len(self.ticks) else len(self.moments) - 1
        return self.moments[moment].live


def _operator_ticks(moments: Sequence[Moment]) -> list[int]:
    """Return the operators that do any work; one begins when autograd unpacks something for it."""
    ticks: list[int] = []
    begun: int | None = None
    for index, moment in enumerate(moments):
        if moment.event.kind == UNPACK and begun is None:
            begun = index
        elif moment.launches:
            ticks.append(index if begun is None else begun)
            begun = None
    return ticks


def _ticks(moments: Sequence[Moment]) -> list[int]:
    """Return the events after which something is computed before the next event.

    What runs again begins with the event that says so: then its inputs are needed.
    """
    ticks: list[int] = []
    event, ticked = 0, True
    again: int | None = None
    for index, moment in enumerate(moments):
        if moment.event.kind == AGAIN and again is None:
            again = index
        if moment.event.kind not in (OPERATOR, UNPACK):
            event, ticked = index, False
        elif moment.launches and not (ticked and ticks):
            ticks.append(event if again is None else again)
            ticked, again = True, None
    return ticks


def _operator_name(moment: Moment) -> str:
    side = "B" if moment.backward else "F"
    return f"{side}:{moment.module or 'model'}:{moment.event.path.split('.')[1]}"


def _operation_name(moment: Moment) -> str:
    event = moment.event
    where = event.path or "model"
    again = f" #{event.call + 1}" if event.call else ""
    # Checkpointing runs modules again in the backward pass.
    forward = "R" if moment.backward else "F"
    side = forward if event.kind in (ENTER, LEAVE, AGAIN) else "B"
    if event == Event(LEAVE, "", 0):
        return "F:loss"
    relation = {LEAVE: "after ", INPUT: "before ", OUTPUT: "", ENTER: "", END: "after "}
    relation |= {AGAIN: "", RESUME: "with "}
    return f"{side}:{relation[event.kind]}{where}{again}"


@dataclass
class Group:
    """Storages that become one tensor."""

    uses: tuple[int, ...]  # Of the tensor
    evictable: bool  # Whether it may leave
    size: int = 0  # Bytes of all of them
    lives: list[Life] = field(default_factory=list)  # The life of each storage
    name: str = ""  # Name of the tensor
