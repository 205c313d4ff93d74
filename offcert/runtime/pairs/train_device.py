"""Where training is compared: on the CPU, on CUDA, on a simulated device, behind the host at hand.

A simulated device takes its time from the problem, the host its own from a clock: what PyTorch, the
hooks and whatever carries the plan out need of a processor here, without the kernels
(`offcert.runtime.simulated.RealHost`).
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.forms import member
from offcert.core.platform import Kind, Platform
from offcert.questions.schedule.carried import launch_times
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.cuda import CudaDevice, cuda_device, versions
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.offload import Offload
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.plan.timetable import Act
from offcert.runtime.simulated import RealHost, SimulatedDevice
from offcert.runtime.streaming.step_events import forecast
from offcert.runtime.watch.hooks import require_cpu

# Steps before those that count, in which what runs again is rehearsed, and those that count.
# Arbitrary.
WARMING, COUNTED = 4, 5


@dataclass(frozen=True)
class HostedStep:
    """One way to take a step, in nanoseconds; medians.

    `time` passes until the device has done all; the `host` worked to hand it over, of which all but
    the launches of `operators` is `python`, measured here.
    """

    time: int
    host: int
    python: int
    operators: int


@dataclass(frozen=True)
class Hosted:
    """A plain step and one by a plan behind the host at hand.

    Nanoseconds: `alone` takes the planned step if the host takes no time; `forecast` is forecast
    with the launch times that the problem knows; `launch` is said to take an operator's launch,
    which is `recorded` if that follows from what the problem's machine took for a plain step.
    """

    plain: HostedStep
    planned: HostedStep
    alone: int
    forecast: int | None
    launch: int
    recorded: bool

    @property
    def idle(self) -> int:
        """Nanoseconds of the planned step for which the device waits for its host."""
        return max(0, self.planned.time - self.alone)


class HostedSteps:
    """Takes steps on a simulated device with the rates of a platform, behind a host.

    Steps may be taken with smaller inputs than a plan is for: as operations take the times of their
    problem, transfers take those of its tensors.
    """

    def __init__(self, platform: Platform, host: RealHost) -> None:
        self.host = host
        self._sizes: dict[Kind, tuple[int, ...]] = dict.fromkeys(Kind, ())
        self._coming = {kind: iter(self._sizes[kind]) for kind in Kind}
        self.device = SimulatedDevice(platform, host=host, size_of=self._size_of)

    def _size_of(self, kind: Kind, size: int) -> int:
        """Return the bytes of the plan's next transfer in a direction, if it has one."""
        return next(self._coming[kind], size)

    def plain(self, step: TrainingStep, durations: tuple[int, ...]) -> HostedStep:
        """Take a step without a plan, whose operations the host hands over evenly."""
        return self._taken(step, durations)

    def planned(
        self, step: TrainingStep, plan: StepPlan, options: FollowOptions | None = None
    ) -> tuple[HostedStep, Offload]:
        """Take a step by a plan; what the offload context found comes with it."""
        asked = replace(options or FollowOptions(), count=False, device=self.device)
        context = Offload(step.model, [plan], asked)
        durations = plan.trace.durations if plan.moves_nothing else ()
        self._sizes = _sizes_of(plan)
        with context:
            found = self._taken(step, durations)
        return found, context

    def _taken(self, step: TrainingStep, durations: tuple[int, ...]) -> HostedStep:
        taken = []
        with _no_collector():
            for _ in range(WARMING + COUNTED):
                taken.append(self._once(step, durations))
                # Where inputs are small it costs little, and is no work of a step.
                gc.collect()
        columns = zip(*taken[WARMING:], strict=True)
        return HostedStep(*(round(statistics.median(column)) for column in columns))

    def _once(self, step: TrainingStep, durations: tuple[int, ...]) -> tuple[int, int, int, int]:
        device, host = self.device, self.host
        batch = step.make_batch()
        self._coming = {kind: iter(sizes) for kind, sizes in self._sizes.items()}
        step.model.zero_grad()
        with host:
            before = host.now(), host.python, host.operators
            device.ran()
            begun = device.compute.record()
            step.execute(batch)
            device.ran(*durations)
            end = device.compute.record()
            worked, python, operators = (
                now - then
                for now, then in zip((host.now(), host.python, host.operators), before, strict=True)
            )
        device.synchronise()
        return device.nanoseconds(begun, end), worked, python, operators


def _sizes_of(plan: StepPlan) -> dict[Kind, tuple[int, ...]]:
    """Return the bytes of a plan's transfers, in the order in which they are handed over."""
    assert plan.timetable is not None
    acts = {Kind.OFFLOAD: Act.COPY_OUT, Kind.PREFETCH: Act.CLAIM}
    gaps = {kind: plan.timetable.gaps(act) for kind, act in acts.items()}
    return {kind: tuple(map(plan.trace.gap_size, found)) for kind, found in gaps.items()}


@contextmanager
def _no_collector() -> Iterator[None]:
    """Let no garbage be collected in a block: it falls on any step."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def hosted(
    problem: Problem,
    execution: Execution | None,
    step: TrainingStep,
    plan: StepPlan,
    options: FollowOptions | None = None,
) -> Hosted:
    """Take steps without a plan and by one, behind the host at hand.

    The problem knows, if it was measured, how long its host took for a step. The step is on the
    CPU, and its model is trained on; the plan has a timetable.
    """
    assert plan.timetable is not None
    host = RealHost()
    steps = HostedSteps(problem.platform, host)
    durations = problem.plain().trace.durations
    plain = steps.plain(step, durations)
    known = launch_times(problem)
    if known is not None:
        host.recorded(sum(known), plain.python, plain.operators)
        plain = steps.plain(step, durations)
    planned, _ = steps.planned(step, plan, options)
    launches = launch_times(problem, execution)
    with_host = None
    if launches is not None:
        with_host = forecast(plan.problem, plan.timetable, launches=launches).makespan
    alone = forecast(plan.problem, plan.timetable).makespan
    return Hosted(plain, planned, alone, with_host, host.launch, known is not None)


class DeviceKind(StrEnum):
    """The kinds of devices that `train` may be asked for."""

    AUTO = "auto"
    CPU = "cpu"
    SIMULATED = "simulated"
    CUDA = "cuda"


class HostKind(StrEnum):
    """The hosts that a simulated device may have."""

    NONE = "none"
    REAL = "real"


def require_host(host: str, device: object) -> None:
    """Raise an `InputError` if there is no such host, or a device that has its own."""
    member(HostKind, host, "host")
    if host == HostKind.REAL and device != DeviceKind.SIMULATED:
        asked = device if isinstance(device, str) else "a device of one's own"
        raise InputError(f"host {host} is for the device {DeviceKind.SIMULATED}, not for {asked}")


@dataclass(frozen=True)
class TrainDevice:
    """Where a plan is carried out: ``"cpu"``, ``"simulated"`` or ``"cuda"``.

    `streams` is the device whose streams copy, None where tensors move at once; `tensors` where the
    model trains.
    """

    kind: str
    streams: Device | None
    tensors: torch.device

    @property
    def name(self) -> str:
        """For people."""
        return "cpu" if self.streams is None else self.streams.name

    @property
    def is_real(self) -> bool:
        """Whether streams take their own time."""
        return self.kind == DeviceKind.CUDA

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the software that measurements depend on."""
        known: dict[str, Any] = {"torch": torch.__version__}
        if self.is_real:
            known |= {name: found for name, found in versions(self.tensors).items() if found}
        return {name: str(found) for name, found in known.items()}

    def synchronise(self) -> None:
        """Wait until all is done."""
        if self.is_real and self.streams is not None:
            self.streams.synchronise()


def train_device(
    asked: str | Device, model: nn.Module, problem: Problem, *, count: bool
) -> TrainDevice:
    """Return the device on which a model is to be trained under a plan.

    One of `DeviceKind` is asked for; ``"auto"`` is where the model is. A simulated device has the
    problem's platform; if live bytes are counted, the problem's memory, and not a byte more. If
    there is no such device, or the model is somewhere else, an `InputError` says so.
    """
    if not isinstance(asked, str):
        return _given(asked, model)
    member(DeviceKind, asked, "device")
    on = cuda_device(model, timed=True) if asked in (DeviceKind.AUTO, DeviceKind.CUDA) else None
    if asked == DeviceKind.CUDA and on is None:
        on = CudaDevice(timed=True)
    if on is not None:
        return TrainDevice(DeviceKind.CUDA, on, on.tensors)
    require_cpu(model)
    cpu = torch.device("cpu")
    if asked != DeviceKind.SIMULATED:
        return TrainDevice(DeviceKind.CPU, None, cpu)
    simulated = SimulatedDevice(
        problem.platform,
        # Otherwise nobody tells it which memory operators take.
        memory=problem.platform.memory if count else None,
        strict=True,
    )
    return TrainDevice(DeviceKind.SIMULATED, simulated, cpu)


def _given(device: Device, model: nn.Module) -> TrainDevice:
    real = device.tensors.type == "cuda"
    if not real:
        require_cpu(model)
    kind = DeviceKind.CUDA if real else DeviceKind.SIMULATED
    return TrainDevice(kind, device, device.tensors)
