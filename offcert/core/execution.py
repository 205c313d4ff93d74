"""`Execution`: a trace of a network, with the computation or value of each part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offcert.core.errors import InputError
from offcert.core.trace import Trace


@dataclass(frozen=True)
class Execution:
    """A strategy applied to a network: a trace in which computations may run more than once.

    Whether it is a legal execution of a network is for `offcert.verification.execution` to say;
    nobody has to trust who made it.

    Attributes
    ----------
    trace : Trace
        The operations and tensors of the device.
    runs : tuple of int
        For each operation, the computation that it runs.
    values : tuple of int
        For each tensor, the value that it is a copy of; -1 for what the network does not know, such
        as states of random generators, which takes memory all the same.
    program : mapping, optional
        How the runtime makes this execution out of the user's modules; a JSON value.
    """

    trace: Trace
    runs: tuple[int, ...]
    values: tuple[int, ...]
    program: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if len(self.runs) != len(self.trace):
            raise InputError(
                f"runs must have {len(self.trace)} entries, one an operation, not {len(self.runs)}"
            )
        if len(self.values) != len(self.trace.tensors):
            raise InputError(
                f"values must have {len(self.trace.tensors)} entries, one a tensor, "
                f"not {len(self.values)}"
            )

    def __repr__(self) -> str:
        count = len(self.runs)
        return f"<Execution: {count} operations, {self.repeated} of them again; {self.trace!r}>"

    @property
    def repeated(self) -> int:
        """Number of operations that run a computation again."""
        return len(self.runs) - len(set(self.runs))
