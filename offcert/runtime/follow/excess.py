"""Work of a step beyond the captured one, or short of it.

With more it may take more memory than its plan says. With less, a layer is dropped, a branch is not
taken, a pass ends early. What is left out frees memory, so a plan that keeps to its limit in the
whole step keeps to it in this one: between two operations that do run, its moves are made as if
those in between had run too. Two things have to be so. No tensor is still there that an operation
would have freed which was left out. And nothing is done instead.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

import torch

from offcert.core.trace import Tensor
from offcert.runtime.follow.counting import CountedSteps
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.plan.step_table import StepTable
from offcert.runtime.watch.entries import StorageEntry
from offcert.runtime.watch.events import ENTER, LEAVE, OUTPUT
from offcert.runtime.watch.operators import UNKNOWN, NodeCount, keeps_casts
from offcert.runtime.watch.saved_hooks import SavedPlace, dtype_name
from offcert.runtime.watch.sharded import Parts
from offcert.runtime.watch.signature import Signature, fits_into

AS_ONE = "a plan has to be made for calls as one step if the backward passes come after all of them"


class LeftOut(set[int]):
    """The operations that a step has left out so far."""

    def __init__(self, step_plan: StepPlan) -> None:
        super().__init__()
        self._plan = step_plan
        # For operations before a stretch that was left out, the one of it that may run in them.
        self._hidden: dict[int, int] = {}

    def leave(
        self, first: int, end: int, entries: Iterable[StorageEntry], *, something: object
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
        """Yield operations, and the bytes that one which was left out may hold in each."""
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


class Spared(NamedTuple):
    """A storage that a smaller step has saved.

    Its place in the captured step, and what it lacks.
    """

    place: SavedPlace
    size: int


def spared_bytes(step_plan: StepPlan, spared: Iterable[Spared]) -> list[int]:
    """Return, for each operation, how much less is on the device than in the captured step.

    Only what the step has saved counts, from the operation on that saved it, to the last one that
    uses it, and not while the plan has it away.
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


class StepEntries:
    """Storages that a step has saved, by the place of the matching storage in the captured one.

    `smaller` is the first call that asks for less than the captured one, or has other numbers; None
    if all were as captured. `spared` are tensors that a smaller step has saved.
    """

    def __init__(self, table: StepTable, left_out: LeftOut) -> None:
        # Not a dictionary that forgets the dead: that costs more than all of them take.
        self.by_place: dict[SavedPlace, weakref.ref[StorageEntry]] = {}
        self.left_out = left_out
        self.smaller: Signature | None = None
        self.spared: list[Spared] = []
        self._alike = table.alike

    def add(self, operation: int, size: int, tensor: torch.Tensor) -> StorageEntry:
        """Return the entry of a storage that a smaller step saves for the first time.

        It is the first one not met that the same operation saved, of the same type and with as many
        dimensions, into which so many bytes fit; if there is none, it is unforeseen.
        """
        kind = (operation, dtype_name(tensor.dtype), tensor.dim())
        for place in self._alike.get(kind, ()):
            fits = size <= place.size and fits_into(tensor.shape, place.shape)
            if fits and place not in self.by_place:
                self.spared.append(Spared(place, place.size - size))
                return self.put(place, size)
        place = SavedPlace(operation, size, dtype_name(tensor.dtype), tuple(tensor.shape), 0)
        while place in self.by_place:
            place = place._replace(ordinal=place.ordinal + 1)
        return self.put(place, size)

    def put(self, place: SavedPlace, size: int) -> StorageEntry:
        """Return the entry of a storage of so many bytes that counts as saved at a place."""
        entry = StorageEntry(place, size)
        self.by_place[place] = weakref.ref(entry)
        return entry

    def alive(self) -> Iterator[StorageEntry]:
        """Yield the entries that autograd still needs."""
        for reference in self.by_place.values():
            entry = reference()
            if entry is not None:
                yield entry

    def instead(self, place: SavedPlace) -> StorageEntry | None:
        """Return the entry of a storage as that of an operation which was left out, or None.

        At its place the captured step saved nothing like it.
        """
        found = self.left_out.place_of(place, self.by_place) if self.left_out else None
        if found is None:
            return None
        del self.by_place[place]
        return self.put(found, place.size)

    def all_spared(self) -> list[Spared]:
        """Return tensors that the step has saved smaller, or not at all."""
        return [
            *self.spared,
            *(Spared(each, each.size) for each in self.left_out.places(self.by_place)),
        ]


class Excess:
    """Finds memory that a step takes beyond its plan."""

    def __init__(
        self,
        step_plan: StepPlan,
        parts: Parts,
        known: CountedSteps | None = None,
    ) -> None:
        self.step_plan, self.parts = step_plan, parts
        self.stayed: list[Stayed] = []
        self._known = CountedSteps() if known is None else known
        self._nodes: NodeCount | None = None
        self._made: list[int] = []
        self._call: Signature | None = None
        # Why the step may have taken more; if it or one like it was counted, that is known.
        self._why: str | None = None

    def begin_call(self, call: Signature) -> None:
        """Take note that a call of the model begins."""
        self._nodes = NodeCount()
        self._call = self._call or call

    def end_call(self, call: int) -> None:
        """Look whether a call of the model did more than any that is known.

        Operators of another kind of device may consist of others: they are not compared.
        """
        assert self._nodes is not None
        capture, made = self.step_plan.capture, self._nodes.made
        self._made.append(made)
        if call >= len(capture.nodes) or capture.device != self.parts.device:
            return
        captured = capture.nodes[call]
        if captured == UNKNOWN or made <= captured or made <= self._known.most_nodes(call):
            return
        self._may(
            f"the model's forward pass made {made} nodes of the autograd graph, {made - captured} "
            "more than when it was captured: it may take more memory"
        )

    def _may(self, why: str) -> None:
        """Take note of why the step may take more; the first reason counts."""
        self._why = self._why or why

    def at_end(self, peaks: Sequence[int] | None, deviation: str | None = None) -> str | None:
        """Return in words that the step has taken more than the limit, or None.

        `peaks` are the most bytes that were alive during each operation, or in all of the step;
        None if they were not counted from beginning to end. `deviation` says in what the step was
        not the planned one, if others like it will not be either.
        """
        assert self._call is not None
        shape, limit = tuple(self._made), self.step_plan.limit
        if peaks is None:
            return self._known.uncounted(shape, self._call, self._why)
        most, what = max(peaks, default=0), None
        if most > limit:
            operations = self.step_plan.trace.operations
            where = f" during {operations[peaks.index(most)].name}" if len(peaks) > 1 else ""
            what = f"{most} bytes were alive{where}, {most - limit} more than the limit"
        self._known.counted(shape, self._call, what or deviation)
        return what if what is None or self._why is None else f"{what}; {self._why}"

    @property
    def keeps_casts(self) -> bool:
        """Whether weights stay that were cast, unlike in the captured step."""
        return self.step_plan.capture.autocast is False and keeps_casts(self.parts.device)

    def begin_backward(self) -> None:
        """Look whether weights that were cast stay, and do not fit."""
        if not self.keeps_casts:
            return
        casts = sum(
            parameter.numel() * torch.get_autocast_dtype(self.parts.device).itemsize
            for parameter in self.parts.parameters
            if parameter.requires_grad and parameter.dtype == torch.float32
        )
        most = self.step_plan.prediction.peak + casts
        if most <= self.step_plan.limit:
            return
        self._may(
            "the backward pass runs inside of torch.autocast, unlike the captured one: up to "
            f"{casts} bytes of weights that were cast stay until it ends, "
            f"{most - self.step_plan.limit} more than fit into the limit"
        )

    def of_bytes(self, saved: StepEntries) -> None:
        """Look whether unforeseen bytes do not fit into the limit.

        What an operation saves beyond what it saved when it was captured is taken to stay until the
        step ends; what should have left, until the plan brings it back. What a smaller step has
        saved takes less.
        """
        trace, prediction = self.step_plan.trace, self.step_plan.prediction
        more = [0] * (len(trace) + 1)
        found: Counter[int] = Counter()
        for place in saved.by_place:
            found[place.operation] += place.size
        for operation, size in found.items():
            more[operation] += max(0, size - self.step_plan.saved_bytes[operation])
        for each in self.stayed:
            after = range(each.operation, len(trace))
            back = next((n for n in after if each.tensor in prediction.claims[n]), len(trace))
            more[each.operation] += each.size
            more[back] -= each.size
        for operation, size in saved.left_out.besides():
            more[operation] += size
            more[operation + 1] -= size
        del more[-1]
        less = spared_bytes(self.step_plan, saved.all_spared())
        for tensor in saved.left_out.never_made(saved.by_place):
            for operation in range(tensor.uses[0], tensor.uses[-1] + 1):
                less[operation] += tensor.size
        rows = zip(accumulate(more), prediction.peaks, less, strict=True)
        for operation, (extra, captured, fewer) in enumerate(rows):
            peak = captured - fewer
            if extra and peak + extra > self.step_plan.limit:
                self._may(
                    f"{extra} bytes more than planned are held during "
                    f"{trace.operations[operation].name}, "
                    f"{peak + extra - self.step_plan.limit} more than fit into the limit"
                )
