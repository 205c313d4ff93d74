"""Times the operations of a captured step on the device at hand, by its clock alone.

Nothing watches operators: a dispatch mode takes longer than many of them do.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.core.plan import Plan
from offcert.core.trace import Trace
from offcert.runtime.capture.borrowed import borrowed, random_state_kept
from offcert.runtime.capture.capture import Capture, Clock
from offcert.runtime.capture.originals import Originals
from offcert.runtime.capture.run import Nobody, borrowing
from offcert.runtime.events import END, Event, Session
from offcert.runtime.hooks import Hooks, unwrap
from offcert.runtime.measurement import retimed
from offcert.runtime.predict import predict
from offcert.runtime.standard_step import device_of
from offcert.runtime.step import TrainingStep
from offcert.runtime.stopwatch import Mark, mark, nanoseconds


def timed_trace(step: TrainingStep, capture: Capture, repetitions: int = 5) -> Trace:
    """Return the trace of a captured step with the times of the device that its model is on.

    The step is run as it is, and everything that it changes is put back. Durations are medians in
    nanoseconds. Workspaces are the allocator's on CUDA; on the CPU, which does not tell, they stay
    those of the capture.

    Parameters
    ----------
    step : TrainingStep
        What was captured.
    capture : Capture
        With the clock of modules.
    repetitions : int
        Steps to take the median of, after one to warm up.

    Raises
    ------
    InputError
        If the clock is another one, or the step does not do again what was captured.
    """
    if capture.clock is not Clock.MODULES:
        raise InputError(
            f"times cannot be measured with the clock {capture.clock}: what watches single "
            "operators takes longer than many of them; use the clock modules or a hardware model"
        )
    device = device_of(step.model)
    originals = Originals()
    with _as_it_was(step), originals:
        # What the step changes is known from here on.
        step.execute(step.make_batch())
    samples = [_run(step, capture, device, originals).durations() for _ in range(repetitions)]
    durations = [round(statistics.median(times)) for times in zip(*samples, strict=True)]
    trace = capture.trace
    workspaces = [operation.workspace for operation in trace.operations]
    if device.type == "cuda":
        rises = _run(step, capture, device, originals, allocator=True).rises
        workspaces = _workspaces(trace, rises)
    return retimed(trace, durations, workspaces)


def _workspaces(trace: Trace, rises: list[int]) -> list[int]:
    """Return what an operation takes beyond the tensors that it writes."""
    prediction = predict(trace, Plan())
    return [
        max(0, rise - (peak - operation.workspace - begin))
        for rise, peak, begin, operation in zip(
            rises, prediction.peaks, prediction.at_begin, trace.operations, strict=True
        )
    ]


@contextmanager
def _as_it_was(step: TrainingStep) -> Iterator[None]:
    with random_state_kept(), borrowed(*borrowing(step)):
        yield


def _run(
    step: TrainingStep,
    capture: Capture,
    device: torch.device,
    originals: Originals,
    *,
    allocator: bool = False,
) -> _Timing:
    """Run the step once; always the same one, because all is put back after each."""
    hooks = Hooks(unwrap(step.model), Nobody())
    timing = _Timing(hooks, capture, device, allocator=allocator)
    hooks.steps = timing
    try:
        with _as_it_was(step):
            batch = step.make_batch()
            hooks.attach({event.path for event in capture.ticks}.__contains__)
            try:
                step.execute(batch)
            finally:
                hooks.detach()
    finally:
        originals.restore()
    timing.require_complete()
    return timing


class _Timing(Session):
    """Marks the time at every tick of a capture."""

    def __init__(
        self, hooks: Hooks, capture: Capture, device: torch.device, *, allocator: bool
    ) -> None:
        super().__init__(hooks)
        self._capture = capture
        self._device = device
        self._allocator = allocator
        self._number = {event: number for number, event in enumerate(capture.ticks)}
        self._marks: list[Mark] = []
        self._allocated = 0
        self._ended = False
        self._calls_made = 0
        self.rises: list[int] = []

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Go on with the step, which may call the model several times."""
        if not torch.is_grad_enabled():
            return None
        self._calls_made += 1
        return self

    def left(self, session: Session, output: Any) -> None:
        """Nothing has to be done."""

    def wants(self, event: Event) -> bool:
        """Whether the event is a tick; the model's own tell that a backward pass runs."""
        return event in self._number or not event.path

    def tick(self, event: Event) -> None:
        """Mark the time if an operation begins, or the last one ends."""
        if self._ended:
            return
        number = self._number.get(event)
        if number is not None:
            if number != len(self._marks):
                name = self._capture.trace.operations[min(number, len(self._marks))].name
                raise InputError(f"{name} did not come when it was due: the steps differ")
            self._mark()
        elif event.kind == END and event.call + 1 == self._capture.backward_passes:
            self._mark()
            self._ended = True

    def _mark(self) -> None:
        if self._allocator:
            if self._marks:
                self.rises.append(torch.cuda.max_memory_allocated(self._device) - self._allocated)
            torch.cuda.reset_peak_memory_stats(self._device)
            self._allocated = torch.cuda.memory_allocated(self._device)
        self._marks.append(mark(self._device))

    def require_complete(self) -> None:
        """Raise an `InputError` unless every operation has begun and the last one has ended."""
        operations = self._capture.trace.operations
        calls = len(self._capture.calls)
        if self._calls_made != calls:
            raise InputError(
                f"the model was called {self._calls_made} times when the step was timed, {calls} "
                "times when it was captured"
            )
        if not self._ended or len(self._marks) != len(operations) + 1:
            missing = operations[min(len(self._marks), len(operations) - 1)].name
            raise InputError(f"{missing} never began when the step was timed: the steps differ")

    def durations(self) -> list[int]:
        """Return the nanoseconds from each mark to the next."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        ends = zip(self._marks[:-1], self._marks[1:], strict=True)
        return [nanoseconds(begun, ended) for begun, ended in ends]
