"""Times the operations of a captured step on the device at hand, by its clock alone.

Nothing watches operators: a dispatch mode takes longer than many of them do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.core.trace import Trace
from offcert.questions.schedule.plan import Plan
from offcert.runtime.capture.borrowed import Originals, borrowed
from offcert.runtime.capture.capture import Capture, Clock
from offcert.runtime.capture.run import Nobody, borrowing
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.cuda import cuda_device
from offcert.runtime.device.interface import Device, DeviceEvent, MemoryReading
from offcert.runtime.hardware.bandwidth import retimed, spread_of
from offcert.runtime.plan.predict import predict
from offcert.runtime.profiling.kernels import Timed, mark, times_by_kernels
from offcert.runtime.simulated.host import RealHost
from offcert.runtime.streaming.step_events import Mark, Stopwatch
from offcert.runtime.watch.events import END, Event, Session
from offcert.runtime.watch.hooks import Hooks, unwrap

# Nanoseconds for which a device is held before a step, at most. Arbitrary.
_LONGEST_HOLD = 10**9
# Steps of which kernels are asked for their times, at most: a profile is large. Arbitrary.
_PROFILED = 3


class RepeatedStep:
    """A captured step that is run again and again, each time from the same state."""

    def __init__(self, step: TrainingStep, capture: Capture, device: Device | None = None) -> None:
        if capture.clock is not Clock.MODULES:
            raise InputError(
                f"times cannot be measured with the clock {capture.clock}: what watches single "
                "operators takes longer than many of them; use the clock modules or a hardware "
                "model"
            )
        self.capture = capture
        self.device = cuda_device(step.model, timed=True) if device is None else device
        self.watch = Stopwatch(self.device)
        self.host = _host_of(self.device)
        self._step = step
        self._originals = Originals()
        with memory_enough(), borrowed(*borrowing(step)), self._originals:
            # What the step changes is known from here on.
            step.execute(step.make_batch())

    def run(self, *, allocator: bool = False, hold: int = 0, marked: bool = False) -> Timing:
        """Run the step once; nothing waits for its end.

        The `allocator` may be asked at each mark, the device waits for `hold` nanoseconds before
        the step begins, and a profile is told where operations begin if the step is `marked`.
        """
        hooks = Hooks(unwrap(self._step.model), Nobody())
        gradients = self._gradients if allocator else None
        now = time.perf_counter_ns if self.host is None else self.host.now
        timing = Timing(hooks, self.capture, self.watch, gradients, now, marked=marked)
        hooks.steps = timing
        try:
            with memory_enough(), borrowed(*borrowing(self._step)):
                batch = self._step.make_batch()
                hooks.attach({event.path for event in self.capture.ticks}.__contains__)
                if hold and self.device is not None:
                    self.device.hold(hold)
                try:
                    with self.host or nullcontext():
                        self._step.execute(batch)
                finally:
                    hooks.detach()
        finally:
            self._originals.restore()
        timing.require_complete()
        return timing

    def _gradients(self) -> int:
        found = (parameter.grad for parameter in self._step.model.parameters())
        return sum(each.numel() * each.element_size() for each in found if each is not None)

    def timed(self, repetitions: int) -> Timed:
        """Return the median times of some runs, after one that warms up, or two on a device.

        Where an event between two operations comes before the host has handed over what follows, it
        measures the host. On CUDA kernels are asked for their times, if the profiler sees them.
        Otherwise a device that runs while the host goes on is held before each run for as long as
        the host took for one: then the host is ahead of it wherever it can be.
        """
        warm = [self.run() for _ in range(1 if self.device is None else 2)]
        # Twice as long, since a run may take the host longer than the one before.
        ahead = min(_LONGEST_HOLD, 2 * warm[-1].host_ns)
        runs = [self.run(hold=ahead) for _ in range(repetitions)]
        loose = self._loose(repetitions) or runs
        launches = _medians([run.launches() for run in loose])
        step = self._plain(repetitions) or round(
            statistics.median(sum(run.durations()) for run in loose)
        )
        seen = self._by_kernels(repetitions)
        kernels = seen is not None
        samples = [run.durations() for run in runs] if seen is None else seen
        durations = _medians(samples)
        spread = spread_of(samples)
        trace = self.capture.trace
        if self.device is None or not _counts(self.device):
            found = retimed(trace, durations)
            return Timed(found, None, None, spread, launches, step)
        watched = self.run(allocator=True)
        timed = retimed(trace, durations, _workspaces(trace, watched.rises))
        planned = predict(trace, Plan()).at_begin
        resident = max(taken - plan for taken, plan in zip(watched.at_begin, planned, strict=True))
        return Timed(timed, resident, watched.reading, spread, launches, step, kernels)

    def _by_kernels(self, repetitions: int) -> list[list[int]] | None:
        """Return the times of kernels in some runs; None where no profiler sees any."""
        device = self.device
        if device is None or device.tensors.type != "cuda":
            return None

        def run() -> None:
            self.run(marked=True)
            device.synchronise()

        operations = len(self.capture.ticks)
        found = [times_by_kernels(run, operations) for _ in range(min(_PROFILED, repetitions))]
        return None if any(each is None for each in found) else [each or [] for each in found]

    def _loose(self, repetitions: int) -> list[Timing]:
        """Return runs before which the device is not held; none where it cannot be.

        The driver's queue is never so full in them that the host waits for what was held.
        """
        found = []
        for _ in range(repetitions if self.device is not None else 0):
            assert self.device is not None
            self.device.synchronise()
            found.append(self.run())
        return found

    def _plain(self, repetitions: int) -> int:
        """Return the time of the step with nothing between its operations; 0 but on CUDA."""
        device, times = self.device, []
        if device is None or device.tensors.type != "cuda":
            return 0
        for _ in range(repetitions):
            try:
                with memory_enough(), borrowed(*borrowing(self._step)):
                    batch = self._step.make_batch()
                    begun = self.watch.mark()
                    self._step.execute(batch)
                    times += self.watch.between([begun, self.watch.mark()])
            finally:
                self._originals.restore()
        return round(statistics.median(times))


def _medians(samples: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(round(statistics.median(times)) for times in zip(*samples, strict=True))


def _host_of(device: Device | None) -> RealHost | None:
    """Return the host that a simulated device is behind, if it has one."""
    found = getattr(device, "host_clock", None)
    return found if isinstance(found, RealHost) else None


def _counts(device: Device) -> bool:
    """Whether a device's memory is told with what operators take of it."""
    before, size = device.memory().allocated, 2**20
    probe = torch.empty(size, dtype=torch.uint8, device=device.tensors)
    return device.memory().allocated - before >= probe.numel()


def _workspaces(trace: Trace, rises: list[int]) -> list[int]:
    """Return the bytes that each operation takes beyond the tensors that it writes."""
    prediction = predict(trace, Plan())
    return [
        max(0, rise - (peak - operation.workspace - begin))
        for rise, peak, begin, operation in zip(
            rises, prediction.peaks, prediction.at_begin, trace.operations, strict=True
        )
    ]


@contextmanager
def memory_enough() -> Iterator[None]:
    """Raise an `InputError` with advice where a step that moves nothing does not fit."""
    try:
        yield
    except (torch.OutOfMemoryError, InputError) as error:
        if not isinstance(error.__cause__ or error, torch.OutOfMemoryError):
            raise
        raise InputError(
            "the device has too little memory to measure the step, which is done without a plan; "
            "use a smaller batch, or a hardware model"
        ) from error


class Timing(Session):
    """Marks the time at every tick of a capture."""

    def __init__(
        self,
        hooks: Hooks,
        capture: Capture,
        watch: Stopwatch,
        gradients: Callable[[], int] | None = None,
        now: Callable[[], int] = time.perf_counter_ns,
        *,
        marked: bool = False,
    ) -> None:
        super().__init__(hooks)
        self._now = now
        self._marked = marked
        # When operations began, and when the last one ended.
        self.marks: list[Mark] = []
        self.handed: list[int] = []  # When the host was there, by its own clock, in nanoseconds
        # By how much more bytes were allocated in each operation than when it began, without those
        # of the parameters' gradients that are there when it ends, which no trace counts; if asked
        # for.
        self.rises: list[int] = []
        # Bytes that were allocated when each began, without those of the gradients; likewise.
        self.at_begin: list[int] = []
        # At every mark, with the peaks since the one before; if asked for.
        self.readings: list[MemoryReading] = []
        self._capture = capture
        self._watch = watch
        self._gradients = gradients
        self._gradient_bytes = 0
        self._number = {event: number for number, event in enumerate(capture.ticks)}
        self._ended = False
        self._calls_made = 0

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
            if number != len(self.marks):
                name = self._capture.trace.operations[min(number, len(self.marks))].name
                raise InputError(f"{name} did not come when it was due: the steps differ")
            self._mark()
        elif event.kind == END and event.call + 1 == self._capture.backward_passes:
            self._mark()
            self._ended = True

    def _mark(self) -> None:
        device = self._watch.device
        if device is not None and self.marks:
            # A simulated device takes the capture's word for it.
            device.ran(self._capture.trace.operations[len(self.marks) - 1].duration)
        if self._gradients is not None:
            assert device is not None
            reading, gradients = device.memory(), self._gradients()
            if self.readings:
                rise = reading.peak_allocated - self.readings[-1].allocated
                self.rises.append(rise - (gradients - self._gradient_bytes))
            if len(self.marks) < len(self._capture.ticks):
                self.at_begin.append(reading.allocated - gradients)
            self.readings.append(reading)
            self._gradient_bytes = gradients
            device.reset_peaks()
        self.marks.append(self._watch.mark())
        self.handed.append(self._now())
        if self._marked:
            with mark():
                pass

    @property
    def reading(self) -> MemoryReading:
        """The memory at the end, with the peaks of all operations."""
        last = self.readings[-1]
        later: Sequence[MemoryReading] = self.readings[1:]
        return MemoryReading(
            last.allocated,
            last.reserved,
            max(each.peak_allocated for each in later),
            max(each.peak_reserved for each in later),
        )

    @property
    def span(self) -> tuple[DeviceEvent, DeviceEvent]:
        """The events, on a device, with which the first operation begins and the last one ends."""
        first, last = self.marks[0], self.marks[-1]
        assert not isinstance(first, int)
        assert not isinstance(last, int)
        return first, last

    def require_complete(self) -> None:
        """Raise an `InputError` unless every operation has begun and the last one has ended."""
        operations = self._capture.trace.operations
        calls = len(self._capture.calls)
        if self._calls_made != calls:
            raise InputError(
                f"the model was called {self._calls_made} times when the step was timed, {calls} "
                "times when it was captured"
            )
        if not self._ended or len(self.marks) != len(operations) + 1:
            missing = operations[min(len(self.marks), len(operations) - 1)].name
            raise InputError(f"{missing} never began when the step was timed: the steps differ")

    @property
    def host_ns(self) -> int:
        """The nanoseconds from the first mark to the last by the host's clock."""
        return self.handed[-1] - self.handed[0]

    def launches(self) -> list[int]:
        """Return the nanoseconds that the host took to hand over each operation."""
        return [after - before for before, after in pairwise(self.handed)]

    def durations(self) -> list[int]:
        """Return the nanoseconds from each mark to the next."""
        return self._watch.between(self.marks)
