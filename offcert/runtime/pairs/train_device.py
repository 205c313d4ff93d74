"""Where training is compared: on the CPU, on a simulated device, on CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.questions.schedule.problem import Problem
from offcert.runtime.device.cuda import CudaDevice, cuda_device, versions
from offcert.runtime.device.interface import Device
from offcert.runtime.simulated import Policy, SimulatedDevice
from offcert.runtime.watch.hooks import require_cpu


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
    if host not in list(HostKind):
        known = ", ".join(HostKind)
        raise InputError(f"host must be one of {known}, not {short_repr(host)}")
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

    def empty_cache(self) -> None:
        """Give back to the device what its allocator has taken for nobody."""
        if self.is_real:
            torch.cuda.empty_cache()

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
    if asked not in list(DeviceKind):
        known = ", ".join(DeviceKind)
        raise InputError(f"device must be one of {known}, not {short_repr(asked)}")
    on = cuda_device(model, timed=True) if asked in (DeviceKind.AUTO, DeviceKind.CUDA) else None
    if asked == DeviceKind.CUDA and on is None:
        on = CudaDevice(timed=True)
    if on is not None:
        return TrainDevice(DeviceKind.CUDA, on, on.tensors)
    require_cpu(model)
    cpu = torch.device("cpu")
    if asked != DeviceKind.SIMULATED:
        return TrainDevice(DeviceKind.CPU, None, cpu)
    simulated = SimulatedDevice.of(
        problem.platform,
        # Otherwise nobody tells it which memory operators take.
        memory=problem.platform.memory if count else None,
        # The limit is one of bytes; how an allocator's blocks lie is another question.
        policy=Policy.IDEAL,
        strict=True,
    )
    return TrainDevice(DeviceKind.SIMULATED, simulated, cpu)


def _given(device: Device, model: nn.Module) -> TrainDevice:
    real = device.tensors.type == "cuda"
    if not real:
        require_cpu(model)
    kind = DeviceKind.CUDA if real else DeviceKind.SIMULATED
    return TrainDevice(kind, device, device.tensors)
