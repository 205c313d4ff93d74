"""Everything that can change and that the code of some modules can reach.

Attributes of modules and of other objects, containers, closures, global variables that the code
names, class attributes, generators of random numbers, arrays, tensors. Code is not run: what it
could reach is taken for what it does reach, so more may be found than is used. Global variables
are looked up by the names in the code. Code of the standard library, PyTorch and NumPy is not
looked into, and of other installed packages only the modules' own classes, with the data that they
name.
"""

from __future__ import annotations

import enum
import logging
import sys
import threading
import types
import typing
import weakref
from collections import deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import is_
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from offcert.runtime.segments.code import (
    Cache,
    Sealed,
    content_of,
    data_of,
    functions_of,
    home,
    names_in,
)
from offcert.runtime.segments.contents import (
    Attributes,
    Content,
    Globals,
    Missing,
    NamedAttributes,
    OfModule,
)
from offcert.runtime.watch.operators import is_pure

# More objects than a part of a model reaches, unless it refers to its trainer. Arbitrary.
_MOST_OBJECTS = 100_000

# Names in code by which it reaches more than it names.
_ANYTHING = frozenset(
    ("eval", "exec", "globals", "__import__", "import_module", "builtins", "__builtins__",
     "modules", "getLogger", "_getframe", "currentframe", "f_globals", "get_objects")
)  # fmt: skip

# Values that never change; they may be replaced.
ATOMS = (
    type(None), bool, int, float, complex, str, bytes, enum.Enum, range, slice, Missing,
    torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format,
    types.CodeType, types.EllipsisType, types.NotImplementedType, types.BuiltinMethodType,
    type(object.__init__), type("".__str__), type(str.join),
)  # fmt: skip
# Files whose classes have no attributes that programs change.
_PLAIN_HOMES = "builtins", "types", "torch"
# What takes no part in what is trained: logs, locks, data that is loaded, types for checkers.
_IGNORED = (
    logging.Logger, type(threading.Lock()), type(threading.RLock()), threading.Thread,
    Dataset, DataLoader, typing.TypeVar, types.GenericAlias, types.UnionType, torch.finfo,
    torch.iinfo, torch.jit.ScriptFunction, torch.Stream, torch.Event,
)  # fmt: skip
_LOOKED_THROUGH = (
    tuple, frozenset, partial, types.MethodType, types.BuiltinMethodType, weakref.ref, property,
    types.MappingProxyType,
)  # fmt: skip
_CACHES = type(lru_cache(is_))
# Of what is not written in Python, that which keeps nothing elsewhere.
_ALL_IN_DICT = types.SimpleNamespace, BaseException, threading.local
# The flag of classes that are made while a program runs, as those of Python code are. Given by
# CPython.
_HEAP = 1 << 9
_FUNCTION_LIKE = types.FunctionType, staticmethod, classmethod


@dataclass
class Reached:
    """The objects that some modules' code can reach, modules among them.

    `contents` are of every object that can change, `tensors` those that other objects than modules
    hold; what may change without being seen is `unseen`, by name and kind.
    """

    contents: list[Content] = field(default_factory=list)
    modules: list[nn.Module] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    tensors: list[tuple[str, torch.Tensor]] = field(default_factory=list)


class Reach:
    """Finds the objects that code can reach, each once.

    Objects that are `known` (`id`) are not gone into: somebody else asks about them.
    """

    def __init__(self, known: Container[int] = ()) -> None:
        self.found = Reached()
        self._known = known
        self._seen: dict[int, Any] = {}
        self._named: dict[int, set[str]] = {}
        self._names: set[str] = set()
        self._queue: deque[tuple[str, Any]] = deque()

    def __contains__(self, number: object) -> bool:
        """Whether the object of an `id` has been found, or is known to somebody else."""
        return number in self._seen or number in self._known

    def visit(self, things: Iterable[tuple[str, Any]]) -> Reached:
        """Take these objects, with names for people, and all they reach; return only the new."""
        self.found = Reached()
        self._queue.extend(things)
        while self._queue:
            name, thing = self._queue.popleft()
            if id(thing) in self or is_atom(thing):
                continue
            if len(self._seen) >= _MOST_OBJECTS:
                self.found.unseen.append(f"{name}, after {_MOST_OBJECTS} other objects")
                self._queue.clear()
                break
            self._seen[id(thing)] = thing
            self._go_into(name, thing)
        return self.found

    def _add(self, content: Content) -> None:
        try:
            value = content.take()
        except Exception:
            kind = type(content.thing).__name__
            self.found.unseen.append(f"{content.name}, a {kind}")
            return
        self.found.contents.append(content)
        above = f"{content.name}." if content.name else ""
        self._queue.extend((above + key, held) for key, held in content.items(value))

    def _go_into(self, name: str, thing: Any) -> None:
        if isinstance(thing, torch.Tensor):
            self.found.tensors.append((name, thing))
            return
        if isinstance(thing, _IGNORED) or is_pure(thing):
            return
        if isinstance(thing, nn.Module):
            self._module(name, thing)
        elif isinstance(thing, _FUNCTION_LIKE):
            self._function(name, getattr(thing, "__func__", thing))
        elif isinstance(thing, type):
            self._class(name, thing)
        elif isinstance(thing, _LOOKED_THROUGH):
            self._queue.extend(_through(name, thing))
        elif isinstance(thing, types.ModuleType):
            # Whoever names a module names what it needs of it: see `_globals`.
            return
        else:
            self._object(name, thing)

    def _module(self, name: str, module: nn.Module) -> None:
        self.found.modules.append(module)
        if isinstance(module, torch.jit.ScriptModule):
            self.found.unseen.append(f"{name or 'it'}, a script module")
            return
        self._add(OfModule(module, name))
        above = f"{name}." if name else ""
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            self._queue.extend((f"{above}a hook", hook) for hook in hooks.values())
        self._kind(name, type(module))

    def _object(self, name: str, thing: Any) -> None:
        kind = type(thing)
        if str(kind.__module__).startswith("offcert."):
            return
        content = content_of(thing, name)
        if content is not None:
            self._add(content)
        whose = home(kind.__module__)
        slots = [
            each
            for base in kind.__mro__
            for each in _slots_of(base)
            if each not in ("__dict__", "__weakref__")
        ]
        if slots and whose != "stateless":
            self._add(NamedAttributes(thing, name, slots))
        if isinstance(thing, _CACHES):
            self.found.contents.append(Cache(thing, name, self._names))
            self._queue.append((name, thing.__wrapped__))
            return
        if hasattr(thing, "__dict__"):
            self._add(Attributes(thing, name))
        if content is None and not slots and not _in_python(thing):
            self._sealed(name, thing)
        if whose != "stateless":
            self._kind(name, kind)

    def _sealed(self, name: str, thing: Any) -> None:
        sealed = Sealed(thing, name)
        # What PyTorch keeps elsewhere is not for pickling: storages, objects of C++.
        known = not str(type(thing).__module__).startswith(("torch", "__torch__"))
        try:
            known = known and sealed.take() == sealed.take()
        except Exception:
            known = False
        if known:
            self.found.contents.append(sealed)
        else:
            self.found.unseen.append(f"{name}, a {type(thing).__name__}")

    # Code.

    def _kind(self, name: str, kind: type) -> None:
        """Go into the class of an object, and those that it inherits from."""
        for each in kind.__mro__:
            if home(each.__module__) != "stateless" and id(each) not in self._seen:
                self._seen[id(each)] = each
                self._add(NamedAttributes(each, each.__qualname__, data_of(each)))
                if home(type(each).__module__) == "own":
                    self._kind(name, type(each))
        self._queue.extend((kind.__name__, function) for function in functions_of(kind))

    def _class(self, name: str, kind: type) -> None:
        if home(kind.__module__) == "own" and not issubclass(kind, nn.Module):
            self._seen.pop(id(kind), None)
            self._kind(name, kind)
        elif home(kind.__module__) == "own":
            self._add(NamedAttributes(kind, kind.__qualname__, data_of(kind)))

    def _function(self, name: str, function: Any) -> None:
        whose = home(getattr(function, "__module__", None) or "")
        code = getattr(function, "__code__", None)
        if code is not None and whose == "own":
            self._names |= names_in(code)
        if whose == "stateless" or code is None:
            # A decorator of a library may have been put around somebody's own function.
            cells = getattr(function, "__closure__", None) or ()
            wrapped = getattr(function, "__wrapped__", None)
            held = [(name, cell) for cell in cells] + [(name, wrapped)]
            self._queue.extend(each for each in held if each[1] is not None)
            return
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if variable == "__classdict__":
                # The names with which a class was made, for annotations (Python 3.14).
                continue
            self._queue.append((f"{variable}, a variable of {function.__qualname__}", cell))
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._queue.extend((f"a default of {function.__qualname__}", each) for each in defaults)
        if function.__dict__:
            self._add(Attributes(function, function.__qualname__))
        names = names_in(code)
        if whose == "own":
            # `sys.modules`, not those of a model.
            for each in sorted(names & _ANYTHING - ({"modules"} if "sys" not in names else set())):
                self.found.unseen.append(f"what {function.__qualname__} reaches by {each}")
            # Imported where they are used.
            for each in sorted(names - function.__globals__.keys()):
                module = sys.modules.get(each)
                if module is not None and home(each) == "own":
                    self._globals(module.__dict__, names, deep=True)
        self._globals(function.__globals__, names, deep=whose == "own")

    def _globals(self, space: dict[str, Any], names: frozenset[str], *, deep: bool) -> None:
        """Go into the global variables that code names; those of functions are constants."""
        known = self._named.setdefault(id(space), set())
        new = {name for name in names - known if name in space}
        known |= new
        file = str(space.get("__name__", "a file"))
        data = []
        for name in sorted(new):
            value = space[name]
            if isinstance(value, types.ModuleType):
                if deep and home(value.__name__) == "own":
                    self._globals(value.__dict__, names, deep=True)
                continue
            if not isinstance(value, types.FunctionType | type | types.BuiltinFunctionType):
                data.append(name)
                if not deep and not _is_data(value):
                    continue
            elif not deep:
                continue
            self._queue.append((f"{name} of {file}", value))
        if data:
            self.found.contents.append(Globals(space, file, data))


def is_atom(thing: Any) -> bool:
    """Whether a value never changes."""
    if isinstance(thing, types.BuiltinMethodType):
        return isinstance(thing.__self__, types.ModuleType | type | None)
    return isinstance(thing, ATOMS) and (
        type(thing).__module__ in _PLAIN_HOMES or not getattr(thing, "__dict__", None)
    )


def _through(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, tuple | frozenset):
        yield from ((f"{name}[{index}]", each) for index, each in enumerate(thing))
    elif isinstance(thing, partial):
        yield from ((name, each) for each in (thing.func, thing.args, thing.keywords))
    elif isinstance(thing, types.MethodType):
        yield from ((name, each) for each in (thing.__self__, thing.__func__))
    elif isinstance(thing, types.BuiltinMethodType):
        yield name, thing.__self__
    elif isinstance(thing, types.MappingProxyType):
        yield from ((f"{name}.{key}", each) for key, each in thing.items())
    elif isinstance(thing, property):
        yield from ((name, each) for each in (thing.fget, thing.fset))
    else:
        yield name, thing()


def _is_data(value: Any) -> bool:
    return is_atom(value) or isinstance(value, torch.Tensor) or content_of(value, "") is not None


def _slots_of(kind: type) -> Iterator[str]:
    slots = vars(kind).get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        private = name.startswith("__") and not name.endswith("__")
        yield f"_{kind.__name__.lstrip('_')}{name}" if private else name


def _in_python(thing: Any) -> bool:
    """Whether an object keeps all it holds in its `__dict__`, as classes written in Python do."""
    if isinstance(thing, _ALL_IN_DICT):
        return True
    for kind in type(thing).__mro__[:-1]:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if not kind.__flags__ & _HEAP or not (file or kind.__module__ == "__main__"):
            return False
        if file is not None and not file.endswith((".py", ".pyc")):
            return False
    return hasattr(thing, "__dict__")
