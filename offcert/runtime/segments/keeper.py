"""What a segment keeps: results of operators, in the hands of autograd's outer hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import TreeSpec

from offcert.core.errors import InputError
from offcert.runtime.saved import Handle

# An event of a module: its kind, path and call.
Tick = tuple[str, str, int]

# Packs and unpacks a saved tensor.
Hooks = tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]


def outer_hooks() -> Hooks:
    """Return the saved-tensor hooks that are active around a segment."""
    found = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if found is not None:
        return found[0], found[1]
    return (lambda tensor: Handle(tensor, None)), Handle.restore


@dataclass(slots=True)
class Alias:
    """A result that is one of the tensors that the operator was given."""

    argument: int


@dataclass(slots=True)
class Stored:
    """A result that stays: what the outer hooks made of it."""

    packed: Any


@dataclass(slots=True)
class Record:
    """An operator that does not run again.

    Attributes
    ----------
    results : list
        What it returned: `Stored`, `Alias`, or what is no tensor.
    spec : TreeSpec
        How they are nested.
    changed : list of int
        Which of the tensors that it was given it has changed in place.
    generators : list of (device, state)
        Of random generators that it has used, afterwards.
    used : bool
        Whether the results have been handed out for the last time.
    """

    results: list[Any]
    spec: TreeSpec
    changed: list[int]
    generators: list[tuple[torch.device, torch.Tensor]]
    used: bool = False


class Keeper:
    """Keeps results of some operators of an outermost segment, from its first run on.

    A dispatch mode watches operators, but only between those events at which something is kept.

    Parameters
    ----------
    name : str
        Of the segment, for people.
    kept : dict
        For the events with which such stretches begin, which of the operators are kept; None for
        all.
    parameters : set of int
        Addresses of the storages of parameters: operators on different ones are different.
    """

    def __init__(
        self,
        name: str,
        kept: dict[Tick, frozenset[int] | None],
        parameters: set[int],
    ) -> None:
        self.name = name
        self.kept = kept
        self.parameters = parameters
        self.hooks = outer_hooks()
        self.records: dict[Any, Record | None] = {}

    def check(self) -> None:
        """Raise an `InputError` if something kept has been changed in place since."""
        for (tick, *_), record in self.records.items():
            for result in [] if record is None else record.results:
                packed = result.packed if isinstance(result, Stored) else None
                if isinstance(packed, Handle) and packed.changed:
                    raise InputError(
                        f"what {describe(tick)} computes is changed in place afterwards: in "
                        f"{self.name} it can only be kept together with that"
                    )


def describe(tick: Tick) -> str:
    """Name an event for people."""
    kind, path, call = tick
    what = path or "the model"
    what = what if call == 0 else f"call {call + 1} of {what}"
    return what if kind == "enter" else f"what follows {what}"
