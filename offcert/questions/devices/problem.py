"""`DevicesProblem`: one training step, data-parallel, on several devices that share a link.

Its files have the format ``offcert-devices-problem``, version 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from offcert.core.documents import Fields, read_document, require_format, write_json
from offcert.core.errors import InputError
from offcert.core.forms import TEXT, Integer, Member, Object, Rational, Record
from offcert.core.list_forms import Each
from offcert.core.messages import cut, short_repr
from offcert.core.platform import Kind
from offcert.core.trace import LARGEST_TOTAL, require_integer
from offcert.questions.schedule.files import problem_from_json, problem_to_json
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers


class AdditionPlace(StrEnum):
    """Where gradients are added up, and with it when.

    ``HOST``: by the host, during the step (moDNN, §6.2). ``DEVICE``: by the first device, after all
    devices have ended their last operation (moDNN's naive accumulation, §6.1 and §7.5).
    """

    HOST = "host"
    DEVICE = "device"


@dataclass(frozen=True)
class Accumulation:
    """The place where gradients are added up, and the rate of it.

    Parameters
    ----------
    place : AdditionPlace or str
        Where.
    rate : Fraction
        Bytes of gradient per tick that one core of the host (or the first device) adds to the
        weights; more than 0.
    cores : int
        How many additions the host makes at a time; always 1 on a device.

    Raises
    ------
    InputError
        If a value is out of its range.
    """

    place: AdditionPlace
    rate: Fraction
    cores: int = 1

    def __post_init__(self) -> None:
        if self.place not in tuple(AdditionPlace):
            raise InputError(f'place must be "host" or "device", not {short_repr(self.place)}')
        object.__setattr__(self, "place", AdditionPlace(self.place))
        if not isinstance(self.rate, int | Fraction) or isinstance(self.rate, bool):
            raise InputError(f"rate must be a rational, not {short_repr(self.rate)}")
        if self.rate <= 0:
            raise InputError(f"rate must be more than 0, not {cut(str(self.rate))}")
        object.__setattr__(self, "rate", Fraction(self.rate))
        require_integer(self.cores, "cores", 1)
        if self.place is AdditionPlace.DEVICE and self.cores != 1:
            raise InputError(f"cores must be 1 on a device, not {self.cores}")

    def ticks(self, size: int) -> int:
        """Return the ticks that adding `size` bytes takes, rounded up by definition."""
        return -(-size * self.rate.denominator // self.rate.numerator)


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of one layer's weights, which is as large as these.

    Attributes
    ----------
    name : str
        Name for people.
    size : int
        Bytes, at least 1. Weights and gradients stay on the device: they are part of what the trace
        holds, or of what it does not count.
    ready : int
        The operation at whose end the gradient is complete.
    last_use : int
        The operation at whose end the weights are not needed any more in this step.
    """

    name: str
    size: int
    ready: int
    last_use: int


class JobKind(StrEnum):
    """The kinds of work on a gradient or on weights, beside the operations of the step.

    ``SEND``: a gradient from its device to the host. ``FORWARD``: from there to the first device.
    ``ADD``: a gradient is added to the weights. ``COLLECT``: new weights from the first device to
    the host. ``RETURN``: new weights from the host to a device.
    """

    SEND = "send"
    FORWARD = "forward"
    ADD = "add"
    COLLECT = "collect"
    RETURN = "return"

    @property
    def direction(self) -> Kind | None:
        """The direction in which it uses the link; None for an addition."""
        if self in (JobKind.SEND, JobKind.COLLECT):
            return Kind.OFFLOAD
        return None if self is JobKind.ADD else Kind.PREFETCH


@dataclass(frozen=True, slots=True)
class GradientJob:
    """One transfer or addition of one gradient."""

    kind: JobKind
    gradient: int  # Index into ``problem.gradients``.
    device: int  # The device whose gradient it is, or that gets the weights. 0 for ``COLLECT``.

    def __str__(self) -> str:
        return f"the {self.kind} of gradient {self.gradient} of device {self.device}"


@dataclass(frozen=True)
class DevicesProblem:
    """Find the shortest step on `devices` equal devices that share one link to their host.

    Every device runs the same trace, on its part of the batch, within its own memory. All their
    transfers, of activations, gradients and weights, share the link: one transfer at a time, or one
    in each direction. The step ends when every operation has ended and every device has the new
    weights.

    Parameters
    ----------
    name : str
        Name for people.
    step : Problem
        The step of one device, its memory, and the link; with atomic transfers.
    devices : int
        At least 1; one device has nothing to exchange.
    gradients : sequence of Gradient
        At least one.
    accumulation : Accumulation
        Who adds up.

    Raises
    ------
    InputError
        If a value is out of its range or does not fit the step.
    """

    name: str
    step: Problem
    devices: int
    gradients: Sequence[Gradient]
    accumulation: Accumulation

    def __post_init__(self) -> None:
        object.__setattr__(self, "gradients", tuple(self.gradients))
        if not isinstance(self.name, str):
            raise InputError(f"name must be a string, not {short_repr(self.name)}")
        step = self.step
        if not isinstance(step, Problem):
            raise InputError(f"step must be a Problem, not {short_repr(step)}")
        if step.transfers is not Transfers.ATOMIC:
            raise InputError(f"step.transfers must be atomic, not {step.transfers}")
        if step.platform.slows:
            raise InputError("step must have one rate a direction: several devices' links differ")
        if step.recompute is not Recompute.NONE or step.minimise is not Minimise.TIME:
            raise InputError("step must be a problem in which everything runs once, in least time")
        require_integer(self.devices, "devices", 1)
        if not isinstance(self.accumulation, Accumulation):
            raise InputError(
                f"accumulation must be an Accumulation, not {short_repr(self.accumulation)}"
            )
        if not self.gradients:
            raise InputError("gradients must not be empty")
        for index, gradient in enumerate(self.gradients):
            self._validate_gradient(gradient, f"gradients[{index}]")
        self._validate_totals()

    def _validate_gradient(self, gradient: Gradient, place: str) -> None:
        if not isinstance(gradient, Gradient):
            raise InputError(f"{place} must be a Gradient, not {short_repr(gradient)}")
        require_integer(gradient.size, f"{place}.size", 1)
        for field in ("ready", "last_use"):
            operation = require_integer(getattr(gradient, field), f"{place}.{field}", 0)
            if operation >= len(self.step.trace):
                raise InputError(
                    f"{place}.{field} must be below the number of operations, "
                    f"{len(self.step.trace)}, not {operation}"
                )

    def _validate_totals(self) -> None:
        if self.devices >= LARGEST_TOTAL:
            raise InputError(f"devices must be less than 2**61, not {self.devices}")
        trace, platform = self.step.trace, self.step.platform
        once = trace.compute_time + sum(
            platform.transfer_time(size, kind) for size in trace.gap_sizes for kind in Kind
        )
        for each in self.gradients:
            once += 2 * sum(platform.transfer_time(each.size, kind) for kind in Kind)
            once += self.accumulation.ticks(each.size)
        if self.devices * once >= LARGEST_TOTAL:
            raise InputError(
                f"all operations and transfers of {self.devices} devices must take less than "
                f"2**61 ticks, not {self.devices * once}"
            )

    def __repr__(self) -> str:
        return (
            f"<DevicesProblem {cut(self.name)}: {self.devices} devices, {len(self.step.trace)} "
            f"operations each, {len(self.gradients)} gradients, accumulated by the "
            f"{self.accumulation.place}>"
        )

    def with_devices(self, devices: int) -> DevicesProblem:
        """Return the same step on another number of devices, each with as much to do as before."""
        return replace(self, devices=devices)

    def with_accumulation(self, accumulation: Accumulation) -> DevicesProblem:
        """Return the same step with another way to add up."""
        return replace(self, accumulation=accumulation)

    @cached_property
    def jobs(self) -> tuple[GradientJob, ...]:
        """All jobs, by gradient."""
        return tuple(
            job for gradient in range(len(self.gradients)) for job in self.jobs_of(gradient)
        )

    def jobs_of(self, gradient: int) -> tuple[GradientJob, ...]:
        """Return the jobs of one gradient in an order in which they could be done."""
        count = self.devices
        if count == 1:
            return ()
        if self.accumulation.place is AdditionPlace.HOST:
            kinds = (JobKind.SEND, JobKind.ADD, JobKind.RETURN)
            return tuple(
                GradientJob(kind, gradient, device) for kind in kinds for device in range(count)
            )
        others = range(1, count)
        return (
            *(GradientJob(JobKind.SEND, gradient, device) for device in others),
            *(GradientJob(JobKind.FORWARD, gradient, device) for device in others),
            *(GradientJob(JobKind.ADD, gradient, device) for device in range(count)),
            GradientJob(JobKind.COLLECT, gradient, 0),
            *(GradientJob(JobKind.RETURN, gradient, device) for device in others),
        )

    def ticks(self, job: GradientJob) -> int:
        """Return the ticks that a job takes."""
        size = self.gradients[job.gradient].size
        direction = job.kind.direction
        if direction is None:
            return self.accumulation.ticks(size)
        return self.step.platform.transfer_time(size, direction)


DEVICES_FORMAT = "offcert-devices-problem"
# The version of the format. By definition.
DEVICES_VERSION = 1


_REST: Record[Any] = Record(
    dict,
    name=TEXT,
    devices=Integer(1),
    gradients=Each(
        Object(Record(Gradient, name=TEXT, size=Integer(1), ready=Integer(0), last_use=Integer(0)))
    ),
    accumulation=Object(
        Record(Accumulation, place=Member(AdditionPlace), rate=Rational(), cores=Integer(1))
    ),
)


def devices_to_json(problem: DevicesProblem) -> dict[str, Any]:
    """Return a problem as a JSON value (format ``offcert-devices-problem``, version 1)."""
    return {
        "format": DEVICES_FORMAT,
        "version": DEVICES_VERSION,
        "step": problem_to_json(problem.step),
        **_REST.write(problem),
    }


def devices_from_json(document: Any, place: str = "") -> DevicesProblem:
    """Return the problem that a JSON value describes."""
    fields = Fields(document, place)
    require_format(fields, DEVICES_FORMAT, DEVICES_VERSION)
    step = problem_from_json(fields.get("step", dict), fields.path("step"))
    problem = DevicesProblem(step=step, **_REST.values(fields))
    fields.finish()
    return problem


def read_devices_problem(path: str | Path) -> DevicesProblem:
    """Return the problem in a file.

    Raises
    ------
    InputError
        If the file cannot be read or does not describe a problem on several devices.
    """
    return read_document(path, devices_from_json)


def write_devices_problem(path: str | Path, problem: DevicesProblem) -> None:
    """Write a problem to a file, through a temporary one."""
    write_json(path, devices_to_json(problem))
