"""What code refers to beside its arguments: globals, closures, defaults, and what they hold."""

from __future__ import annotations

import sys
import sysconfig
import types
from collections.abc import Iterator
from functools import cache
from typing import Any

from torch import nn

# Packages whose functions keep no state that training depends on, beside what PyTorch's own
# checkpointing and `ModuleStates` know.
_STATELESS = frozenset({*sys.stdlib_module_names, "numpy", "offcert", "torch"}) - {"__main__"}
_INSTALLED = tuple(
    {path for name, path in sysconfig.get_paths().items() if name in ("purelib", "platlib")}
)


@cache
def home(module: str) -> str:
    """Return whose code a Python module holds: ``"stateless"``, ``"installed"`` or ``"own"``."""
    if module.partition(".")[0] in _STATELESS:
        return "stateless"
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "installed" if file.startswith(_INSTALLED) else "own"


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
        and not callable(value)
        and not hasattr(type(value), "__get__")
    ]
