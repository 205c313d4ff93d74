"""The arguments of a segment's call, which nothing of ours keeps, and values between calls."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.segments.keeper import Hooks, outer_hooks
from offcert.runtime.segments.settings import CASTING
from offcert.runtime.torch_private import (
    TreeSpec,
    function_mode_count,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)
from offcert.runtime.watch.entries import InPlaceError, is_plain


def is_cache(value: Any) -> bool:
    """Whether something is a cache of keys and values, as models of `transformers` have them."""
    return hasattr(value, "get_seq_length") and callable(getattr(value, "update", None))


def given_a_cache(values: Any) -> bool:
    """Whether there is a cache among the arguments of a call: making it again would add to it."""
    return any(map(is_cache, tree_leaves(values)))


def require_no_cache(name: str, value: Any) -> None:
    """Refuse a cache that a segment is given: running again would add to it again."""
    if is_cache(value):
        raise InputError(
            f"{name} cannot run again: it adds to the {type(value).__name__} that it is given; "
            "call the model with use_cache=False"
        )


class Handed:
    """A tensor that a call has returned, as it was then; it is not held."""

    __slots__ = ("_facts", "_tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self._facts = _facts(tensor)

    def is_(self, value: Any) -> bool:
        """Whether something is the same tensor, unchanged, where calls still compute the same."""
        return (
            isinstance(value, torch.Tensor)
            and self._tensor() is value
            and _facts(value) == self._facts
        )


def _facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the facts of a tensor that may change, and settings that results depend on."""
    autocast = [(torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in CASTING]
    return (
        0 if tensor.is_inference() else tensor._version,
        # Its place in the graph may change as well: `detach_` counts as no version.
        tensor.requires_grad,
        tensor.is_leaf,
        tensor.shape,
        torch.is_grad_enabled(),
        autocast,
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        function_mode_count(),
    )


# Arguments that hold no others.
_SIMPLE = frozenset((torch.Tensor, nn.Parameter, type(None), bool, int, float, str, torch.dtype))


class Argument:
    """A tensor among the arguments, as the hooks around the segment hold it."""

    __slots__ = ("_dtype", "_hooks", "_packed", "_storage", "_trained", "_version")

    def __init__(self, hooks: Hooks, tensor: torch.Tensor) -> None:
        self._hooks = hooks
        self._packed = hooks[0](tensor)
        self._trained, self._dtype = tensor.requires_grad, tensor.dtype
        self._version = 0 if tensor.is_inference() else tensor._version
        self._storage = weakref.ref(tensor.untyped_storage()) if is_plain(tensor) else None

    @property
    def address(self) -> int | None:
        """The address of its storage, if it has one that is alive."""
        storage = None if self._storage is None else self._storage()
        return None if storage is None else storage._cdata

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether another tensor is a view of it, and has not been changed since."""
        return (
            self._storage is not None
            and self._storage() is tensor.untyped_storage()
            and self._version == tensor._version
            and self._dtype is tensor.dtype
        )

    def tensor(self) -> torch.Tensor:
        """Return the tensor, detached; an `InPlaceError` if it has been changed in place."""
        return self._hooks[1](self._packed).detach().requires_grad_(self._trained)


class Arguments:
    """The arguments of a call; the hooks around the segment hold the tensors among them.

    `others` are those that are no tensors, at any depth; a cache of keys and values among them is
    an `InputError`.
    """

    def __init__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._name = name
        self._hooks = outer_hooks()
        self._spec: TreeSpec | None = None
        self._names = tuple(kwargs)
        self._leaves: list[Any] = [*args, *kwargs.values()]
        if not _SIMPLE.issuperset(map(type, self._leaves)):
            self._leaves, self._spec = tree_flatten((args, kwargs))
            for leaf in self._leaves:
                require_no_cache(name, leaf)
        self.others = [leaf for leaf in self._leaves if not isinstance(leaf, torch.Tensor)]

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors among them; there are none once they are packed."""
        return [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]

    def pack(self) -> dict[int, Argument]:
        """Hand the tensors to the hooks around the segment, each once; return them by address."""
        known: dict[int, Argument] = {}
        for place, leaf in enumerate(self._leaves):
            if isinstance(leaf, torch.Tensor):
                if id(leaf) not in known:
                    known[id(leaf)] = Argument(self._hooks, leaf)
                self._leaves[place] = known[id(leaf)]
        return {each.address: each for each in known.values() if each.address is not None}

    def call(self, function: Callable[..., Any]) -> None:
        """Call a function with them, detached, unless one has been changed in place."""
        args, kwargs = self._unpacked()
        function(*args, **kwargs)

    def require_unchanged(self) -> None:
        """Raise an `InPlaceError` if a call has changed one of them in place."""
        self._unpacked()

    def _unpacked(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        known: dict[int, torch.Tensor] = {}
        leaves = list(self._leaves)
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, Argument):
                if id(leaf) not in known:
                    known[id(leaf)] = self._tensor(leaf)
                leaves[place] = known[id(leaf)]
        if self._spec is None:
            count = len(leaves) - len(self._names)
            kwargs = dict(zip(self._names, leaves[count:], strict=True))
            return tuple(leaves[:count]), kwargs
        args, kwargs = tree_unflatten(leaves, self._spec)
        return args, kwargs

    def _tensor(self, argument: Argument) -> torch.Tensor:
        try:
            return argument.tensor()
        except InPlaceError as error:
            raise InPlaceError(
                f"{self._name} cannot run again: what it is given is changed in place afterwards"
            ) from error
