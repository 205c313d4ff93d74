"""Arguments that a call changes, so that the same call cannot be made again."""

from __future__ import annotations

from typing import Any

from torch.utils._pytree import tree_leaves

from offcert.core.errors import InputError


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
