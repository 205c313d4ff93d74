"""Operators that a user has written in Python, and what is declared to be pure."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from offcert.core.errors import InputError
from offcert.runtime.torch_private import dispatch_dump

# Namespaces of operators that PyTorch itself brings.
_OWN = frozenset(("aten", "prim", "prims", "higher_order", "profiler", "_c10d_functional", "c10d"))

_PURE: set[str] = set()
# The objects themselves, so that no address is used again.
_PURE_OBJECTS: dict[int, Any] = {}

Thing = TypeVar("Thing")


def pure(thing: Thing) -> Thing:
    """Declare that something changes nothing that results depend on, so that it may run again.

    A module that calls an operator written in Python, or that reaches an object which may change
    unseen, is never run again by a plan unless that operator or object was declared to be pure.

    Parameters
    ----------
    thing : str or object
        The name of an operator of `torch.library` (``"mine::attention"``), or a function, class or
        object, which is not looked into any more.

    Returns
    -------
    str or object
        What was given, so that it can be used as a decorator.

    Raises
    ------
    InputError
        If a string is not the name of an operator.

    Examples
    --------
    >>> offcert.pure("mine::attention")
    'mine::attention'
    """
    if isinstance(thing, str):
        if thing.count("::") != 1:
            raise InputError(f"an operator's name is namespace::name, not {thing}")
        _PURE.add(thing)
    else:
        _PURE_OBJECTS[id(thing)] = thing
    return thing


def is_pure(thing: Any) -> bool:
    """Whether an object was declared to be pure."""
    return id(thing) in _PURE_OBJECTS


@cache
def _is_python(name: str) -> bool:
    """Whether an operator has a kernel that is written in Python."""
    kernels = dispatch_dump(name).splitlines()
    return any(
        ".py:" in line
        for line in kernels
        if not line.startswith(("name", "schema", "debug", "Meta"))
    )


def foreign_name(func: Any) -> str | None:
    """Return the name of an operator that is written in Python, unless declared pure, or None."""
    if getattr(func, "namespace", "aten") in _OWN:
        return None
    name: str = func.name().split(".")[0]
    return name if name not in _PURE and _is_python(name) else None
