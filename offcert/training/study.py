"""A study of one kind of step while the user trains."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture import Capture, Clock
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.capture.run import batch_bytes, captured
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.cuda import cuda_device
from offcert.runtime.device.interface import Event as DeviceEvent
from offcert.runtime.follow.kinds import Attributes
from offcert.runtime.hardware.measurement import measured, retimed
from offcert.runtime.watch.events import END, Event, Session
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.signature import Signature
from offcert.runtime.workloads.turns import Stopwatch
from offcert.training.planner import Planner


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


# Steps that are timed for a plan. Arbitrary.
_TIMED = 3


class Study:
    """Finds out what a plan for one kind of step needs: a recording, then times."""

    def __init__(self, root: nn.Module, call: Signature, timed: bool, begun: Attributes) -> None:
        self.call = call
        self.begun = begun
        self.tries = 0
        self.broken: str | None = None
        # What the recorded step was: nothing yet, or it has been looked at.
        self.capture: Capture | None = None
        self.recorded = False
        self.session: Recorder | StepTimes
        self._root = root
        self._timed = timed
        self._watching: ExitStack | None = None
        self._batch = 0
        self._times: list[list[int]] = []

    @property
    def under_way(self) -> bool:
        """Whether the backward pass of the step that is being studied is still to end."""
        inside = torch._C._current_graph_task_id() != -1
        return inside or (self.session.calls_made > 0 and self.session.backward_passes == 0)

    def begin(
        self, hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any], planner: Planner
    ) -> Session | None:
        """Study the step that begins."""
        self.tries += 1
        if self.capture is not None:
            self.session = StepTimes(hooks, self.capture)
            return self.session.begin(args, kwargs)
        self._batch = batch_bytes((args, kwargs))
        self.session = Recorder(hooks, planner.hardware)
        with ExitStack() as stack:
            stack.enter_context(self.session.active())
            self._watching = stack.pop_all()
        return self.session.begin(args, kwargs)

    @property
    def oddity(self) -> str | None:
        """In what the recorded step was odd: calls of the model that no gradient came to."""
        if not isinstance(self.session, Recorder) or not self.session.abandoned:
            return None
        return repr((self.session.calls, self.session.abandoned))

    def fail(self, reason: str) -> None:
        """Take note that something has gone wrong with it: it watches no more."""
        self.broken = self.broken or reason
        if isinstance(self.session, Recorder):
            self.session.tracker.stop()

    def conclude(self, planner: Planner) -> Problem | None:
        """Return the problem if everything is known, or None."""
        if isinstance(self.session, Recorder):
            self.abandon()
            self.session.finish()
            if self.session.elsewhere:
                raise InputError("its backward pass runs in another thread than its forward pass")
            if self.session.backward_passes:
                step = TrainingStep(self._root, lambda model, batch: None)
                self.capture = captured(step, self.session, Clock.MODULES, "real", self._batch)
                if self._timed:
                    # Not only after the steps that are timed.
                    planner.require_possible(self.capture, type(self._root).__name__)
        elif self.session.complete:
            self._times.append(self.session.durations())
        if self.capture is None:
            return None
        name = type(self._root).__name__
        if not self._timed:
            return planner.problem_of(self.capture, None, name)
        if len(self._times) < _TIMED:
            return None
        durations = [round(statistics.median(times)) for times in zip(*self._times, strict=True)]
        capture = replace(self.capture, trace=retimed(self.capture.trace, durations))
        device = next((p.device for p in self._root.parameters()), torch.device("cpu"))
        return planner.problem_of(capture, measured(capture.trace, device), name)

    def abandon(self) -> None:
        """Stop watching operators."""
        watching, self._watching = self._watching, None
        if watching is not None:
            assert isinstance(self.session, Recorder)
            self.session.tracker.stop()
            watching.close()
