"""What modules remember: as it was when a segment ran first, and untouched when it runs again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from offcert.core.errors import InputError
from offcert.runtime.tracker import LiveBytes

# Larger buffers are only copied if they were seen to change.
_SMALL = 2**16
_SCALARS = (bool, int, float, str, type(None))


@contextmanager
def uncounted() -> Iterator[None]:
    """Do not count what the block allocates as live bytes of the step."""
    with ExitStack() as stack:
        for mode in _get_current_dispatch_mode_stack():
            if isinstance(mode, LiveBytes):
                stack.enter_context(mode.paused())
        yield


@dataclass(slots=True)
class Row:
    """A buffer when its segment began."""

    module: nn.Module
    name: str
    buffer: torch.Tensor
    version: int
    copy: torch.Tensor | None


@dataclass(slots=True)
class Before:
    """What modules remembered when a segment began.

    Attributes
    ----------
    buffers : list of (module, str, tensor)
        Those that the segment has changed, as they were.
    scalars : list of (module, dict)
        Numbers and texts that are attributes: whether a module trains is one of them.
    python, numpy : object
        States of generators that PyTorch does not keep.
    """

    buffers: list[tuple[nn.Module, str, torch.Tensor]]
    scalars: list[tuple[nn.Module, dict[str, Any]]]
    python: Any
    numpy: Any


@dataclass(slots=True)
class Beginning:
    """The state with which a segment begins, before it is known what it changes."""

    rows: list[Row]
    scalars: list[tuple[nn.Module, dict[str, Any]]]
    python: Any
    numpy: Any


class ModuleStates:
    """What the modules of a segment remember.

    The segment runs again from where it began: buffers that it changes, and attributes that are
    numbers or texts, are what they were then, and so are the random generators of Python and NumPy
    (PyTorch keeps its own). Whatever it changes when it runs again is dropped: attributes and
    buffers are afterwards what they were before. So statistics of a batch norm are updated once.
    The copies are not counted as live bytes.

    Parameters
    ----------
    name : str
        Of the segment, for people.
    modules : sequence of nn.Module
        All modules in it.
    """

    def __init__(self, name: str, modules: Sequence[nn.Module]) -> None:
        self._name = name
        self._modules = list(modules)
        self._looked = False
        # Buffers that were seen to change.
        self._changing: set[tuple[int, str]] = set()

    def begin(self) -> Beginning:
        """Take note of the state with which the segment begins."""
        rows = [
            Row(module, name, buffer, _version(buffer), self._copy(module, name, buffer))
            for module in self._modules
            if module._buffers and not isinstance(module, _NormBase)
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        scalars = [(module, _scalars(module)) for module in self._modules]
        return Beginning(rows, scalars, random.getstate(), numpy.random.get_state())

    def _copy(self, module: nn.Module, name: str, buffer: torch.Tensor) -> torch.Tensor | None:
        large = buffer.numel() * buffer.element_size() > _SMALL
        if large and self._looked and (id(module), name) not in self._changing:
            return None
        with uncounted():
            return buffer.detach().clone()

    def end(self, beginning: Beginning) -> Before:
        """Return what has changed, once the segment has run first.

        Raises
        ------
        InputError
            If a large buffer has changed which had never changed before.
        """
        changed = []
        for row in beginning.rows:
            if not self._has_changed(row):
                continue
            self._changing.add((id(row.module), row.name))
            if row.copy is None:
                raise InputError(
                    f"{self._name} changes the buffer {row.name} of a {type(row.module).__name__} "
                    "in some steps only: it cannot run again"
                )
            changed.append((row.module, row.name, row.copy))
        self._looked = True
        return Before(changed, beginning.scalars, beginning.python, beginning.numpy)

    def _has_changed(self, row: Row) -> bool:
        now = row.module._buffers.get(row.name)
        if now is not row.buffer or _version(row.buffer) != row.version:
            return True
        if (id(row.module), row.name) in self._changing:
            return True
        if self._looked or row.copy is None or isinstance(row.buffer, FakeTensor):
            return False
        # Some kernels write without a trace: running statistics, for example.
        with uncounted():
            return not torch.equal(row.buffer, row.copy)

    @contextmanager
    def again(self, before: Before) -> Iterator[None]:
        """Give modules the state with which the segment began; drop what becomes of it."""
        kept = [(m, dict(m.__dict__), dict(m._buffers)) for m in self._modules]
        python, numbers = random.getstate(), numpy.random.get_state()
        try:
            self._put(before)
            random.setstate(before.python)
            numpy.random.set_state(before.numpy)
            yield
        finally:
            random.setstate(python)
            numpy.random.set_state(numbers)
            for module, attributes, buffers in kept:
                _restore(module.__dict__, attributes)
                _restore(module._buffers, buffers)

    def _put(self, before: Before) -> None:
        for module, scalars in before.scalars:
            module.__dict__.update(scalars)
        with uncounted():
            for module, name, value in before.buffers:
                module._buffers[name] = value.clone()
            for module in self._modules:
                if module.training and isinstance(module, _NormBase):
                    for name, buffer in module._buffers.items():
                        if buffer is not None:
                            module._buffers[name] = buffer.detach().clone()


_MISSING = object()


def _scalars(module: nn.Module) -> dict[str, Any]:
    return {k: v for k, v in module.__dict__.items() if type(v) in _SCALARS}


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _restore(found: dict[str, Any], kept: dict[str, Any]) -> None:
    if len(found) == len(kept) and all(found.get(k, _MISSING) is v for k, v in kept.items()):
        return
    for name in [name for name in found if name not in kept]:
        del found[name]
    found.update(kept)
