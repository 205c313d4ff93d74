"""States of PyTorch's random generators: of the CPU, and of the devices of some tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class GeneratorStates:
    """The states of random number generators: they decide which numbers come next.

    Attributes
    ----------
    cpu : torch.Tensor
        State of the generator of the CPU.
    others : tuple of (device, tensor)
        States of the generators of other devices.
    """

    cpu: torch.Tensor
    others: tuple[tuple[torch.device, torch.Tensor], ...] = ()

    @classmethod
    def of(cls, devices: Iterable[torch.device]) -> GeneratorStates:
        """Return the states with which something begins that computes on some devices."""
        found = {device: device_module(device) for device in devices}
        return cls(
            torch.get_rng_state(),
            tuple((d, m.get_rng_state(d)) for d, m in found.items() if m is not None),
        )

    def put(self) -> None:
        """Let the same random numbers come next."""
        torch.set_rng_state(self.cpu)
        for device, state in self.others:
            device_module(device).set_rng_state(state, device)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Let the same random numbers come in the block; afterwards go on as without it."""
        before = self.of(device for device, _ in self.others)
        try:
            self.put()
            yield
        finally:
            before.put()


def device_module(device: torch.device) -> Any:
    """Return PyTorch's module of a device that has a random generator of its own, or None."""
    if device.type in ("cpu", "meta"):
        return None
    module = torch.get_device_module(device.type)
    begun = getattr(module, "is_initialized", lambda: True)
    return module if hasattr(module, "get_rng_state") and begun() else None
