"""Contents of Python objects: taken down twice, they show whether the objects have changed.

One class a kind of object that can change. Each takes down only what the object itself holds, not
what is held by that in turn: whoever wants more takes down all objects that can be reached
(`offcert.runtime.segments.reachable`). No method of the user's is called: a dictionary whose ``[]``
makes something is read as `dict` reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import repeat
from operator import is_
from typing import Any

import torch
from torch import nn


class Missing:
    """A mark for an attribute or a variable that does not exist."""


MISSING = Missing()

# Attributes that every module has, for PyTorch's own use.
OF_MODULES = frozenset(nn.Module().__dict__) - {"training"}


class Content:
    """The contents of one object; `name` says for people how it was reached."""

    __slots__ = ("name", "thing")

    def __init__(self, thing: Any, name: str) -> None:
        self.thing, self.name = thing, name

    def take(self) -> Any:
        """Return a copy of the object's content, to be compared."""
        raise NotImplementedError

    def held(self) -> Iterable[Any]:
        """Return the objects that it holds: the same ones as long as it has not changed.

        Nothing for objects whose content is dear to take down.
        """
        return ()

    def same(self, one: Any, other: Any) -> bool:
        """Whether two results of `take` are the same."""
        return bool(one == other)

    def items(self, value: Any) -> Iterable[tuple[str, Any]]:
        """Return the objects in a taken content, each with a name for people."""
        return ()


class _Keyed(Content):
    """Objects that hold others by keys."""

    __slots__ = ()

    def same(self, one: Any, other: Any) -> bool:
        """Compare two results of `take`: the same keys and objects, in the same order."""
        return (
            len(one) == len(other)
            and all(map(is_, one.values(), other.values()))
            and all(map(is_, one, other))
        )

    def items(self, value: Any) -> Iterable[tuple[str, Any]]:
        """Return the objects in a taken content, each with a name for people."""
        return ((_short(key), held) for key, held in value.items())


class Entries(_Keyed):
    """A dictionary."""

    __slots__ = ()

    def held(self) -> Iterable[Any]:
        """Return its keys and values."""
        return *dict.keys(self.thing), *dict.values(self.thing)

    def take(self) -> Any:
        """Return a copy of the dictionary."""
        return dict(dict.items(self.thing))


class Attributes(_Keyed):
    """An object with a `__dict__`."""

    __slots__ = ()

    def held(self) -> Iterable[Any]:
        """Return names and values of its attributes."""
        held = self.thing.__dict__
        return *held, *held.values()

    def take(self) -> Any:
        """Return a copy of the object's attributes."""
        return dict(self.thing.__dict__)


class OfModule(_Keyed):
    """A module, without the tensors and plain values that it holds: `ModuleStates` has those."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a copy of the module's attributes, and of its children."""
        held = self.thing.__dict__
        found = {k: v for k, v in held.items() if k not in OF_MODULES and not is_state(v)}
        return found | held["_modules"]


class NamedAttributes(_Keyed):
    """Some attributes of an object, by name: its slots, or what a class says itself."""

    __slots__ = ("names",)

    def __init__(self, thing: Any, name: str, names: Iterable[str]) -> None:
        super().__init__(thing, name)
        self.names = tuple(names)

    def held(self) -> Iterable[Any]:
        """Return the values of these attributes."""
        if isinstance(self.thing, type):
            return map(vars(self.thing).get, self.names, repeat(MISSING))
        return map(getattr, repeat(self.thing), self.names, repeat(MISSING))

    def take(self) -> Any:
        """Return the values of these names; `MISSING` where there is none."""
        return dict(zip(self.names, self.held(), strict=True))


class Globals(NamedAttributes):
    """The global names that functions of a file refer to; they need not exist."""

    __slots__ = ()

    def held(self) -> Iterable[Any]:
        """Return the values of these names."""
        return map(self.thing.get, self.names, repeat(MISSING))


class Elements(Content):
    """A list or a deque."""

    __slots__ = ()

    def held(self) -> Iterable[Any]:
        """Return its elements."""
        return self.take()

    def take(self) -> Any:
        """Return a list of the elements."""
        kind: Any = list if isinstance(self.thing, list) else deque
        return list(kind.__iter__(self.thing))

    def same(self, one: Any, other: Any) -> bool:
        """Compare two results of `take`."""
        return len(one) == len(other) and all(map(is_, one, other))

    def items(self, value: Any) -> Iterable[tuple[str, Any]]:
        """Return the objects in a taken content, each with a name for people."""
        return ((str(index), held) for index, held in enumerate(value))


class Members(Elements):
    """A set."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a list of the members."""
        return list(set.__iter__(self.thing))


class Closed(Elements):
    """A variable that functions share: the cell of a closure."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a list of the cell's content; empty if the cell is."""
        try:
            return [self.thing.cell_contents]
        except ValueError:
            return []


class Variable(Elements):
    """A context variable."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a list of the context variable's value; `MISSING` if it has none."""
        return [self.thing.get(MISSING)]


# Values that never change, and that a module may be given back.
_PLAIN = (
    type(None), bool, int, float, complex, str, bytes,
    torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format,
)  # fmt: skip


def is_state(value: Any) -> bool:
    """Whether a module's attribute may be put back: plain values, tensors, tuples of these."""
    if isinstance(value, tuple):
        return all(map(is_state, value))
    return value is MISSING or isinstance(value, (*_PLAIN, torch.Tensor))


def swapped(value: Any, swap: dict[int, torch.Tensor]) -> Any:
    """Return a value in which some tensors, given by their `id`, are replaced by others."""
    if not isinstance(value, tuple):
        return swap.get(id(value), value)
    new = [swapped(each, swap) for each in value]
    return type(value)(*new) if hasattr(value, "_fields") else tuple(new)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors that a value is, or that a tuple holds."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for held in value for each in tensors_in(held)] if type(value) is tuple else []


def _short(key: Any) -> str:
    text = key if isinstance(key, str) else repr(key)
    return text if len(text) <= 40 else text[:37] + "..."
