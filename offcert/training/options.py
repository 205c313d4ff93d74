"""`OffloadOptions`: all that `offcert.offload` is asked, as one value that is checked once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path

import torch

from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.options import require_count, require_seconds
from offcert.core.platform import Platform
from offcert.core.units import Units, require_limit
from offcert.questions.schedule.problem import Problem, Recompute, parse_memory
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.options import FollowOptions

# Seconds to look for a plan. Arbitrary.
SECONDS = 10.0

# Some problem, to see whether a text is a part of its memory.
ANY_PROBLEM = Problem(
    "any", Chain([1], [1], [1, 1], [0, 0]), Platform(2, Fraction(1)), units=Units("ns", "B")
)


@dataclass(frozen=True, kw_only=True)
class OffloadOptions(FollowOptions):
    """The options of a training whose plans are made on the way, and of how they are followed."""

    memory: int | str | None = None
    device_memory: int | str | None = None
    optimiser: torch.optim.Optimizer | None = None
    time_limit: float = SECONDS
    example: TrainingStep | None = None
    hardware: str | None = None
    recompute: str | None = None
    max_plans: int = 4
    buckets: int = 1
    background: bool = True
    plans: str | Path | None = None

    def require_given(self) -> None:
        """Raise an `InputError` for an option of plans that are made, as the plan is given."""
        followed = {each.name for each in fields(FollowOptions)}
        for each in fields(self):
            if each.name not in followed and getattr(self, each.name) != each.default:
                raise InputError(f'{each.name} can only be given with plan="auto"')

    def require_auto(self) -> None:
        """Raise an `InputError` unless plans can be made within one limit."""
        if (self.memory is None) is (self.limit is None):
            raise InputError(
                'plan="auto" needs exactly one of memory and device_memory, or reserved_memory'
            )
        if self.memory is None:
            require_limit(self.limit, "device_memory")
        elif isinstance(self.memory, str):
            # What is wrong with a text shows now, not in the middle of the training.
            parse_memory(self.memory, ANY_PROBLEM)
        else:
            require_limit(self.memory, "memory")
        require_seconds(self.time_limit, "time_limit")
        if self.recompute not in (None, Recompute.ANY, Recompute.NONE):
            raise InputError(f'recompute must be "any" or "none", not {self.recompute!r}')
        require_count(self.max_plans, "max_plans")
        require_count(self.buckets, "buckets")

    @property
    def limit(self) -> int | str | None:
        """The limit with all that the device holds; the allocator's, if no other is given."""
        if self.memory is None and self.device_memory is None:
            return self.reserved_limit
        return self.device_memory

    @property
    def again(self) -> Recompute:
        """Whether computations may run again."""
        return Recompute.ANY if self.recompute is None else Recompute(self.recompute)
