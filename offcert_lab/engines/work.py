"""Work that a program has handed over, as it is kept to be run again in other orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from offcert.runtime.simulated.streams import Knowledge
from offcert_lab.engines.findings import CodePlace
from offcert_lab.engines.memory import Geometry, Stay


@dataclass(frozen=True, slots=True)
class Reference:
    """A tensor, by the memory it lies in."""

    life: Stay
    dtype: torch.dtype
    geometry: Geometry

    @classmethod
    def of(cls, tensor: torch.Tensor, life: Stay) -> Reference:
        """Return that of a tensor."""
        return cls(life, tensor.dtype, Geometry.of(tensor))


@dataclass(slots=True, eq=False)
class Work:
    """An operator that runs in a stream, or on the host."""

    # Where it runs, and its number there.
    stream: int
    number: int
    knows: Knowledge  # For each stream, how many of its works come before this one.
    issued: int  # How many works of the host come before this one.
    run: Callable[..., Any]  # The operator.
    # Its arguments, with a `Reference` for each tensor that lies in known memory.
    args: Any
    kwargs: Any
    results: list[Reference | None]  # The new memory to which its results are written.
    operation: str
    place: CodePlace
    # The state of the random generator before it, if it uses that.
    random: torch.Tensor | None = None
    observed: bool = False  # Whether its result is a value that the program got.
