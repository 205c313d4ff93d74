"""The tensors that an operator changes in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def changed_in_place(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """Yield the strided tensors among an operator's arguments that its schema says it writes to."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = args[position] if position < len(args) else kwargs.get(argument.name)
        for leaf in tree_leaves(given):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                yield leaf
