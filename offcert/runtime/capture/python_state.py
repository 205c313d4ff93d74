"""A record of mutable Python objects: what they held, to be put back."""

from __future__ import annotations

import random
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import is_, setitem
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader, Dataset

from offcert.runtime.segments.code import Random
from offcert.runtime.watch.entries import is_plain

# Objects of these kinds are not looked into: they are not a model's state.
_OPAQUE = (
    type, types.ModuleType, types.BuiltinFunctionType, torch.Tensor, torch.dtype, torch.device,
    torch.optim.Optimizer, Dataset, DataLoader,
)  # fmt: skip
_CONTAINERS = dict, list, deque, set, tuple
_FUNCTIONS = types.FunctionType, types.MethodType, partial
_GENERATORS = torch.Generator, random.Random, numpy.random.Generator, numpy.random.RandomState
# Objects that are looked at, the nearest first: a model that refers to its trainer refers to
# everything. Arbitrary.
_MOST_OBJECTS = 200_000
# Bytes of the largest array that is looked at; larger ones are data. Arbitrary.
_LARGEST_ARRAY = 2**24

Replace = Callable[[torch.Tensor], torch.Tensor]


class PythonState:
    """The content of objects: attributes, elements, closures, arrays, generators, tensors.

    What tensors hold is not recorded, only which storage they have.

    `replace` gives the tensor that stands for another one from now on, in modules and in what can
    be reached from them. Without `numbers`, tensors, arrays and generators are not recorded: so it
    is done while a step is.
    """

    def __init__(self, replace: Replace | None = None, *, numbers: bool = True) -> None:
        self._replace = replace
        self._numbers = numbers
        self._undo: list[Callable[[], Any]] = []
        # The objects themselves, so that no address is used again meanwhile.
        self._seen: dict[int, Any] = {}
        # By `id`: parameters, and other tensors that gradients are accumulated for.
        self.leaves: dict[int, torch.Tensor] = {}

    def restore(self) -> None:
        """Give every object the content it had."""
        for undo in reversed(self._undo):
            undo()

    def visit(self, root: Any) -> None:
        """Record `root` and what can be reached from it, the nearest first; replace tensors."""
        found: list[Any] = []
        # Whether a thing belongs to a module.
        queue = deque([(root, False)])
        if isinstance(root, nn.Module):
            queue = deque((module, True) for module in root.modules())
        most = len(self._seen) + _MOST_OBJECTS
        while queue and len(self._seen) < most:
            thing, inside = queue.popleft()
            if isinstance(thing, torch.Tensor):
                self._record_tensor(thing)
                continue
            if id(thing) in self._seen or not _is_state(thing):
                continue
            self._seen[id(thing)] = thing
            inside = inside or isinstance(thing, nn.Module)
            if inside:
                found.append(thing)
            queue.extend((held, inside) for held in self._record(thing))
        if self._replace is not None:
            for thing in found:
                self._replace_in(thing)

    def hold(self, thing: Any) -> None:
        """Record the attributes of an object, and the lists and sets among them."""
        for held in self._record(thing):
            if isinstance(held, list | set):
                list(self._record(held))

    def _record_tensor(self, tensor: torch.Tensor) -> None:
        if not self._numbers or id(tensor) in self._seen or not tensor.is_leaf:
            return
        self._seen[id(tensor)] = tensor
        if is_lazy(tensor):
            self._undo.append(partial(_unmaterialise, tensor, type(tensor)))
            return
        required = tensor.requires_grad
        if required or isinstance(tensor, nn.Parameter):
            self.leaves[id(tensor)] = tensor
        # A fake twin takes what happens in the place of its original.
        if self._replace is None and is_plain(tensor):
            self._undo.append(partial(_refill_tensor, tensor, tensor.detach(), required))

    def _record(self, thing: Any) -> Iterator[Any]:
        """Remember the content of one object; yield the objects that it holds."""
        if isinstance(thing, _FUNCTIONS):
            yield from self._record_function(thing)
        elif isinstance(thing, _GENERATORS):
            if self._numbers:
                generator = Random(thing, "")
                self._undo.append(partial(generator.put, generator.take()))
        elif isinstance(thing, numpy.ndarray):
            if self._numbers:
                self._undo.append(partial(setitem, thing, ..., thing.copy()))
        elif isinstance(thing, dict):
            # Of a registry whose `[]` makes instances, the classes that it holds.
            items = dict(_kind_of(thing).items(thing))
            self._undo.append(partial(_refill, thing, items))
            yield from items.values()
        elif isinstance(thing, list | deque):
            elements = list(thing)
            self._undo.append(partial(_refill_list, thing, elements))
            yield from elements
        elif isinstance(thing, set):
            members = set(thing)
            self._undo.append(partial(_refill_set, thing, members))
            yield from members
        elif isinstance(thing, tuple):
            yield from thing
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict) and not isinstance(thing, types.MethodType):
            saved = dict(attributes)
            self._undo.append(partial(_refill_object, thing, type(thing), saved))
            yield from saved.values()

    def _record_function(self, function: Any) -> Iterator[Any]:
        if isinstance(function, types.MethodType):
            yield from (function.__self__, function.__func__)
        elif isinstance(function, partial):
            yield from (function.func, function.args, function.keywords)
        else:
            for cell in function.__closure__ or ():
                try:
                    content = cell.cell_contents
                except ValueError:
                    continue
                self._undo.append(partial(setattr, cell, "cell_contents", content))
                yield content

    def _replace_in(self, thing: Any) -> None:
        attributes = getattr(thing, "__dict__", None)
        for mapping in (thing, attributes):
            if isinstance(mapping, dict):
                for key, value in list(mapping.items()):
                    new = self._stand_in(value)
                    if new is not value:
                        mapping[key] = new
        if isinstance(thing, list | deque):
            for index, value in enumerate(thing):
                thing[index] = self._stand_in(value)

    def _stand_in(self, value: Any) -> Any:
        assert self._replace is not None
        if isinstance(value, torch.Tensor):
            return self._replace(value)
        if type(value) is tuple:
            new = tuple(map(self._stand_in, value))
            return new if any(a is not b for a, b in zip(new, value, strict=True)) else value
        return value


def _is_state(thing: Any) -> bool:
    if isinstance(thing, (*_CONTAINERS, *_GENERATORS, nn.Module)):
        return True
    if isinstance(thing, numpy.ndarray):
        return bool(thing.flags.writeable) and thing.nbytes <= _LARGEST_ARRAY
    if isinstance(thing, _OPAQUE):
        return False
    # What we have attached to a model is not the model's, and what PyTorch's compiler has neither.
    # What `fully_shard` has attached is put back as a whole (`sharding_kept`).
    function = isinstance(thing, _FUNCTIONS) and not isinstance(thing, partial)
    home = getattr(thing if function else type(thing), "__module__", None) or ""
    if home.startswith(("offcert.", "torch._", "torch.distributed.")):
        return False
    return isinstance(thing, _FUNCTIONS) or hasattr(thing, "__dict__")


def _unmaterialise(tensor: torch.Tensor, kind: type) -> None:
    """Make a parameter or buffer of a lazy module one without a shape again."""
    if type(tensor) is not kind:
        tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        tensor.__class__ = kind


def _refill_tensor(tensor: torch.Tensor, data: torch.Tensor, required: bool) -> None:
    """Give a tensor the storage that it had; what the storage holds is another matter."""
    same = (
        tensor.untyped_storage()._cdata == data.untyped_storage()._cdata
        and tensor.size() == data.size()
        and tensor.stride() == data.stride()
        and tensor.storage_offset() == data.storage_offset()
    )
    if not same:
        tensor.data = data
    if tensor.is_leaf and tensor.requires_grad is not required:
        tensor.requires_grad_(required)


def _refill_list(thing: Any, elements: list[Any]) -> None:
    if len(thing) != len(elements) or any(a is not b for a, b in zip(thing, elements, strict=True)):
        thing.clear()
        thing.extend(elements)


def _refill_set(thing: set[Any], members: set[Any]) -> None:
    if thing != members:
        thing.clear()
        thing |= members


def _refill_object(thing: Any, kind: type, saved: dict[str, Any]) -> None:
    if type(thing) is not kind:
        # Lazy modules become others at their first call.
        thing.__class__ = kind
    _refill(thing.__dict__, saved)


def _kind_of(thing: dict[Any, Any]) -> Any:
    """Return the class whose methods read and change a dictionary: subclasses do other things."""
    return OrderedDict if isinstance(thing, OrderedDict) else dict


def _refill(thing: dict[Any, Any], items: dict[Any, Any]) -> None:
    """Let a dictionary hold these items, in this order, and no others."""
    kind = _kind_of(thing)
    now = dict(kind.items(thing))
    if len(now) != len(items) or not all(map(is_, now, items)):
        kind.clear(thing)
        now = {}
    for key, held in items.items():
        if key not in now or now[key] is not held:
            kind.__setitem__(thing, key, held)
