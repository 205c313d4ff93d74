"""Work of a step beyond the captured one: it may then take more memory than its plan says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from offcert.runtime.follow.counting import Known
from offcert.runtime.follow.left_out import LeftOut, Stayed
from offcert.runtime.follow.memory import Reserved
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.plan.step_table import StepTable
from offcert.runtime.watch.entries import Entry
from offcert.runtime.watch.events import END, OUTPUT, Event, Session
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.operators import UNKNOWN, NodeCount, is_here, keeps_casts
from offcert.runtime.watch.saved_hooks import PlacedEntries, SavedPlace, dtype_name
from offcert.runtime.watch.sharded import Parts
from offcert.runtime.watch.signature import Signature, fits_into
from offcert.runtime.watch.tracker import LiveBytes

AS_ONE = "a plan has to be made for calls as one step if the backward passes come after all of them"


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


class StepEntries(PlacedEntries):
    """Storages that a step has saved, by the place of their like in the captured one.

    `smaller` is the first call that asks for less than the captured one, or has other numbers; None
    if all were as captured. `spared` are tensors that a smaller step has saved.
    """

    def __init__(self, table: StepTable, left_out: LeftOut) -> None:
        super().__init__()
        self.left_out = left_out
        self.smaller: Signature | None = None
        self.spared: list[Spared] = []
        self._alike = table.alike

    def add(self, operation: int, size: int, tensor: torch.Tensor) -> Entry:
        """Return the entry of a storage of so many bytes that is saved for the first time.

        In a smaller step it is the first one not met that the same operation saved, of the same
        type and with as many dimensions, into which it fits; if there is none, it is unforeseen.
        """
        if self.smaller is not None:
            kind = (operation, dtype_name(tensor.dtype), tensor.dim())
            for place in self._alike.get(kind, ()):
                fits = size <= place.size and fits_into(tensor.shape, place.shape)
                if fits and place not in self.by_place:
                    self.spared.append(Spared(place, place.size - size))
                    return self.put(place, size)
        return super().add(operation, size, tensor)

    def instead(self, place: SavedPlace) -> Entry | None:
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
        known: Known | None = None,
    ) -> None:
        self.step_plan, self.parts = step_plan, parts
        self.stayed: list[Stayed] = []
        self._known = Known() if known is None else known
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


class IdleRun(Session):
    """A step under a plan that changes nothing: it runs as without us."""

    def __init__(
        self,
        hooks: Hooks,
        step_plan: StepPlan,
        exceeds: Callable[[str], None],
        reserved: Reserved,
        known: Known,
        counter: LiveBytes | None,
    ) -> None:
        super().__init__(hooks)
        # Of several calls each is taken for a step: none is counted from beginning to end.
        self._counter = counter if len(step_plan.capture.calls) == 1 else None
        self._excess = Excess(step_plan, hooks.parts, known)
        self._exceeds, self._reserved = exceeds, reserved
        self._seen = True
        self._told = self._over = False
        looks = self._counter is not None or reserved.reads or self._excess.keeps_casts
        self._looks_at_the_end = looks

    def begin_call(self, call: Signature) -> None:
        """Take note of how the model is called."""
        self._excess.begin_call(call)

    def enter(self, path: str, values: Any) -> None:
        """Take no note of a module that is called."""

    def leave(self, path: str, output: Any) -> None:
        """Watch for the backward pass where it matters when it begins or ends."""
        if not path and self._looks_at_the_end:
            self.watch(OUTPUT, path, 0, output)

    def tick(self, event: Event) -> None:
        """Look at the end of the backward pass what the step has taken."""
        if event.kind == END and not self._over:
            self._over = True
            self._end()

    def wants(self, event: Event) -> bool:
        """Every event is wanted: only tensors that were asked for are watched."""
        return True

    def returned(self) -> None:
        """Look whether the call of the model did more than the captured one."""
        self._excess.end_call(0)
        if not self._looks_at_the_end:
            self._tell(self._excess.at_end(None))

    def begin_backward(self) -> None:
        """Look whether it keeps more than the captured one."""
        self._seen = self._counter is None or is_here(self._counter)
        self._excess.begin_backward()

    def _end(self) -> None:
        counter = self._counter
        if counter is not None:
            counter.stop()
        peaks = None if counter is None or not self._seen else [counter.peak]
        self._tell(self._excess.at_end(peaks))
        self._tell(self._reserved.exceeded(self._reserved.read(), self._excess.step_plan))

    def _tell(self, what: str | None) -> None:
        if what is not None and not self._told:
            self._told = True
            self._exceeds(what)
