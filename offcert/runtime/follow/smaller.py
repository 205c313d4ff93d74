"""Steps that are smaller than the one that was captured, under its plan.

The same modules run in the same order and save as many tensors, none of which is larger. So at
every moment there is at most what the captured step has there, and the plan's peak is within its
limit; see `docs/theory/smaller-steps.md`. What is saved is compared while the step runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.entries import Entry
from offcert.runtime.watch.saved_hooks import Place, PlacedEntries, dtype_name
from offcert.runtime.watch.signature import Signature, fits_into


class Spared(NamedTuple):
    """A storage that a smaller step has saved.

    Attributes
    ----------
    place : Place
        Its place in the captured step.
    size : int
        Bytes that it takes less than there.
    """

    place: Place
    size: int


def spared_bytes(step_plan: StepPlan, spared: Iterable[Spared]) -> list[int]:
    """Return, for each operation, how much less is on the device than in the captured step.

    Only what the step has saved counts, from the operation on that saved it, to the last one that
    uses it, and not while the plan has it away.

    Parameters
    ----------
    step_plan : StepPlan
        Of the captured step.
    spared : iterable of Spared
        Tensors that the smaller step has saved.
    """
    trace, prediction = step_plan.trace, step_plan.prediction
    by_tensor: dict[int, list[Spared]] = {}
    for each in spared:
        tensor = step_plan.places[each.place]
        if tensor is not None and each.size:
            by_tensor.setdefault(tensor, []).append(each)
    found = [0] * len(trace)
    for tensor, rows in by_tensor.items():
        there = True
        for operation in range(min(each.place.operation for each in rows), len(trace)):
            there = tensor in prediction.claims[operation] or (
                there and tensor not in prediction.releases[operation]
            )
            if operation > trace.tensors[tensor].uses[-1]:
                break
            if there:
                found[operation] += sum(e.size for e in rows if e.place.operation <= operation)
    return found


def sizes_of(call: Signature | None) -> str:
    """Return the shapes of what a model is called with; nothing without a call."""
    return "" if call is None else repr([each for each in call[0] if isinstance(each, list)])


class StepEntries(PlacedEntries):
    """Storages that a step has saved, by the place of their like in the captured one.

    Parameters
    ----------
    step_plan : StepPlan
        Of the captured step.

    Attributes
    ----------
    smaller : Signature or None
        The first call that asks for less than the captured one, or has other numbers; None if all
        were as captured.
    spared : list of Spared
        Tensors that a smaller step has saved.
    """

    def __init__(self, step_plan: StepPlan) -> None:
        super().__init__()
        self.smaller: Signature | None = None
        self.spared: list[Spared] = []
        self._step_plan = step_plan

    def add(self, operation: int, size: int, tensor: torch.Tensor) -> Entry:
        """Return the entry of a storage of so many bytes that is saved for the first time.

        In a smaller step it is the first one not met that the same operation saved, of the same
        type and with as many dimensions, into which it fits; if there is none, it is unforeseen.
        """
        if self.smaller is not None:
            kind = (operation, dtype_name(tensor.dtype), tensor.dim())
            for place in self._step_plan.alike.get(kind, ()):
                fits = size <= place.size and fits_into(tensor.shape, place.shape)
                if fits and place not in self.by_place:
                    self.spared.append(Spared(place, place.size - size))
                    return self.put(place, size)
        return super().add(operation, size, tensor)
