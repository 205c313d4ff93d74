"""`FollowOptions`: how plans are followed, as one value that is checked when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from torch import nn

from offcert.core.errors import InputError
from offcert.core.options import require_count
from offcert.core.units import require_size
from offcert.runtime.device.cuda import cuda_device
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.counting import host_memory_of
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.hooks import unwrap


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """The options of a training under plans; `offcert.training.offload` says what each means."""

    strict: bool = False
    count: bool | None = None
    timed: bool = False
    verify_every: int | None = None
    host_memory: int | str | None = None
    host_spill: bool | str = False
    reserved_memory: int | str | None = None
    directory: str | None = None
    device: Device | None = None

    def __post_init__(self) -> None:
        for name in ("host_memory", "reserved_memory"):
            limit = getattr(self, name)
            if limit is not None:
                object.__setattr__(self, name, int(require_size(limit, name)))
        if self.verify_every is not None:
            require_count(self.verify_every, "verify_every")
        if isinstance(self.host_spill, str) and not Path(self.host_spill).is_dir():
            raise InputError(f"host_spill must be a folder that exists, not {self.host_spill!r}")
        if self.spills and self.host_memory is None:
            raise InputError("host_spill needs host_memory: there is no limit to keep to")

    def on_device_of(self, model: nn.Module) -> Self:
        """Return the options with the CUDA device that a model is on, if none was given."""
        if self.device is not None:
            return self
        return replace(self, device=cuda_device(unwrap(model), timed=self.timed))

    @property
    def host_limit(self) -> int | None:
        """Bytes of the host's memory that copies may take; None for any number."""
        assert not isinstance(self.host_memory, str)
        return self.host_memory

    @property
    def reserved_limit(self) -> int | None:
        """Bytes that the device's allocator may have reserved; None for any number."""
        assert not isinstance(self.reserved_memory, str)
        return self.reserved_memory

    @property
    def spills(self) -> bool:
        """Whether copies that have no room in the host's memory go into a file."""
        return self.host_spill is not False

    @property
    def spill(self) -> str | None:
        """The folder of that file; None for the system's."""
        return self.host_spill if isinstance(self.host_spill, str) else None

    @property
    def asks(self) -> bool:
        """Whether something is asked even of steps under plans that change nothing."""
        return bool(self.count) or self.timed or self.reserved_memory is not None

    def within_host(self, step_plans: Sequence[StepPlan]) -> list[StepPlan]:
        """Return plans that take no more of the host's memory altogether than they may.

        Each keeps its room while others are followed: the first gets what it needs, and the next
        what is left.
        """
        left = self.host_limit
        if left is None:
            return list(step_plans)
        found = []
        for each in step_plans:
            found.append(each.within_host(left, self.spills))
            left -= host_memory_of(found[-1:]).held
        return found
