"""Operations that a step leaves out of those that its plan was made for: it does less.

A layer is dropped, a branch is not taken, a pass ends early. What is left out frees memory, so a
plan that keeps to its limit in the whole step keeps to it in this one: between two operations that
do run, its moves are made as if those in between had run too. Two things have to be so. No tensor
is still there that an operation would have freed which was left out. And nothing is done instead.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from offcert.core.trace import Tensor
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.entries import Entry
from offcert.runtime.watch.events import ENTER, LEAVE, OUTPUT
from offcert.runtime.watch.saved_hooks import SavedPlace


class LeftOut(set[int]):
    """The operations that a step has left out so far."""

    def __init__(self, step_plan: StepPlan) -> None:
        super().__init__()
        self._plan = step_plan
        # For operations before a stretch that was left out, the one of it that may run in them.
        self._hidden: dict[int, int] = {}

    def leave(
        self, first: int, end: int, entries: Iterable[Entry], *, something: object
    ) -> str | None:
        """Leave out the operations from `first` on that come before `end`.

        Returns why the step does not just do less, if so: autograd still needs `entries` that the
        operations would have freed, or `something` else may have been done instead.
        """
        if first >= end:
            return None
        self.update(range(first, end))
        if self._may_run(end - 1):
            self._hidden[max(first - 1, 0)] = end - 1
        if something:
            return self.never
        tensors, places = self._plan.trace.tensors, self._plan.places
        for entry in entries:
            tensor = places.get(entry.key)
            if tensor is not None and first <= tensors[tensor].uses[-1] < end:
                return f"{self.never}, and {entry.size} bytes stay that it would have freed"
        return None

    def _may_run(self, last: int) -> bool:
        """Whether the last of some operations may do its work without the event it begins with.

        What follows a module is work of its caller, which may go on if the module is left out.
        """
        ticks = self._plan.capture.ticks
        event = ticks[last]
        if event.kind in (ENTER, OUTPUT):
            return False
        caller = event.path.rpartition(".")[0]
        inside = [n for n, each in enumerate(ticks) if each.path.startswith(f"{caller}.")]
        runs = not caller or any(n not in self for n in inside if n <= last)
        return event.kind != LEAVE or runs

    @property
    def never(self) -> str:
        """The first operation that was left out, in words."""
        return f"{self._plan.trace.operations[min(self)].name} never began"

    def besides(self) -> Iterator[tuple[int, int]]:
        """Yield operations with the bytes that may be held in them of one that was left out."""
        begun, peaks = self._plan.prediction.at_begin, self._plan.prediction.peaks
        for operation, other in self._hidden.items():
            yield operation, peaks[other] - begun[other]

    def never_made(self, saved: Container[SavedPlace]) -> Iterator[Tensor]:
        """Yield tensors that cannot leave and that only operations use that were left out."""
        known = self._plan.places.items()
        if any(tensor is None and p.operation in self and p in saved for p, tensor in known):
            # It counts as one of them.
            return
        for tensor in self._plan.trace.tensors:
            first, last = tensor.uses[0], tensor.uses[-1]
            alone = first in self and last in self and first not in self._hidden.values()
            if alone and not tensor.evictable:
                yield tensor

    def places(self, saved: Container[SavedPlace]) -> Iterator[SavedPlace]:
        """Yield the places at which nothing was saved, for the operations were left out."""
        for place in self._plan.places if self else ():
            if place.operation in self and place not in saved:
                yield place

    def place_of(self, found: SavedPlace, saved: Container[SavedPlace]) -> SavedPlace | None:
        """Return where an operation that was left out would have saved a tensor first, or None."""
        alike = [each for each in self.places(saved) if each[1:4] == found[1:4]]
        return min(alike, key=lambda each: not self._uses(each, found.operation), default=None)

    def _uses(self, place: SavedPlace, operation: int) -> bool:
        """Whether an operation uses what is saved at a place."""
        tensor = self._plan.places[place]
        return tensor is not None and operation in self._plan.trace.tensors[tensor].uses

    def stayed(self, place: SavedPlace, operation: int) -> list[Stayed]:
        """Return the bytes saved at a place if the plan has them on the host at an operation."""
        tensor, away = self._plan.places[place], False
        moves = zip(self._plan.prediction.releases, self._plan.prediction.claims, strict=True)
        for released, claimed in islice(moves, operation + 1):
            away = (away or tensor in released) and tensor not in claimed
        return [Stayed(tensor, operation, place.size)] if tensor is not None and away else []


class Stayed(NamedTuple):
    """Bytes of a tensor that should have left before an operation, but are held by someone else."""

    tensor: int
    operation: int
    size: int
