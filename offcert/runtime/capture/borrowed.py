"""Borrowing a user's model: whatever a captured step does to it is undone.

Parameters and buffers can be replaced by fake tensors meanwhile, wherever the model's Python
objects hold them, so that no weight is copied.
"""

from __future__ import annotations

import random
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

# Objects of these kinds are not looked into: they are not the model's state.
_OPAQUE = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, torch.Tensor,
    torch.Generator, torch.dtype, torch.device, torch.optim.Optimizer,
)  # fmt: skip
# A model that refers to its trainer refers to everything; so much is looked at.
_MOST_OBJECTS = 200_000

Replace = Callable[[torch.Tensor], torch.Tensor]


@contextmanager
def borrowed(*objects: Any, replace: Replace | None = None) -> Iterator[None]:
    """Put back attributes, lists, dictionaries, sets and gradients as they were before the block.

    Parameters
    ----------
    *objects : object
        What is borrowed, with all that can be reached from there through attributes and
        containers.
    replace : callable, optional
        Gives the tensor that stands for another one in the block.
    """
    state = _State(replace)
    for thing in objects:
        state.visit(thing)
    gradients = [(p, p.grad) for p in state.parameters.values()]
    try:
        for parameter, _ in gradients:
            parameter.grad = None
        yield
    finally:
        state.restore()
        for parameter, gradient in gradients:
            parameter.grad = gradient


@contextmanager
def python_state_kept(*objects: Any) -> Iterator[None]:
    """Put back attributes, lists, dictionaries and sets, but not gradients.

    Parameters
    ----------
    *objects : object
        As for `borrowed`.
    """
    state = _State(None)
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
    numpy = _numpy_random()
    numbers = None if numpy is None else numpy.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(numbers)


def _numpy_random() -> Any:
    import numpy

    return numpy.random


class _State:
    """A record of mutable Python objects, in which tensors can be replaced."""

    def __init__(self, replace: Replace | None) -> None:
        self._replace = replace
        self._undo: list[Callable[[], None]] = []
        # The objects themselves, so that no address is used again meanwhile.
        self._seen: dict[int, Any] = {}
        self.parameters: dict[int, nn.Parameter] = {}

    def restore(self) -> None:
        """Give every object the content it had."""
        for undo in reversed(self._undo):
            undo()

    def visit(self, root: Any) -> None:
        """Record `root` and what can be reached from it, then replace tensors there."""
        found: list[Any] = []
        stack = [root]
        while stack and len(self._seen) < _MOST_OBJECTS:
            thing = stack.pop()
            if id(thing) in self._seen or not self._is_state(thing):
                continue
            self._seen[id(thing)] = thing
            found.append(thing)
            stack += self._record(thing)
        if self._replace is not None:
            for thing in found:
                self._replace_in(thing)

    @staticmethod
    def _is_state(thing: Any) -> bool:
        if isinstance(thing, dict | list | deque | set | tuple):
            return True
        return not isinstance(thing, _OPAQUE) and hasattr(thing, "__dict__")

    def _record(self, thing: Any) -> list[Any]:
        """Remember the content of one object; return what it holds."""
        held: list[Any] = []
        if isinstance(thing, dict):
            items = dict(thing)
            self._undo.append(lambda: _refill_dict(thing, items))
            held += items.values()
        elif isinstance(thing, list | deque):
            elements = list(thing)
            self._undo.append(lambda: _refill_list(thing, elements))
            held += elements
        elif isinstance(thing, set):
            members = set(thing)
            self._undo.append(lambda: _refill_set(thing, members))
            held += members
        elif isinstance(thing, tuple):
            held += thing
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict):
            saved, kind = dict(attributes), type(thing)
            self._undo.append(lambda: _refill_object(thing, kind, saved))
            held += saved.values()
            if isinstance(thing, nn.Module):
                owned = [p for p in thing._parameters.values() if p is not None]
                self.parameters |= {id(parameter): parameter for parameter in owned}
        return held

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


def _refill_dict(thing: dict[Any, Any], items: dict[Any, Any]) -> None:
    if len(thing) != len(items) or any(
        k1 is not k2 or v1 is not v2
        for (k1, v1), (k2, v2) in zip(thing.items(), items.items(), strict=True)
    ):
        thing.clear()
        thing.update(items)


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
    _refill_dict(thing.__dict__, saved)
