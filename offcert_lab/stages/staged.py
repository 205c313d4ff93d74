"""A chain of stages run as one training step, with its live bytes and peaks by operation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

import torch
from torch import fx

from offcert.core.errors import InputError, PlanError
from offcert.runtime.torch_private import queue_callback
from offcert.runtime.watch.entries import Handle, StorageEntry, is_plain
from offcert.runtime.watch.tracker import LiveBytes
from offcert.runtime.workloads.workload import loss_function
from offcert_lab.stages.linearise import Stage, StageChain


class Observer(Protocol):
    """An object that is told of the progress of a training step."""

    def begin(self, operation: int) -> None:
        """Operation number `operation` is about to start."""

    def end(self, operation: int) -> None:
        """Operation number `operation` has ended."""

    def hand_over(self, tensor: torch.Tensor) -> None:
        """The loss, or the gradient that it is given, belongs to the caller from now on."""


class _Clock:
    """Turns 'operation o has been reached' into begin and end events, one of each for each."""

    def __init__(self, observer: Observer, operations: int) -> None:
        self._observer, self._operations = observer, operations
        self._now = 0
        observer.begin(0)

    def reach(self, operation: int) -> None:
        """End everything before `operation` and begin it."""
        while self._now < operation:
            self._observer.end(self._now)
            self._now += 1
            if self._now < self._operations:
                self._observer.begin(self._now)

    def finish(self) -> None:
        """End everything; a second call does nothing."""
        self.reach(self._operations)


class StagedModel:
    """A linearised module and a loss: operations ``F_0 … F_L B_L … B_0``, the loss being stage L.

    ``F_i`` ends when its stage has run, ``B_i`` when the gradient of its stage's input is complete
    and ``B_0`` when the backward pass ends. A stage whose input needs no gradient ends with the
    backward pass too; the operations after it are then empty.
    """

    def __init__(self, chain: StageChain, loss: str) -> None:
        self.chain = chain
        self.loss = loss_function(loss)
        self.operations = 2 * (len(chain.stages) + 1)

    def operation_names(self) -> list[str]:
        """Return ``"F:stage"`` and ``"B:stage"`` in the order of execution."""
        stages = [stage.name for stage in self.chain.stages] + ["loss"]
        return [f"F:{name}" for name in stages] + [f"B:{name}" for name in reversed(stages)]

    def forward(self, batch: list[torch.Tensor], observer: Observer) -> torch.Tensor:
        """Run the forward operations and return the loss, whose ``backward()`` runs the others.

        The batch, input and perhaps labels, is emptied: nothing of it outlives its last use here,
        unless the caller holds it. The observer is told of every operation; ``begin`` of the first
        backward operation comes with the end of the last forward one.
        """
        labels = batch.pop() if len(batch) > 1 else None
        interpreter = fx.Interpreter(self.chain.root)
        env = interpreter.env = dict(self.chain.constants)
        env[self.chain.input] = batch.pop()
        clock = _Clock(observer, self.operations)
        for index, stage in enumerate(self.chain.stages):
            _run(stage, interpreter)
            _watch(env[stage.output], clock, self.operations - 1 - index)
            clock.reach(index + 1)
        loss = self.loss(env.pop(self.chain.stages[-1].output), labels)
        if not loss.requires_grad:
            raise InputError("no parameter of the model requires a gradient")
        env.clear()
        observer.hand_over(loss)
        loss.register_hook(lambda gradient: _start_backward(gradient, observer, clock))
        clock.reach(len(self.chain.stages) + 1)
        return loss


def _run(stage: Stage, interpreter: fx.Interpreter) -> None:
    env = interpreter.env
    for node, releases in zip(stage.nodes, stage.releases, strict=True):
        env[node] = interpreter.run_node(node)
        for dead in releases:
            env.pop(dead, None)


def _watch(value: torch.Tensor, clock: _Clock, operation: int) -> None:
    # The gradient of a stage's output is complete when its own backward operation may start.
    if value.requires_grad:
        value.register_hook(lambda _: clock.reach(operation))


def _start_backward(gradient: torch.Tensor, observer: Observer, clock: _Clock) -> None:
    # Whoever calls backward() holds the first gradient until it returns.
    observer.hand_over(gradient)
    # That the backward pass has ended shows nowhere but in the engine.
    queue_callback(clock.finish)


# (operation that saved it first, how many storages that operation had saved before)
Key = tuple[int, int]


class SavedTensors:
    """Saved-tensor hooks over a tracker's storages, which are held weakly.

    Storages that the tracker does not count (parameters and their views, buffers) and tensors that
    are not plain strided ones stay as they are; changes in place are detected for all. `on_save` is
    called with each new entry and its tensor, `on_unpack` with one that autograd asks for.
    """

    def __init__(self, tracker: LiveBytes) -> None:
        self._tracker = tracker
        self.on_save: Callable[[StorageEntry, torch.Tensor], None] | None = None
        self.on_unpack: Callable[[StorageEntry], None] | None = None
        self._by_key: weakref.WeakValueDictionary[Key, StorageEntry] = weakref.WeakValueDictionary()
        self._by_address: weakref.WeakValueDictionary[int, StorageEntry] = (
            weakref.WeakValueDictionary()
        )
        self._counts: dict[int, int] = {}

    def __iter__(self) -> Iterator[StorageEntry]:
        """Iterate over the entries that are alive."""
        return iter(list(self._by_key.values()))

    def clear(self) -> None:
        """Forget everything, before a new step."""
        self._by_key.clear()
        self._by_address.clear()
        self._counts = {}

    def hooks(self) -> torch.autograd.graph.saved_tensors_hooks:
        """Return the context in which autograd saves handles."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor: torch.Tensor) -> Handle:
        if not is_plain(tensor) or self._tracker.record(tensor.untyped_storage()) is None:
            return Handle(tensor, None)
        storage = tensor.untyped_storage()
        entry = self._by_address.get(storage._cdata)
        # An address may be used again once its storage has died.
        if entry is None or entry.device_storage()._cdata != storage._cdata:
            operation = self._tracker.now
            ordinal = self._counts.get(operation, 0)
            self._counts[operation] = ordinal + 1
            entry = StorageEntry((operation, ordinal), storage.nbytes())
            self._by_key[entry.key] = entry
            self._by_address[storage._cdata] = entry
            if self.on_save is not None:
                self.on_save(entry, tensor)
        handle = Handle(tensor, entry)
        entry.add(handle)
        return handle

    def _unpack(self, handle: Handle) -> torch.Tensor:
        if handle.entry is not None and self.on_unpack is not None:
            self.on_unpack(handle.entry)
        return handle.restore()


class Meter:
    """Runs training steps of a staged model and counts live bytes at every event.

    It is the same on fake tensors and on real ones, so that both hold the same references at the
    same time. `at_begin` and `at_end` are live bytes when each operation begins and ends, `peaks`
    the most while it ran.
    """

    def __init__(self, staged: StagedModel) -> None:
        self.staged = staged
        self.tracker = LiveBytes()
        self.saved = SavedTensors(self.tracker)
        self._reset()

    def _reset(self) -> None:
        self.at_begin: list[int] = []
        self.at_end: list[int] = []
        self.peaks: list[int] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Watch operators and parameter gradients; steps run inside."""
        with ExitStack() as stack:
            for parameter in self.staged.chain.root.parameters():
                if parameter.requires_grad:
                    hook = parameter.register_post_accumulate_grad_hook(self._exclude_gradient)
                    stack.callback(hook.remove)
            stack.enter_context(self.tracker)
            yield

    def _exclude_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.tracker.exclude([parameter.grad])

    def step(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Copy a batch to the device, run the forward operations and return the loss."""
        self._reset()
        self.saved.clear()
        self.tracker.start()
        self.tracker.exclude(self.staged.chain.belongings())
        batch = [tensor.clone() for tensor in (inputs, labels) if tensor is not None]
        with self.saved.hooks():
            return self.staged.forward(batch, self)

    def begin(self, operation: int) -> None:
        """Note the live bytes before an operation, which is the next one of the latest step."""
        self.tracker.now = operation
        if operation != len(self.at_begin):
            raise PlanError(
                f"operation {operation} came where {len(self.at_begin)} was due: a backward pass "
                "must follow its own step"
            )
        self.at_begin.append(self.tracker.live)
        self.tracker.start_peak()

    def end(self, operation: int) -> None:
        """Note the live bytes after an operation."""
        self.at_end.append(self.tracker.live)
        self.peaks.append(self.tracker.peak)
        if operation == self.staged.operations - 1:
            self.tracker.stop()

    def hand_over(self, tensor: torch.Tensor) -> None:
        """Leave out of the count what belongs to the caller from now on."""
        self.tracker.exclude([tensor])
