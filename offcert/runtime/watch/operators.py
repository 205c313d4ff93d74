"""Operators that are a user's own or change in place, nodes that autograd makes, dispatch modes."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch

from offcert.core.errors import InputError
from offcert.runtime.torch_private import (
    FRAMES_COUNTED,
    TorchDispatchMode,
    dispatch_dump,
    dispatch_modes,
    innermost_transform,
    pop_mode,
    push_mode,
    sequence_number,
)

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
    """Whether an object, or the operator of such a name, was declared to be pure."""
    return thing in _PURE if isinstance(thing, str) else id(thing) in _PURE_OBJECTS


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


def tensors_of(values: Any) -> list[torch.Tensor]:
    """Return the tensors among arguments or results of an operator, nested as they may be there."""
    found: list[torch.Tensor] = []
    _gather((values,), found)
    return found


def _gather(values: Iterable[Any], found: list[torch.Tensor]) -> None:
    # Called for each operator: several times as fast as PyTorch's walk through trees of any kind.
    for each in values:
        kind = type(each)
        if kind is torch.Tensor:
            found.append(each)
        elif kind is tuple or kind is list:
            _gather(each, found)
        elif kind is dict:
            if each:
                _gather(each.values(), found)
        elif kind in _NO_TENSORS:
            continue
        elif isinstance(each, torch.Tensor):
            found.append(each)
        elif isinstance(each, tuple):
            _gather(each, found)


_NO_TENSORS = frozenset(
    (type(None), bool, int, float, torch.dtype, torch.device, torch.layout, torch.memory_format)
)


def strided_tensors(values: Any) -> list[torch.Tensor]:
    """Return those of `tensors_of` that have storages: not the sparse ones."""
    return [each for each in tensors_of(values) if each.layout is torch.strided]


def changed_in_place(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """Yield the strided tensors among an operator's arguments that its schema says it writes to."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from strided_tensors(given)


class _Local(threading.local):
    """How many recomputations of a thread are under way, one inside of the other."""

    depth = 0


_LOCAL = _Local()


def is_recomputing() -> bool:
    """Whether a segment runs again in this thread.

    Nobody waits for gradients of what it computes then: the backward pass goes through the graph of
    the first run.
    """
    return _LOCAL.depth > 0


@contextmanager
def recomputing() -> Iterator[None]:
    """Note that a segment runs again during the block."""
    _LOCAL.depth += 1
    try:
        yield
    finally:
        _LOCAL.depth -= 1


# The mark of a node whose place is not known. By definition.
UNKNOWN = -1


class NodeCount:
    """Counts the nodes that autograd makes in the calling thread from now on.

    PyTorch numbers them, so that a forward pass that does more than the captured one shows at the
    cost of reading two numbers, whatever it is made of.
    """

    __slots__ = ("_begun", "_frames")

    def __init__(self) -> None:
        self._begun = sequence_number()
        self._frames = _frames()

    @property
    def made(self) -> int:
        """How many have been made; UNKNOWN if something was compiled, which makes nodes, too."""
        if self._frames != _frames():
            return UNKNOWN
        return int(sequence_number() - self._begun)


def _frames() -> int:
    """Return how many frames `torch.compile` has looked at."""
    return getattr(sys.modules.get(FRAMES_COUNTED), "FRAME_COUNTER", 0)


def keeps_casts(device: str) -> bool:
    """Whether autocast is active for a kind of device, and keeps the weights that it casts."""
    available = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return available and torch.is_autocast_cache_enabled()


# Modes that are to be left, but were entered in another thread, or see the operator that runs.
_LEFT_BEHIND: weakref.WeakSet[TorchDispatchMode] = weakref.WeakSet()


def within_transform() -> bool:
    """Whether a function transform (`torch.func`) is under way: nothing runs backward then."""
    return innermost_transform() is not None


def is_here(mode: TorchDispatchMode) -> bool:
    """Whether a mode sees the operators of the calling thread."""
    return any(each is mode for each in dispatch_modes())


def enter_below(mode: TorchDispatchMode) -> None:
    """Enter a mode below the user's own: whoever leaves one of them leaves the right one."""
    # Those of PyTorch's own (fake tensors, proxies) have places of their own.
    stack = dispatch_modes()
    above = [each for each in stack if getattr(each, "_mode_key", None) is None]
    for _ in above:
        pop_mode()
    try:
        mode.__enter__()
    finally:
        for each in above:
            push_mode(each)


def leave(mode: TorchDispatchMode) -> None:
    """Leave a mode, wherever it is among the user's own; if it is not here, `sweep` will."""
    stack = dispatch_modes()
    places = [index for index, each in enumerate(stack) if each is mode]
    if not places:
        _LEFT_BEHIND.add(mode)
        return
    above = stack[places[-1] + 1 :]
    for _ in above:
        pop_mode()
    try:
        mode.__exit__(None, None, None)
    finally:
        for each in above:
            push_mode(each)


def sweep() -> None:
    """Leave those modes of the calling thread that other threads were to leave, and could not."""
    # Looked at in every step: the set itself takes calls to say whether it is empty.
    for mode in list(_LEFT_BEHIND) if _LEFT_BEHIND.data else ():  # type: ignore[attr-defined]
        if is_here(mode):
            _LEFT_BEHIND.discard(mode)
            leave(mode)
