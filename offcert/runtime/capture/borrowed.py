"""Borrowing a user's model: whatever a captured step does to it is undone.

Parameters and buffers can be replaced by fake tensors meanwhile, wherever the model's Python
objects hold them, so that no weight is copied.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from offcert.core.errors import InputError
from offcert.runtime.capture.python_state import PythonState, Replace
from offcert.runtime.torch_private import TorchDispatchMode, set_versions
from offcert.runtime.watch.operators import changed_in_place, strided_tensors
from offcert.runtime.watch.sharded import Sharded


class Originals(TorchDispatchMode):
    """Copies every old storage before an operator changes it, and puts its bytes back at the end.

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
    closures; and random states. `replace` gives the tensor that stands for another one in the
    block.
    """
    state = PythonState(replace)
    for thing in objects:
        state.visit(thing)
    gradients = [(leaf, leaf.grad) for leaf in state.leaves.values()]
    with random_state_kept():
        try:
            for leaf, _ in gradients:
                leaf.grad = None
            yield
        finally:
            state.restore()
            for leaf, gradient in gradients:
                leaf.grad = gradient


@contextmanager
def python_state_kept(*objects: Any, deep: bool = True) -> Iterator[None]:
    """Put back attributes, lists, dictionaries and sets, but nothing that a step computes.

    That is of all that can be reached from the objects, or, if not `deep`, their own attributes and
    the elements of the lists and sets among these.
    """
    state = PythonState(numbers=False)
    for thing in objects:
        (state.visit if deep else state.hold)(thing)
    try:
        yield
    finally:
        state.restore()


@dataclass(frozen=True)
class RandomState:
    """The states of all generators that models use without asking."""

    torch: torch.Tensor
    python: Any
    numpy: Any
    cuda: tuple[Any, ...] = ()

    @classmethod
    def now(cls) -> RandomState:
        """Return the states as they are."""
        return cls(
            torch.get_rng_state(),
            random.getstate(),
            copy.deepcopy(numpy.random.get_state()),
            tuple(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else (),
        )

    def restore(self) -> None:
        """Go back to these states."""
        torch.set_rng_state(self.torch)
        random.setstate(self.python)
        numpy.random.set_state(self.numpy)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)

    def is_same(self, other: RandomState) -> bool:
        """Whether two states are equal."""
        return (
            torch.equal(self.torch, other.torch)
            and self.python == other.python
            and all(numpy.array_equal(a, b) for a, b in zip(self.numpy, other.numpy, strict=True))
            and all(torch.equal(a, b) for a, b in zip(self.cuda, other.cuda, strict=False))
        )


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put back the state of every generator of random numbers that models use without asking."""
    before = RandomState.now()
    try:
        yield
    finally:
        before.restore()


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
    with python_state_kept(*sharded.remembered(), deep=False):
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
