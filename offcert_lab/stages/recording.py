"""The trace of a network's stages, recorded on fake tensors, with durations of a hardware model."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import fx, nn
from torch.autograd.graph import saved_tensors_hooks

from offcert.core.errors import InputError, OffcertError
from offcert.core.platform import Link
from offcert.core.trace import Operation, Tensor, Trace
from offcert.runtime.hardware import Hardware
from offcert.runtime.hardware.bandwidth import Measurement, modelled
from offcert.runtime.hardware.cost import operator_ns
from offcert.runtime.torch_private import FakeTensorMode, queue_callback, tree_leaves
from offcert.runtime.watch.entries import Handle, StorageEntry, is_plain
from offcert.runtime.watch.tracker import LiveBytes, StorageRecord
from offcert.runtime.workloads.workload import Batches, Workload, loss_function
from offcert_lab.stages.linearise import (
    StageChain,
    fake_copy,
    linearise,
    trace_module,
    vocabulary,
)


@dataclass(frozen=True)
class Prepared:
    """A workload's network, traced, and linearised over a copy without data, on fake tensors."""

    fake: StageChain
    traced: fx.GraphModule
    batches: Batches
    mode: FakeTensorMode


def prepare(model: nn.Module, workload: Workload) -> Prepared:
    """Trace and linearise `model` for the inputs of `workload`."""
    traced = trace_module(model)
    tokens = vocabulary(traced)
    mode = FakeTensorMode()
    with mode:
        example = Batches(workload, tokens, ()).inputs(torch.default_generator)
        chain = linearise(fake_copy(traced), example, type(model).__name__)
    return Prepared(chain, traced, Batches(workload, tokens, chain.output_shape), mode)


@dataclass
class _Life:
    """The life of one storage during a recorded step."""

    record: StorageRecord
    touched: set[int] = field(default_factory=set)
    saved: int | None = None  # The operation in which autograd saved it.


class StagesRecorder:
    """One training step of stages: which operations need each storage, and who holds it.

    Operations are ``F_0 … F_L B_L … B_0``, the loss being stage L. ``F_i`` ends when its stage has
    run, ``B_i`` when the gradient of its stage's input is complete and ``B_0`` when the backward
    pass ends. A stage whose input needs no gradient ends with the backward pass too; the operations
    after it are then empty.

    It is the same on fake tensors and on real ones, so that both hold the same references at the
    same time. The roofline gives operations their durations; all zero without one. `at_begin` and
    `at_end` are live bytes when each operation begins and ends, `peaks` the most while it ran.
    """

    def __init__(self, chain: StageChain, loss: str, hardware: Hardware | None = None) -> None:
        self.chain, self.loss = chain, loss_function(loss)
        self.operations = 2 * (len(chain.stages) + 1)
        self.tracker = LiveBytes()
        self.tracker.listener = self._note_operator
        self.at_begin: list[int] = []
        self.at_end: list[int] = []
        self.peaks: list[int] = []
        self.durations = [0] * self.operations
        self._hardware = hardware
        self._lives: dict[StorageRecord, _Life] = {}
        # Storages that autograd has saved, held weakly.
        self._saved: weakref.WeakKeyDictionary[StorageEntry, _Life] = weakref.WeakKeyDictionary()
        self._by_address: weakref.WeakValueDictionary[int, StorageEntry] = (
            weakref.WeakValueDictionary()
        )

    @contextmanager
    def active(self) -> Iterator[None]:
        """Watch operators and parameter gradients; the step runs inside."""
        with ExitStack() as stack:
            for parameter in self.chain.root.parameters():
                if parameter.requires_grad:
                    hook = parameter.register_post_accumulate_grad_hook(self._exclude_gradient)
                    stack.callback(hook.remove)
            stack.enter_context(self.tracker)
            yield

    def _exclude_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.tracker.exclude([parameter.grad])

    # The step.

    def step(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Copy a batch to the device, run the forward operations and return the loss.

        Its ``backward()`` runs the others; ``B_L`` begins with the end of ``F_L``. Nothing of the
        copy outlives its last use.
        """
        self.tracker.start()
        self.tracker.exclude(self.chain.belongings())
        batch = [tensor.clone() for tensor in (inputs, labels) if tensor is not None]
        # Parameters and their views, buffers, and tensors that are not plain strided ones stay as
        # they are; changes in place are detected for all.
        with saved_tensors_hooks(self._pack, self._unpack):
            return self._forward(batch)

    def _forward(self, batch: list[torch.Tensor]) -> torch.Tensor:
        labels = batch.pop() if len(batch) > 1 else None
        interpreter = self.chain.interpreter(batch.pop())
        env = interpreter.env
        self._begin()
        for index, stage in enumerate(self.chain.stages):
            stage.run(interpreter)
            self._watch(env[stage.output], self.operations - 1 - index)
            self._reach(index + 1)
        loss = self.loss(env.pop(self.chain.stages[-1].output), labels)
        if not loss.requires_grad:
            raise InputError("no parameter of the model requires a gradient")
        env.clear()
        # The loss, and the gradient that it is given, belong to the caller.
        self.tracker.exclude([loss])
        loss.register_hook(self._start_backward)
        self._reach(len(self.chain.stages) + 1)
        return loss

    def _watch(self, value: torch.Tensor, operation: int) -> None:
        # The gradient of a stage's output is complete when its own backward operation may start.
        if value.requires_grad:
            value.register_hook(lambda _: self._reach(operation))

    def _start_backward(self, gradient: torch.Tensor) -> None:
        # Whoever calls backward() holds the first gradient until it returns.
        self.tracker.exclude([gradient])
        # That the backward pass has ended shows nowhere but in the engine.
        queue_callback(lambda: self._reach(self.operations))

    def _reach(self, operation: int) -> None:
        """End everything before an operation and begin it."""
        while len(self.at_end) < operation:
            self._end()
            if len(self.at_end) < self.operations:
                self._begin()

    def _begin(self) -> None:
        self.tracker.now = len(self.at_begin)
        self.at_begin.append(self.tracker.live)
        self.tracker.start_peak()

    def _end(self) -> None:
        self.at_end.append(self.tracker.live)
        self.peaks.append(self.tracker.peak)
        after = len(self.at_end)
        if after == self.operations:
            self.tracker.stop()
        for entry, life in list(self._saved.items()):
            if entry.held_elsewhere:
                # It cannot leave before the next operation, which therefore counts as a use.
                life.touched.add(after)

    # What it needs.

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

    def _pack(self, tensor: torch.Tensor) -> Handle:
        life = self._touch(tensor) if is_plain(tensor) else None
        if life is None:
            return Handle(tensor, None)
        storage = tensor.untyped_storage()
        entry = self._by_address.get(storage._cdata)
        # An address may be used again once its storage has died.
        if entry is None or entry.device_storage()._cdata != storage._cdata:
            life.saved = self.tracker.now
            entry = StorageEntry(life.saved, storage.nbytes())
            self._saved[entry] = life
            self._by_address[storage._cdata] = entry
        handle = Handle(tensor, entry)
        entry.add(handle)
        return handle

    def _unpack(self, handle: Handle) -> torch.Tensor:
        if handle.entry is not None:
            self._saved[handle.entry].touched.add(self.tracker.now)
        return handle.restore()

    def trace(self) -> Trace:
        """Return the trace of the step that has just been run, if it has the counted bytes."""
        last = self.operations - 1
        groups: Counter[tuple[tuple[int, ...], bool]] = Counter()
        for life in self._lives.values():
            died = last if life.record.died is None else life.record.died
            if life.record.size == 0 or died == life.record.born:
                continue
            uses = _uses(life, died)
            evictable = life.saved is not None and any(
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
        stages = [stage.name for stage in self.chain.stages] + ["loss"]
        named = [f"F:{name}" for name in stages] + [f"B:{name}" for name in reversed(stages)]
        operations = []
        for index, (name, duration) in enumerate(zip(named, self.durations, strict=True)):
            during = sum(t.size for t in tensors if t.uses[0] <= index <= t.uses[-1])
            after = sum(t.size for t in tensors if t.uses[0] <= index < t.uses[-1])
            # What the network keeps for itself outlives the step; no trace can say that.
            if after != self.at_end[index] and index < last:
                raise OffcertError(
                    f"{self.at_end[index]} bytes are alive after {name}, but the trace has {after}"
                )
            operations.append(Operation(name, duration, max(0, self.peaks[index] - during)))
        return Trace(operations, tensors)


def _uses(life: _Life, died: int) -> tuple[int, ...]:
    touched = {use for use in life.touched if life.record.born <= use <= died}
    if life.saved is not None:
        # What autograd has not saved yet cannot leave.
        touched |= set(range(life.record.born, min(life.saved, died) + 1))
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


def record(prepared: Prepared, hardware: Hardware | None = None) -> StagesRecorder:
    """Run one training step on fake tensors; operations last as a roofline says, or 0."""
    recorder = StagesRecorder(prepared.fake, prepared.batches.workload.loss, hardware)
    with prepared.mode:
        inputs, labels = prepared.batches.draw(torch.default_generator)
        with recorder.active():
            recorder.step(inputs, labels).backward()
        for parameter in prepared.fake.root.parameters():
            parameter.grad = None
    return recorder


def profile_stages(module: nn.Module, workload: Workload, hardware: Hardware) -> Measurement:
    """Return the trace of a network's stages, with the durations of a hardware model."""
    trace = record(prepare(module, workload), hardware).trace()
    # As the papers take it.
    return modelled(trace, hardware, Link.SIMPLEX)
