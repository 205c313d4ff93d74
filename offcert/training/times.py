"""Times of the operations of a step of the user's training."""

from __future__ import annotations

from typing import Any

from offcert.runtime.capture import Capture
from offcert.runtime.device.cuda import cuda_device
from offcert.runtime.device.interface import Event as DeviceEvent
from offcert.runtime.events import END, Event, Session
from offcert.runtime.hooks import Hooks
from offcert.runtime.stopwatch import Stopwatch


class StepTimes(Session):
    """Marks the time at every tick of a capture, in a step of the user's training."""

    def __init__(self, hooks: Hooks, capture: Capture) -> None:
        super().__init__(hooks)
        self.calls_made = 0
        self._ticks = capture.ticks
        self._numbers = {event: number for number, event in enumerate(capture.ticks)}
        self._passes = capture.backward_passes
        # Not the device of the plans, which may be a simulated one: its time is that of plans.
        self._watch = Stopwatch(cuda_device(hooks.root, timed=True))
        self._marks: list[int | DeviceEvent] = []
        self._wrong = False

    @property
    def complete(self) -> bool:
        """Whether every operation has begun, in order, and the last one has ended."""
        return not self._wrong and len(self._marks) == len(self._ticks) + 1

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session:
        """Go on with the step, which may call the model several times."""
        self.calls_made += 1
        return self

    def left(self, session: Session, output: Any) -> None:
        """Nothing has been entered."""

    def wants(self, event: Event) -> bool:
        """Whether the event is a tick; the model's own tell that a backward pass runs."""
        return event in self._numbers or not event.path

    def tick(self, event: Event) -> None:
        """Mark the time if an operation begins, or the last one ends."""
        number = self._numbers.get(event)
        if number is not None:
            self._wrong |= number != len(self._marks)
            self._marks.append(self._watch.mark())
        elif event.kind == END and event.call + 1 == self._passes:
            self._wrong |= len(self._marks) != len(self._ticks)
            self._marks.append(self._watch.mark())

    def durations(self) -> list[int]:
        """Return the nanoseconds of every operation."""
        return self._watch.between(self._marks)
