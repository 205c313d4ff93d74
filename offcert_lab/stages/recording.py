"""The trace of a network's stages, recorded on fake tensors, with durations of a hardware model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from offcert.core.errors import OffcertError
from offcert.core.platform import Link
from offcert.core.trace import Operation, Tensor, Trace
from offcert.runtime.hardware import Hardware
from offcert.runtime.hardware.bandwidth import Measurement, modelled
from offcert.runtime.hardware.cost import operator_ns
from offcert.runtime.torch_private import FakeTensorMode, tree_leaves
from offcert.runtime.watch.entries import StorageEntry
from offcert.runtime.watch.tracker import StorageRecord
from offcert.runtime.workloads.workload import Batches, Workload
from offcert_lab.stages.linearise import (
    StageChain,
    fake_copy,
    linearise,
    trace_module,
    vocabulary,
)
from offcert_lab.stages.staged import Key, Meter, StagedModel


@dataclass(frozen=True)
class Prepared:
    """A workload's network, traced, and linearised over a copy without data, on fake tensors."""

    fake: StageChain
    traced: torch.fx.GraphModule
    batches: Batches
    mode: FakeTensorMode


def prepare(model: nn.Module, workload: Workload) -> Prepared:
    """Trace and linearise `model` for the inputs of `workload`."""
    traced = trace_module(model)
    tokens = vocabulary(traced)
    mode = FakeTensorMode()
    with mode:
        example, _ = Batches(workload, tokens, ()).shapes()
        chain = linearise(fake_copy(traced), example, type(model).__name__)
    return Prepared(chain, traced, Batches(workload, tokens, chain.output_shape), mode)


@dataclass
class _Life:
    """The life of one storage during a recorded step."""

    record: StorageRecord
    touched: set[int] = field(default_factory=set)
    key: Key | None = None


class StagesRecorder(Meter):
    """A meter that notes, for every storage, which operations need it and who holds it.

    The roofline gives operations their durations; all zero without one.
    """

    def __init__(self, staged: StagedModel, hardware: Hardware | None = None) -> None:
        super().__init__(staged)
        self._hardware = hardware
        self.durations = [0] * staged.operations
        self._lives: dict[StorageRecord, _Life] = {}
        self.saved.on_save = self._note_saved
        self.saved.on_unpack = self._note_unpacked
        self._entries: dict[Key, _Life] = {}
        self.tracker.listener = self._note_operator

    def _note_operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        for leaf in tree_leaves((args, kwargs, out)):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                self._touch(leaf)
        if self._hardware is not None and self.tracker.now >= 0:
            self.durations[self.tracker.now] += operator_ns(self._hardware, func, args, kwargs, out)

    def _touch(self, tensor: torch.Tensor) -> _Life | None:
        record = self.tracker.record(tensor.untyped_storage())
        if record is None:
            return None
        life = self._lives.setdefault(record, _Life(record))
        life.touched.add(self.tracker.now)
        return life

    def _note_saved(self, entry: StorageEntry, tensor: torch.Tensor) -> None:
        life = self._touch(tensor)
        assert life is not None
        life.key = entry.key
        self._entries[entry.key] = life

    def _note_unpacked(self, entry: StorageEntry) -> None:
        self._entries[entry.key].touched.add(self.tracker.now)

    def end(self, operation: int) -> None:
        """Note who holds what when an operation has ended."""
        super().end(operation)
        for entry in self.saved:
            if entry.held_elsewhere:
                # It cannot leave before the next operation, which therefore counts as a use.
                self._entries[entry.key].touched.add(operation + 1)

    def recording(self) -> StagesRecording:
        """Return the trace of the step that has just been run, if it has the counted bytes."""
        last = self.staged.operations - 1
        groups: Counter[tuple[tuple[int, ...], bool]] = Counter()
        for life in self._lives.values():
            died = last if life.record.died is None else life.record.died
            if life.record.size == 0 or died == life.record.born:
                continue
            uses = _uses(life, died)
            evictable = life.key is not None and any(
                after - before > 1 for before, after in pairwise(uses)
            )
            if not evictable:
                uses = (life.record.born, died)
            groups[uses, evictable] += life.record.size
        ordered = sorted(groups.items(), key=lambda item: (item[0][0][0], *item[0]))
        names = _names([group for group, _ in ordered], last)
        tensors = [
            Tensor(name, size, uses, evictable)
            for name, ((uses, evictable), size) in zip(names, ordered, strict=True)
        ]
        return StagesRecording(self._trace(tensors), tuple(self.at_end), tuple(self.peaks))

    def _trace(self, tensors: Sequence[Tensor]) -> Trace:
        operations = []
        names = self.staged.operation_names()
        for index, (name, duration) in enumerate(zip(names, self.durations, strict=True)):
            during = sum(t.size for t in tensors if t.uses[0] <= index <= t.uses[-1])
            after = sum(t.size for t in tensors if t.uses[0] <= index < t.uses[-1])
            # What the network keeps for itself outlives the step; no trace can say that.
            if after != self.at_end[index] and index < len(names) - 1:
                raise OffcertError(
                    f"{self.at_end[index]} bytes are alive after {name}, but the trace has {after}"
                )
            operations.append(Operation(name, duration, max(0, self.peaks[index] - during)))
        return Trace(operations, tensors)


@dataclass(frozen=True)
class StagesRecording:
    """The trace of a training step, and the live bytes that were counted.

    Durations are zero unless the recorder had a roofline; `at_end` are live bytes at the end of
    each operation, `peaks` the most while it ran.
    """

    trace: Trace
    at_end: tuple[int, ...]
    peaks: tuple[int, ...]


def _uses(life: _Life, died: int) -> tuple[int, ...]:
    touched = {use for use in life.touched if life.record.born <= use <= died}
    if life.key is not None:
        # What autograd has not saved yet cannot leave.
        touched |= set(range(life.record.born, min(life.key[0], died) + 1))
    return tuple(sorted(touched | {life.record.born, died}))


def _names(groups: Sequence[tuple[tuple[int, ...], bool]], last: int) -> list[str]:
    """Name tensors after the stage that writes them."""
    names = []
    seen: Counter[str] = Counter()
    for uses, evictable in groups:
        born = uses[0]
        if born == -1:
            # The labels are read by the loss, the stage in the middle.
            base = "labels" if uses[1] >= last // 2 else "x0"
        elif born <= last // 2:
            crosses = not evictable or born + 1 in uses
            base = f"x{born + 1}" if crosses else f"internals{born}"
        else:
            base = f"y{last - born}" if uses[1] == born + 1 else f"gradients{last - born}"
        seen[base] += 1
        names.append(base if seen[base] == 1 else f"{base}.{seen[base]}")
    return names


def record(prepared: Prepared, hardware: Hardware | None = None) -> StagesRecording:
    """Run one training step on fake tensors; operations last as a roofline says, or 0."""
    recorder = StagesRecorder(StagedModel(prepared.fake, prepared.batches.workload.loss), hardware)
    with prepared.mode, recorder.active():
        inputs, labels = prepared.batches.shapes()
        recorder.step(inputs, labels).backward()
        for parameter in prepared.fake.root.parameters():
            parameter.grad = None
    return recorder.recording()


def profile_stages(module: nn.Module, workload: Workload, hardware: Hardware) -> Measurement:
    """Return the trace of a network's stages, with the durations of a hardware model."""
    # As the papers take it.
    trace = record(prepare(module, workload), hardware).trace
    return modelled(trace, hardware, Link.SIMPLEX)
