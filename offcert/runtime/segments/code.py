"""Contents of objects that are no containers: generators, arrays, caches, and opaque ones."""

from __future__ import annotations

import array
import pickle
import random
import sys
import types
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Set
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

from offcert.runtime.segments.contents import Closed, Content, Elements, Entries, Members, Variable

# Packages whose functions keep no state that training depends on, beside what PyTorch's own
# checkpointing and `ModuleStates` know.
_STATELESS = frozenset({*sys.stdlib_module_names, "numpy", "offcert", "torch"}) - {"__main__"}
# Folders of packages that are installed: of an environment, of those below it, of a user. Given by
# Python and by Debian.
_INSTALLED = {"site-packages", "dist-packages"}


@cache
def home(module: object) -> str:
    """Return whose code a Python module holds: ``"stateless"``, ``"installed"`` or ``"own"``.

    A class whose objects have a ``__module__`` each, as compiled ones may, has none of its own, but
    a descriptor: then nobody is trusted.
    """
    if not isinstance(module, str):
        return "own"
    if module.partition(".")[0] in _STATELESS:
        return "stateless"
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "own" if _INSTALLED.isdisjoint(Path(file).parts) else "installed"


@cache
def names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes that code refers to, that in it included."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= names_in(constant)
    return frozenset(found)


def functions_of(kind: type) -> Iterator[types.FunctionType]:
    """Yield the functions that a class defines or inherits, but for those of stateless packages.

    Of an installed module's class, those that a call of the module may come by.
    """
    methods: dict[str, list[types.FunctionType]] = {}
    for each in kind.__mro__:
        if home(each.__module__) != "stateless":
            for name, value in vars(each).items():
                methods.setdefault(name, []).extend(_functions_in(value))
    if home(kind.__module__) == "own":
        if issubclass(kind, nn.Module):
            # No call of a module makes it.
            methods.pop("__init__", None)
        for found in methods.values():
            yield from found
        return
    wanted = ["forward", "__call__", "__getattr__"]
    while wanted:
        for function in methods.pop(wanted.pop(), ()):
            yield function
            wanted.extend(names_in(function.__code__) & methods.keys())


def _functions_in(value: Any) -> Iterator[types.FunctionType]:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    parts = (value.fget, value.fset) if isinstance(value, property) else (value,)
    for part in parts:
        while part is not None:
            if isinstance(part, types.FunctionType):
                yield part
            part = getattr(part, "__wrapped__", None)


def data_of(kind: type) -> list[str]:
    """Return the names of what a class itself holds beside functions and descriptors."""
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith(("__", "_abc_"))
        and not isinstance(value, type)
        and not hasattr(type(value), "__get__")
    ]


class Random(Content):
    """A generator of random numbers."""

    __slots__ = ()

    def take(self) -> Any:
        """Return the state of the generator."""
        return _state_of(self.thing)[0]()

    def put(self, value: Any) -> None:
        """Give the generator a state that `take` has returned before."""
        _state_of(self.thing)[1](value)

    def same(self, one: Any, other: Any) -> bool:
        """Compare two results of `take`."""
        if isinstance(one, torch.Tensor):
            return torch.equal(one, other)
        return _as_text(one) == _as_text(other)


class Numbers(Content):
    """An array of numbers that is no tensor."""

    __slots__ = ()

    def take(self) -> Any:
        """Return length and checksums of the array's bytes."""
        view = memoryview(self.thing)
        contiguous = view if view.c_contiguous else numpy.ascontiguousarray(self.thing).data
        return view.nbytes, zlib.crc32(contiguous), zlib.adler32(contiguous)


class Sealed(Content):
    """An object that shows what it holds only by how it would be pickled."""

    __slots__ = ()

    def take(self) -> Any:
        """Return the object as pickled bytes."""
        with warnings.catch_warnings():
            # Iterators of `itertools` will not be pickled for ever.
            warnings.simplefilter("ignore")
            return pickle.dumps(self.thing)


class Cache(Content):
    """A function of `functools.lru_cache`; `names` are those that the code refers to.

    What it has computed once it returns again, so a segment may find more than it found first. But
    it must not forget anything when it runs again, nor may the code look how often it was asked.
    """

    __slots__ = ("names",)

    def __init__(self, thing: Any, name: str, names: Set[str]) -> None:
        super().__init__(thing, name)
        self.names = names

    def take(self) -> Any:
        """Return how often the cache was asked, if that counts or it forgets; else None."""
        hits, misses, most, size = self.thing.cache_info()
        counts = (most is not None and size >= most) or "cache_info" in self.names
        return (misses, size, hits) if counts else None

    def same(self, one: Any, other: Any) -> bool:
        """Whether it has neither been asked where that counts, nor begun to forget."""
        return bool(other is None or one == other)


def content_of(thing: Any, name: str) -> Content | None:
    """Return the content of a container, a generator of random numbers, or an array; else None."""
    for kinds, content in _KINDS:
        if isinstance(thing, kinds):
            if isinstance(thing, numpy.ndarray) and thing.dtype.hasobject:
                return None
            return content(thing, name)
    return None


_KINDS: tuple[tuple[Any, Callable[[Any, str], Content]], ...] = (
    (dict, Entries),
    ((list, deque), Elements),
    (set, Members),
    (type((lambda x: lambda: x)(0).__closure__[0]), Closed),  # type: ignore[index]
    (ContextVar, Variable),
    (
        (torch.Generator, random.Random, numpy.random.Generator, numpy.random.RandomState),
        Random,
    ),
    ((numpy.ndarray, array.array, bytearray), Numbers),
)


def _state_of(thing: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return two functions: one gives the state of a random generator, one sets it."""
    if isinstance(thing, random.Random):
        return thing.getstate, thing.setstate
    if isinstance(thing, numpy.random.Generator):
        bits = thing.bit_generator
        return lambda: bits.state, lambda value: setattr(bits, "state", value)
    return thing.get_state, thing.set_state


def _as_text(state: Any) -> Any:
    """Return a state of NumPy's generators in a form that can be compared."""
    if isinstance(state, dict):
        return {key: _as_text(value) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(map(_as_text, state))
    return state.tobytes() if isinstance(state, numpy.ndarray) else state
