"""States of PyTorch's random generators: of the CPU, and of one other device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class GeneratorStates:
    """What random numbers come next.

    Attributes
    ----------
    cpu : torch.Tensor
        State of the generator of the CPU.
    device : torch.device or None
        Another device that has a generator.
    other : torch.Tensor or None
        Its state.
    """

    cpu: torch.Tensor
    device: torch.device | None
    other: torch.Tensor | None

    @classmethod
    def now(cls, device: torch.device) -> GeneratorStates:
        """Return the states with which something on a device begins."""
        module = _module(device)
        if module is None:
            return cls(torch.get_rng_state(), None, None)
        return cls(torch.get_rng_state(), device, module.get_rng_state(device))

    def put(self) -> None:
        """Let the same random numbers come next."""
        torch.set_rng_state(self.cpu)
        if self.device is not None:
            _module(self.device).set_rng_state(self.other, self.device)

    @classmethod
    @contextmanager
    def kept(cls, device: torch.device) -> Iterator[None]:
        """Leave the generators as they were before the block."""
        before = cls.now(device)
        try:
            yield
        finally:
            before.put()


def _module(device: torch.device) -> Any:
    """Return what PyTorch has for the generator of a device that is in use, or None."""
    if device.type in ("cpu", "meta"):
        return None
    module = torch.get_device_module(device.type)
    begun = getattr(module, "is_initialized", lambda: True)
    return module if hasattr(module, "get_rng_state") and begun() else None
