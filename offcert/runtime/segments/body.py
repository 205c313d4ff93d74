"""What a segment calls, and what it is given, as the hooks around it hold that."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import _StopRecomputationError

from offcert.core.errors import InputError
from offcert.runtime.events import AGAIN, RESUME
from offcert.runtime.saved import InPlaceError, is_plain
from offcert.runtime.segments.caches import is_cache
from offcert.runtime.segments.generators import GeneratorStates
from offcert.runtime.segments.keeper import outer_hooks

if TYPE_CHECKING:
    from offcert.runtime.segments.frame import Frame


@dataclass(slots=True)
class _Input:
    """A tensor that a segment is given, as the outer hooks hold it."""

    packed: Any
    trained: bool


class Body:
    """A function with its arguments, which only autograd's hooks hold once it has been called.

    PyTorch's checkpoint would hold its arguments itself as long as the function runs, and would ask
    for them before anybody knows that it runs again.

    Parameters
    ----------
    frame : Frame
        Of the segment.
    function : callable
        What is called.
    args, kwargs : tuple, dict
        What it is given.
    """

    def __init__(
        self,
        frame: Frame,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.frame = frame
        self.function = function
        self.pending: tuple[tuple[Any, ...], dict[str, Any]] | None = (args, kwargs)
        self.leaves, self.spec = tree_flatten((args, kwargs))
        self.places: list[tuple[int, int]] = []
        self.inputs: list[_Input] = []
        self.hooks = outer_hooks()
        # PyTorch only looks for generators of devices at arguments, of which it is given none.
        tensors = (leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor))
        frame.arguments = [leaf for leaf in self.leaves if not isinstance(leaf, torch.Tensor)]
        self.generators = GeneratorStates.of(leaf.device for leaf in tensors)
        for leaf in self.leaves:
            _require_steady(frame.name, leaf)
        # The checkpoint holds the body, and the body the frame.
        frame.body = weakref.ref(self)
        self._pack()

    def _pack(self) -> None:
        index_of: dict[int, int] = {}
        for place, leaf in enumerate(self.leaves):
            if not isinstance(leaf, torch.Tensor):
                continue
            index = index_of.setdefault(id(leaf), len(self.inputs))
            if index == len(self.inputs):
                self.inputs.append(_Input(self.hooks[0](leaf), leaf.requires_grad))
                if is_plain(leaf):
                    storage = leaf.untyped_storage()
                    self.frame.given[storage._cdata] = weakref.ref(storage), index
            self.places.append((place, index))
        for place, _ in self.places:
            self.leaves[place] = None

    def __call__(self) -> Any:
        """Call it: for the first time, or again with what the hooks have held."""
        walk = self.frame.now.walk
        if walk is None or walk.again is not self.frame:
            assert self.pending is not None
            (args, kwargs), self.pending = self.pending, None
            return self.function(*args, **kwargs)
        self.frame.told.ran(AGAIN)
        with suppress(_StopRecomputationError), self.generators.again():
            args, kwargs = self._unpack()
            self.function(*args, **kwargs)
        del args, kwargs
        # What the calls that were left held is free now. PyTorch looks at no result.
        self.frame.told.ran(RESUME)
        return None

    def given(self, index: int) -> torch.Tensor:
        """Return an input, as it is now."""
        return self.hooks[1](self.inputs[index].packed)

    def _unpack(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            tensors = [self.hooks[1](each.packed).detach() for each in self.inputs]
        except InPlaceError as error:
            name = self.frame.name
            raise InPlaceError(
                f"{name} cannot run again: what it is given is changed in place afterwards"
            ) from error
        for tensor, each in zip(tensors, self.inputs, strict=True):
            tensor.requires_grad_(each.trained)
        leaves = list(self.leaves)
        for place, index in self.places:
            leaves[place] = tensors[index]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return args, kwargs


def _require_steady(name: str, leaf: Any) -> None:
    """Refuse caches of keys and values: running again would add to them again."""
    if is_cache(leaf):
        raise InputError(
            f"{name} cannot run again: it adds to the {type(leaf).__name__} that it is given; call "
            "the model with use_cache=False"
        )
