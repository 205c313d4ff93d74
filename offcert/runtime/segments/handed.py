"""Values that are handed from call to call, and arguments that a call changes."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.runtime.torch_private import function_mode_count, tree_leaves


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


# Devices whose autocast may be on; the others are no matter of ours.
_AUTOCAST = ("cpu", "cuda")


class Handed:
    """A tensor that a call has returned, as it was then; it is not held."""

    __slots__ = ("_facts", "_settings", "_tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self._facts = _facts(tensor)
        self._settings = thread_settings()

    def is_(self, value: Any) -> bool:
        """Whether something is the same tensor, unchanged, where calls still compute the same."""
        return (
            isinstance(value, torch.Tensor)
            and self._tensor() is value
            and _facts(value) == self._facts
            and thread_settings() == self._settings
        )


def _facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    # Its place in the graph may change as well: `detach_` counts as no version.
    version = 0 if tensor.is_inference() else tensor._version
    return version, tensor.requires_grad, tensor.is_leaf, tensor.shape


def thread_settings() -> tuple[Any, ...]:
    """Return this thread's settings on which results of modules depend: autocast, dtype, modes."""
    autocast = [
        (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in _AUTOCAST
    ]
    return (
        torch.is_grad_enabled(),
        *autocast,
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        function_mode_count(),
    )
