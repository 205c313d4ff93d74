"""Ways to train in less memory that others use, on a device with streams: each a context manager.

They are written for the engine's interface of a device (`offcert.runtime.device.interface`), so
that they run on a simulated one as on CUDA, with the order of work that the originals have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from offcert.runtime.device.interface import Arena, CopiedStorage, Device, DeviceEvent
from offcert.runtime.watch.saved_hooks import Owned
from offcert.runtime.watch.sharded import Parts
from offcert.runtime.watch.tracker import LiveBytes


class Way(ABC):
    """A way to train a model; steps run inside of its context.

    Attributes
    ----------
    name : str
        In tables.
    source : str
        What it is modelled on.
    everywhere : bool
        Whether it can be measured on a simulated device, which sees modules and not kernels.
    """

    name = ""
    source = ""
    everywhere = True

    def model(self, model: nn.Module) -> nn.Module:
        """Return the module that a step calls."""
        return model

    @abstractmethod
    def context(
        self, model: nn.Module, device: Device, counter: LiveBytes | None
    ) -> AbstractContextManager[Any]:
        """Return the context in which the model trains this way."""


class Plain(Way):
    """Everything stays on the device."""

    name = "plain"

    @contextmanager
    def context(
        self, model: nn.Module, device: Device, counter: LiveBytes | None
    ) -> Iterator[None]:
        """Do nothing."""
        yield


@dataclass
class _OnHost:
    """A saved tensor on the host, and how it was."""

    arena: Arena
    copied: DeviceEvent | None
    dtype: torch.dtype
    shape: torch.Size
    size: int


class _Saving:
    """Common parts of the two ways to move saved tensors."""

    def __init__(self, device: Device, counter: LiveBytes | None) -> None:
        self.device = device
        self._counter = counter
        self._free: dict[int, list[Arena]] = {}
        self._all: list[Arena] = []

    def send(self, tensor: torch.Tensor) -> tuple[_OnHost, torch.Tensor]:
        """Let ``out`` copy a tensor; return where to, and the bytes to hold until then."""
        with self._uncounted():
            data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
            arena = self._arena(data.numel())
        self.device.out.wait(self.device.compute.record())
        if data.numel():
            self.device.copy_out([CopiedStorage(data, arena, 0)])
        copied = self.device.out.record()
        return _OnHost(arena, copied, tensor.dtype, tensor.shape, data.numel()), data

    def bring(self, kept: _OnHost) -> torch.Tensor:
        """Take memory, let ``back`` copy, and let ``compute`` wait for it."""
        device = self.device
        with self._uncounted():
            data = device.allocate(kept.size)
            if self._counter is not None:
                self._counter.adopt(data)
        device.back.wait(device.compute.record())
        if kept.copied is not None:
            device.back.wait(kept.copied)
        if kept.size:
            device.copy_back([CopiedStorage(data, kept.arena, 0)])
        device.compute.wait(device.back.record())
        return data.view(kept.dtype).view(kept.shape)

    def _arena(self, size: int) -> Arena:
        free = self._free.get(size)
        if free:
            return free.pop()
        # Registering takes long; frameworks keep what they have for the next step, and so do we.
        self._all.append(self.device.arena(size))
        return self._all[-1]

    def end_step(self) -> None:
        """Let the next step use the same memory of the host."""
        self.device.synchronise()
        self._free = {}
        for arena in self._all:
            self._free.setdefault(arena.size, []).append(arena)

    def close(self) -> None:
        """Give the host's memory back."""
        self.device.synchronise()
        for arena in self._all:
            arena.close()

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        if self._counter is None:
            yield
        else:
            with self._counter.paused():
                yield


class SaveOnHost(Way):
    """Every saved tensor is copied to pinned memory at once, in the stream of the operators."""

    name = "save_on_cpu"
    source = "torch.autograd.graph.save_on_cpu(pin_memory=True)"

    @contextmanager
    def context(
        self, model: nn.Module, device: Device, counter: LiveBytes | None
    ) -> Iterator[_Saving]:
        """Save every tensor on the host; operators wait for each copy."""
        saving = _Saving(device, counter)

        def pack(tensor: torch.Tensor) -> _OnHost:
            kept, _ = saving.send(tensor)
            assert kept.copied is not None
            device.compute.wait(kept.copied)
            return kept

        with _closing(saving), torch.autograd.graph.saved_tensors_hooks(pack, saving.bring):
            yield saving


class Threshold(Way):
    """Tensors above a size leave in a stream of their own; a fixed number may be under way.

    Each comes back when it is asked for, and the operators wait.
    """

    name = "threshold"
    source = "activation offloading with a stash of five, from 1,024 bytes on, as in torchtune"

    def __init__(self, least: int = 1024, stash: int = 5) -> None:
        self._least = least
        self._stash = stash

    @contextmanager
    def context(
        self, model: nn.Module, device: Device, counter: LiveBytes | None
    ) -> Iterator[_Saving]:
        """Save tensors on the host; operators wait only if too many are under way."""
        saving = _Saving(device, counter)
        owned = Owned(Parts(model))
        under_way: deque[tuple[DeviceEvent, torch.Tensor]] = deque()

        def pack(tensor: torch.Tensor) -> Any:
            size = tensor.numel() * tensor.element_size()
            if size < self._least or tensor.untyped_storage() in owned:
                return tensor
            kept, data = saving.send(tensor)
            assert kept.copied is not None
            under_way.append((kept.copied, data))
            if len(under_way) > self._stash:
                _await_first(device, under_way)
            return kept

        def unpack(kept: Any) -> torch.Tensor:
            while under_way:
                _await_first(device, under_way)
            return saving.bring(kept) if isinstance(kept, _OnHost) else kept

        with _closing(saving), torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield saving


class MemoryBudget(Way):
    """The compiler decides what to save and what to compute again, within half of the memory."""

    name = "memory budget"
    source = "torch.compile with activation_memory_budget = 0.5"
    everywhere = False

    def model(self, model: nn.Module) -> nn.Module:
        """Return the model, compiled as a whole."""
        return torch.compile(model)  # type: ignore[return-value]

    @contextmanager
    def context(
        self, model: nn.Module, device: Device, counter: LiveBytes | None
    ) -> Iterator[None]:
        """Set the budget; graphs are made anew."""
        torch._dynamo.reset()
        with torch._functorch.config.patch(activation_memory_budget=0.5):
            yield
        torch._dynamo.reset()


@contextmanager
def _closing(saving: _Saving) -> Iterator[None]:
    try:
        yield
    finally:
        saving.close()


def _await_first(device: Device, under_way: deque[tuple[DeviceEvent, torch.Tensor]]) -> None:
    # The bytes must live until the wait has been handed over.
    copied, data = under_way.popleft()
    device.compute.wait(copied)
    del data


class Checkpointed(Way):
    """Every block runs again in the backward pass: only what goes into it is kept."""

    name = "checkpointed"
    source = "torch.utils.checkpoint(use_reentrant=False) around every block"

    @contextmanager
    def context(
        self, model: nn.Module, device: Device, counter: LiveBytes | None
    ) -> Iterator[None]:
        """Wrap the blocks; they are as before afterwards."""
        found = blocks(model)
        for module in found:
            _wrap(module)
        try:
            yield
        finally:
            for module in found:
                del module.forward


def _wrap(module: nn.Module) -> None:
    forward = module.forward

    def again(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    # In the module's own dictionary, in front of its class's.
    module.forward = again  # type: ignore[method-assign]


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks of a network: members of a list or chain that have parts of their own.

    The outermost ones; of a chain of single layers, stretches cannot be told apart, and there are
    none.
    """
    found: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        listed = isinstance(module, nn.Sequential | nn.ModuleList)
        for child in module.children():
            is_list = isinstance(child, nn.Sequential | nn.ModuleList)
            if listed and not is_list and any(True for _ in child.children()):
                found.append(child)
            else:
                visit(child)

    visit(model)
    return found


@contextmanager
def live_bytes_of(model: nn.Module) -> Iterator[LiveBytes]:
    """Count live bytes without the gradients of a model's parameters."""
    with LiveBytes() as counter:

        def exclude(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                counter.exclude([parameter.grad])

        trained = [each for each in model.parameters() if each.requires_grad]
        handles = [each.register_post_accumulate_grad_hook(exclude) for each in trained]
        try:
            yield counter
        finally:
            for handle in handles:
                handle.remove()
