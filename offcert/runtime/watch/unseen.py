"""Training that goes on beside the model's hooks: it is said, rather than nothing happening.

What `torch.compile` makes of a model passes its hooks by, and so do calls of its `forward` method
and of modules inside of it. Until the model has been called for the first time, gradients that
arrive at its parameters and steps of optimisers that have some tell of that; `torch.compile` of the
model itself is told of when it is called, before anything is trained.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from offcert.runtime.torch_private import COMPILER_COUNTS
from offcert.runtime.watch.guard import Guard, guarded
from offcert.runtime.watch.parts import Parts


class Unseen:
    """Waits for gradients of a model that has not been called; closed once it has been.

    `told` is called once, with what is to be said.
    """

    def __init__(self, root: nn.Module, told: Callable[[str], None], guard: Guard) -> None:
        self.guard = guard
        self.root = root
        self._told: Callable[[str], None] | None = told
        self._undo = ExitStack()
        _watch_compiler(self)
        trained = [each for each in Parts(root).parameters if each.requires_grad and each.is_leaf]
        self._trained = {id(each) for each in trained}
        # More of them would take time, and a backward pass through the model comes by both.
        for parameter in {id(each): each for each in (*trained[:1], *trained[-1:])}.values():
            handle = parameter.register_post_accumulate_grad_hook(_Gradient(self))
            self._undo.callback(handle.remove)
        self._undo.callback(register_optimizer_step_post_hook(_Stepped(self)).remove)

    def close(self) -> None:
        """Wait no more."""
        self._told = None
        _leave_compiler(self)
        self._undo.close()

    def tell(self, message: str | None = None) -> None:
        """Say that the model trains, but is not called; or that it will, as a message says."""
        told, self._told = self._told, None
        if told is not None:
            told(message or _message())

    def has(self, optimiser: torch.optim.Optimizer) -> bool:
        """Whether an optimiser has gradients of the model."""
        return any(
            parameter.grad is not None and id(parameter) in self._trained
            for group in optimiser.param_groups
            for parameter in group["params"]
        )


class _Gradient:
    """Called when the gradient of a parameter is complete."""

    def __init__(self, unseen: Unseen) -> None:
        self._unseen = unseen
        self.guard = unseen.guard

    @guarded()
    def __call__(self, parameter: torch.Tensor) -> None:
        self._unseen.tell()


class _Stepped:
    """Called when an optimiser, whichever, has made a step."""

    def __init__(self, unseen: Unseen) -> None:
        self._unseen = unseen
        self.guard = unseen.guard

    @guarded()
    def __call__(self, optimiser: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._unseen.has(optimiser):
            self._unseen.tell()


# The contexts whose models have not been called yet, and `torch.compile` as it was before them.
_WAITING: weakref.WeakSet[Unseen] = weakref.WeakSet()
_COMPILES: list[Callable[..., Any]] = []


def _watch_compiler(unseen: Unseen) -> None:
    """Hear of calls of `torch.compile` while a model waits to be called."""
    _WAITING.add(unseen)
    if _COMPILES:
        return
    compiles = torch.compile
    _COMPILES.append(compiles)

    @functools.wraps(compiles)
    def heard(*args: Any, **kwargs: Any) -> Any:
        model = args[0] if args else kwargs.get("model")
        # `nn.Module.compile` hands over a method.
        model = getattr(model, "__self__", model)
        if getattr(kwargs.get("backend"), "__name__", None) != "offcert":
            for each in [one for one in _WAITING if one.root is model]:
                each.tell(
                    "torch.compile makes code of the whole model, whose calls and saved tensors no "
                    "plan sees: compile modules inside of it, or leave this context away and call "
                    "torch.compile(model, backend=offcert.backend(certificate))"
                )
        return compiles(*args, **kwargs)

    torch.compile = heard


def _leave_compiler(unseen: Unseen) -> None:
    _WAITING.discard(unseen)
    if not _WAITING and _COMPILES:
        torch.compile = _COMPILES.pop()


def _message() -> str:
    said = (
        "the model trains, but no call of it has been seen, so no plan is followed: call the model "
        "itself, as model(...), not its forward method nor a module inside of it"
    )
    if not _has_compiled():
        return said
    return (
        f"{said}; what torch.compile makes of it hides when it is called: compile it with the plan "
        "instead, torch.compile(model, backend=offcert.backend(certificate))"
    )


def _has_compiled() -> bool:
    """Whether the compiler has been at work in this process."""
    dynamo: Any = sys.modules.get(COMPILER_COUNTS)
    return dynamo is not None and dynamo.counters["frames"]["total"] > 0
