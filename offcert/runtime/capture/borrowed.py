"""Borrowing a user's model: whatever a captured step does to it is undone.

Parameters and buffers can be replaced by fake tensors meanwhile, wherever the model's Python
objects hold them, so that no weight is copied.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch

from offcert.core.errors import InputError
from offcert.runtime.capture.python_state import PythonState, Replace
from offcert.runtime.torch_private import TorchDispatchMode, set_versions
from offcert.runtime.watch.operators import changed_in_place, strided_tensors
from offcert.runtime.watch.sharded import Sharded


class Originals(TorchDispatchMode):
    """Keeps a copy of every storage that an operator is about to change, if it is an old one.

    A storage is old unless an operator under this mode has made it. When the mode is left, old
    storages have their bytes back and tensors over them the versions they had.
    """

    def __init__(self) -> None:
        super().__init__()
        self._new: set[int] = set()
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        # One tensor for each version that was counted on: views share it, detached ones do not.
        self._versions: dict[int, tuple[torch.Tensor, int]] = {}

    def __exit__(self, *reason: Any) -> None:
        """Undo the changes."""
        super().__exit__(*reason)
        self.restore()

    def restore(self) -> None:
        """Undo the changes once more, after the same has been run again without this mode."""
        with torch.no_grad():
            for original, copy in self._copies.values():
                # One that was resized meanwhile is its owner's to fill.
                if original.untyped_storage().nbytes() == copy.numel():
                    original.copy_(copy)
        for tensor, version in self._versions.values():
            set_versions((tensor,), (version,))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` after copying the storages that it is going to change."""
        kwargs = kwargs or {}
        for tensor in changed_in_place(func, args, kwargs):
            self._keep(tensor)
        if func.overloadpacket in _RUNNING_STATISTICS:
            # Their schemas do not say that these are changed.
            for tensor in strided_tensors(args[3:5]):
                self._keep(tensor)
        known = {_address(t) for t in strided_tensors((args, kwargs))}
        out = func(*args, **kwargs)
        self._new |= {_address(t) for t in strided_tensors(out)} - known
        return out

    def _keep(self, tensor: torch.Tensor) -> None:
        address = _address(tensor)
        if address in self._new:
            return
        if not tensor.is_inference():
            self._versions.setdefault(id(tensor), (tensor, tensor._version))
        if address in self._copies:
            return
        # All of the storage, however the tensor lies in it.
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        whole.set_(tensor.untyped_storage())
        self._copies[address] = (whole, whole.clone())


_RUNNING_STATISTICS = {
    torch.ops.aten.native_batch_norm,
    torch.ops.aten.cudnn_batch_norm,
    torch.ops.aten.miopen_batch_norm,
}


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


@contextmanager
def borrowed(*objects: Any, replace: Replace | None = None) -> Iterator[None]:
    """Put back attributes, lists, dictionaries, sets and gradients as they were before the block.

    That is of all that can be reached from the objects through attributes, containers, methods and
    closures. `replace` gives the tensor that stands for another one in the block.
    """
    state = PythonState(replace)
    for thing in objects:
        state.visit(thing)
    gradients = [(leaf, leaf.grad) for leaf in state.leaves.values()]
    try:
        for leaf, _ in gradients:
            leaf.grad = None
        yield
    finally:
        state.restore()
        for leaf, gradient in gradients:
            leaf.grad = gradient


@contextmanager
def python_state_kept(*objects: Any) -> Iterator[None]:
    """Put back attributes, lists, dictionaries and sets, but nothing that a step computes."""
    state = PythonState(numbers=False)
    for thing in objects:
        state.visit(thing)
    try:
        yield
    finally:
        state.restore()


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put back the state of every generator of random numbers that models use without asking."""
    python = random.getstate()
    numbers = numpy.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        numpy.random.set_state(numbers)


@contextmanager
def sharding_kept(
    sharded: Sharded, replace: Callable[[torch.Tensor], torch.Tensor] | None
) -> Iterator[None]:
    """Put back what `fully_shard` remembers of a model as it was before the block."""
    if any(True for _ in sharded.gradients()):
        raise InputError(
            "the model holds gradients that have not been reduced (set_requires_gradient_sync): "
            "capture a step before they are accumulated"
        )
    for module in sharded.modules:
        # What is gathered is freed: the block gathers it anew, in the place of nothing.
        module.reshard()
    before = [_Content(each) for each in sharded.remembered()]
    try:
        for each in sharded.parameters:
            # Gathered into storages of the block's own: those that are there stay freed.
            each.all_gather_outputs = []
            each.__dict__.pop("_unsharded_param", None)
            if replace is not None:
                each._sharded_param_data = replace(each._sharded_param_data)
                each.sharded_param = replace(each.sharded_param)
        yield
    finally:
        if replace is None:
            for module in sharded.modules:
                module.reshard()
        for content in before:
            content.put_back()


class _Content:
    """The attributes of an object, and the elements of the lists and sets among them."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing
        self._attributes = dict(vars(thing))
        held = self._attributes.items()
        self._lists = {name: list(value) for name, value in held if isinstance(value, list)}
        self._sets = {name: set(value) for name, value in held if isinstance(value, set)}

    def put_back(self) -> None:
        """Give the object its old content."""
        vars(self._thing).clear()
        vars(self._thing).update(self._attributes)
        for name, elements in self._lists.items():
            self._attributes[name][:] = elements
        for name, members in self._sets.items():
            self._attributes[name].clear()
            self._attributes[name].update(members)
