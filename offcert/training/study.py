"""A study of one kind of step while the user trains."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Any

from torch import nn

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture import Capture, Clock, build
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.capture.run import batch_bytes, uncounted_bytes_of
from offcert.runtime.follow.kinds import Attributes
from offcert.runtime.follow.run import StepRun
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.streaming.step_events import Mark, Stopwatch
from offcert.runtime.torch_private import backward_number
from offcert.runtime.watch.events import ENTER, Session
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.signature import Signature, volume
from offcert.training.planner import Planner

# Steps that are timed for a plan, and how much smaller than the captured one they may be, whose
# times are scaled then. Arbitrary.
_TIMED = 3
_SMALLEST = 2
# Steps whose times are not taken while memory of the host is being registered, at most. Arbitrary.
_DISTURBED = 6


class OperationTimes:
    """Times of a captured step's operations, taken of steps that follow a makeshift."""

    def __init__(self, step_plan: StepPlan) -> None:
        self.step_plan = step_plan
        self._rows: list[list[float]] = []
        self._disturbed = 0

    def take(self, run: TimedRun) -> None:
        """Take the times of a step that has ended."""
        if run.disturbed and self._disturbed < _DISTURBED:
            # What is launched waits for the device's lock meanwhile, now and then.
            self._disturbed += 1
            return
        if run.timed and run.share * _SMALLEST >= 1:
            self._rows.append([each / run.share for each in run.durations()])

    @property
    def complete(self) -> bool:
        """Whether enough steps have been timed."""
        return len(self._rows) >= _TIMED

    def durations(self) -> list[int]:
        """Return the median of the nanoseconds of every operation."""
        return [round(statistics.median(each)) for each in zip(*self._rows, strict=True)]


class TimedRun(StepRun):
    """A step under a plan that marks the time around every operation, without what is moved.

    It is `disturbed` if memory of the host was being registered as it began.
    """

    hears_all = True

    def __init__(self, watch: Stopwatch, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._watch = watch
        self._begun: list[Mark] = []
        self._over: list[Mark] = []
        pinning = None if self._mover is None else self._mover.pinning
        self.disturbed = pinning is not None and not pinning.ended

    @property
    def timed(self) -> bool:
        """Whether it has followed its plan to the end."""
        whole = self.deviation is None and not self.left_out
        return whole and len(self._over) == len(self.step_plan.trace) + 1

    @property
    def share(self) -> float:
        """How many elements it is called with, of those of the captured one."""
        if self.smaller is None:
            return 1.0
        return volume(self.smaller) / max(1, volume(self.step_plan.capture.calls[0]))

    def durations(self) -> list[int]:
        """Return the nanoseconds of every operation."""
        pairs = zip(self._begun, self._over[1:], strict=True)
        return [self._watch.between(pair)[0] for pair in pairs]

    def _move(self, operation: int) -> None:
        self._over.append(self._watch.mark())
        super()._move(operation)
        self._begun.append(self._watch.mark())

    def _finish(self) -> None:
        self._over.append(self._watch.mark())
        super()._finish()


class Study:
    """Finds out what a plan for one kind of step needs, by recording one."""

    def __init__(self, root: nn.Module, call: Signature, begun: Attributes) -> None:
        self.call, self.begun = call, begun
        self.tries = 0
        self.broken: str | None = None
        # The capture of the recorded step, once it is made, and whether a step was recorded.
        self.capture: Capture | None = None
        self.recorded = self.concluded = False
        # Of the recorded steps, the problem of the one that did most.
        self.fullest: Problem | None = None
        self.session: Recorder
        self._root = root
        self._watching: ExitStack | None = None
        self._batch = 0

    @property
    def under_way(self) -> bool:
        """Whether the backward pass of the step that is being studied is still to end."""
        inside = backward_number() != -1
        return bool(inside or (self.session.calls and not self.session.backward_passes))

    def begin(
        self,
        hooks: Hooks,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        planner: Planner,
        host: int | None,
    ) -> Session | None:
        """Study the step that begins; within the budget, by a rule that needs no plan."""
        self.tries += 1
        self.concluded = False
        self._batch = batch_bytes((args, kwargs))
        limit = planner.room(self._root, self._batch)
        self.session = Recorder(hooks, planner.rates, limit, host)
        with ExitStack() as stack:
            stack.enter_context(self.session.active())
            self._watching = stack.pop_all()
        return self.session.begin(args, kwargs)

    @property
    def oddity(self) -> str | None:
        """The oddity of the recorded step: calls of the model that no gradient came to."""
        if not self.session.abandoned:
            return None
        return repr((self.session.calls, self.session.abandoned))

    def fail(self, reason: str) -> None:
        """Take note that something has gone wrong with it: it watches no more."""
        self.broken = self.broken or reason
        self.session.tracker.stop()

    def conclude(self, planner: Planner) -> Problem | None:
        """Return the problem of the recorded step; None if no backward pass went through it."""
        self.abandon()
        self.concluded = True
        self.session.finish()
        if self.session.elsewhere:
            raise InputError("its backward pass runs in another thread than its forward pass")
        if not self.session.backward_passes:
            return None
        uncounted = uncounted_bytes_of(self._root, self._batch)
        self.capture = build(self.session, Clock.MODULES, "real", uncounted)
        problem = planner.problem_of(self.capture, type(self._root).__name__)
        if self.fullest is None or len(problem.trace) > len(self.fullest.trace):
            self.fullest = problem
        return problem

    @property
    def whole(self) -> bool:
        """Whether the recorded step called all of a list of modules, of those that are alike.

        Where it did not, another step may do more, and its plan does for both.
        """
        ran = {moment.event.path for moment in self.session.moments if moment.event.kind == ENTER}
        for path, parent in self._root.named_modules():
            if isinstance(parent, nn.ModuleList | nn.ModuleDict | nn.Sequential):
                prefix = f"{path}." if path else ""
                kinds: dict[type[nn.Module], set[bool]] = {}
                for name, child in parent.named_children():
                    kinds.setdefault(type(child), set()).add(f"{prefix}{name}" in ran)
                if any(len(found) > 1 for found in kinds.values()):
                    return False
        return True

    def abandon(self) -> None:
        """Stop watching operators."""
        watching, self._watching = self._watching, None
        if watching is not None:
            self.session.tracker.stop()
            watching.close()
