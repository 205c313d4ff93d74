"""Operators that a user has written in Python, and what is declared to be pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from offcert.core.errors import InputError
from offcert.runtime.segments.keeper import storage_number

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
    kernels = torch._C._dispatch_dump(name).splitlines()
    return any(
        ".py:" in line
        for line in kernels
        if not line.startswith(("name", "schema", "debug", "Meta"))
    )


class Operators(TorchDispatchMode):
    """Watches the operators of a rehearsal's first run.

    Attributes
    ----------
    foreign : list of str
        Names of operators that are written in Python, and not declared to be pure.
    """

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self._told: list[Callable[[], None]] = []
        # Addresses of the storages that the latest operator has returned.
        self._made: set[int] = set()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let `torch.compile` work as without the mode."""
        return True

    @contextmanager
    def told(self, ended: Callable[[], None]) -> Iterator[None]:
        """Call a function during the block when an operator has ended."""
        self._told.append(ended)
        try:
            yield
        finally:
            self._told.remove(ended)

    def has_made(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in a storage that the latest operator has returned."""
        return tensor.untyped_storage()._cdata in self._made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator."""
        if getattr(func, "namespace", "aten") not in _OWN:
            name = func.name().split(".")[0]
            if name not in _PURE and name not in self.foreign and _is_python(name):
                self.foreign.append(name)
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.detach.default:
            # It computes nothing; we call it ourselves for what stays.
            return result
        for ended in self._told:
            ended()
        leaves = tree_leaves(result)
        self._made = {storage_number(x) for x in leaves if isinstance(x, torch.Tensor)}
        return result
