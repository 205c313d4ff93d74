"""The operators of a rehearsal: when each has ended, and which ones may keep anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from offcert.runtime.segments.keeper import storage_number
from offcert.runtime.torch_private import TorchDispatchMode, sequence_number, tree_leaves
from offcert.runtime.watch.foreign import foreign_name


def operator_number() -> int:
    """Return a number that is another one for each operator with a node in the autograd graph."""
    return int(sequence_number())


class Operators(TorchDispatchMode):
    """Watches the operators of a rehearsal's first run.

    Those that are written in Python, and not declared to be pure, are `foreign`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self._told: list[Callable[[], None]] = []
        # Addresses of the storages that the latest operator has returned, and its number.
        self._made: set[int] = set()
        self._number = -1

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
        """Whether the operator that saves a tensor has returned it already.

        It has if autograd has not begun with another one since: that might be about to write what
        the latest one has only allocated.
        """
        address = tensor.untyped_storage()._cdata
        return self._number == operator_number() and address in self._made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator."""
        foreign = foreign_name(func)
        if foreign is not None and foreign not in self.foreign:
            self.foreign.append(foreign)
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.detach.default:
            # It computes nothing; we call it ourselves for what stays.
            return result
        for ended in self._told:
            ended()
        self._number = operator_number()
        leaves = tree_leaves(result)
        self._made = {storage_number(x) for x in leaves if isinstance(x, torch.Tensor)}
        return result
