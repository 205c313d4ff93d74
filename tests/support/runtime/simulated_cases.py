"""Devices and copies for the tests of the simulated device."""

from collections.abc import Iterable
from typing import Any

import torch

from offcert.runtime.device.interface import Arena, CopiedStorage
from offcert.runtime.simulated import SimulatedDevice

POISON = 0xFF


def device_with(**options: Any) -> SimulatedDevice:
    return SimulatedDevice(**options)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return all bytes of a tensor's storage."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def part(tensor: torch.Tensor, arena: Arena, offset: int = 0) -> CopiedStorage:
    return CopiedStorage(whole(tensor), arena, offset)


def counting(size: int) -> torch.Tensor:
    """Return bytes of which none is poison, nor all alike."""
    return torch.arange(size, dtype=torch.int64).remainder(251).to(torch.uint8)


def is_poison(tensor: torch.Tensor) -> bool:
    return bool((tensor == POISON).all())


def send(device: SimulatedDevice, tensor: torch.Tensor, arena: Arena, offset: int = 0) -> Any:
    """Copy a tensor out as an engine should, but for the wait of compute; return the event."""
    device.out.wait(device.compute.record())
    device.copy_out([part(tensor, arena, offset)])
    return device.out.record()


def fetch(
    device: SimulatedDevice, size: int, arena: Arena, offset: int = 0, after: Iterable[Any] = ()
) -> tuple[torch.Tensor, Any]:
    """Copy bytes back into new ones; likewise."""
    data = device.allocate(size)
    for event in (device.compute.record(), *after):
        device.back.wait(event)
    device.copy_back([CopiedStorage(data, arena, offset)])
    return data, device.back.record()
