"""Live bytes and peaks per operation of a training step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch

from offcert.core.errors import PlanError
from offcert.runtime.stages.staged import StagedModel
from offcert.runtime.watch.entries import Entry, Handle, is_plain
from offcert.runtime.watch.tracker import LiveBytes

# (operation that saved it first, how many storages that operation had saved before)
Key = tuple[int, int]


class SavedTensors:
    """Saved-tensor hooks over a tracker's storages.

    Entries are held weakly: a storage dies when autograd releases the last handle on it. Storages
    that the tracker does not count (parameters and their views, buffers) and tensors that are not
    plain strided ones stay as they are; changes in place are detected for all.

    Attributes
    ----------
    on_save : callable
        Called with each new entry and the tensor it was made for.
    on_unpack : callable
        Called with an entry whenever autograd asks for a tensor over it.
    """

    def __init__(self, tracker: LiveBytes) -> None:
        self._tracker = tracker
        self.on_save: Callable[[Entry, torch.Tensor], None] | None = None
        self.on_unpack: Callable[[Entry], None] | None = None
        self._by_key: weakref.WeakValueDictionary[Key, Entry] = weakref.WeakValueDictionary()
        self._by_address: weakref.WeakValueDictionary[int, Entry] = weakref.WeakValueDictionary()
        self._counts: dict[int, int] = {}

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the entries that are alive."""
        return iter(list(self._by_key.values()))

    def get(self, key: Key) -> Entry | None:
        """Return an entry, or None if there is none or autograd has released it."""
        return self._by_key.get(key)

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
        # An address may be used again once the storage of an offloaded entry has died.
        if entry is None or entry.away or entry.device_storage()._cdata != storage._cdata:
            operation = self._tracker.now
            ordinal = self._counts.get(operation, 0)
            self._counts[operation] = ordinal + 1
            entry = Entry((operation, ordinal), storage.nbytes())
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

    Everything that runs a step under a tracker, on fake tensors or on real ones, with or without a
    plan, is a `Meter`, so that all of them hold the same references at the same time.

    Attributes
    ----------
    at_begin : list of int
        Live bytes when each operation begins.
    at_end : list of int
        Live bytes when each operation ends.
    peaks : list of int
        The most live bytes at once while each operation ran.
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
        """Note the live bytes before an operation.

        Raises
        ------
        PlanError
            If it is not the next operation of the latest step.
        """
        self.tracker.now = operation
        if operation != len(self.at_begin):
            raise PlanError(
                f"operation {operation} came where {len(self.at_begin)} was due: a backward pass "
                "must follow its own step"
            )
        self.transfer(operation)
        self.at_begin.append(self.tracker.live)
        self.tracker.start_peak()

    def transfer(self, operation: int) -> None:
        """Make a plan's moves before an operation; without a plan, none."""

    def end(self, operation: int) -> None:
        """Note the live bytes after an operation."""
        self.at_end.append(self.tracker.live)
        self.peaks.append(self.tracker.peak)
        if operation == self.staged.operations - 1:
            self.tracker.stop()

    def hand_over(self, tensor: torch.Tensor) -> None:
        """Leave out of the count what belongs to the caller from now on."""
        self.tracker.exclude([tensor])
