"""When segments are on: from a call of the model that begins or continues a step to its return."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from offcert.runtime.segments.attach import Segments
from offcert.runtime.segments.placed import PlacedProgram
from offcert.runtime.watch.events import Event, Session
from offcert.runtime.watch.hooks import Hooks, unwrap
from offcert.runtime.watch.module_hooks import StepKeeper


class SegmentedSteps:
    """Steps in which attached segments run under checkpointing.

    `plan_number` gives the number of the plan that a session follows, or None if nothing runs again
    in it; by default the first.
    """

    def __init__(
        self,
        steps: StepKeeper,
        segments: Segments,
        plan_number: Callable[[Session], int | None] = lambda session: 0,
    ) -> None:
        self._steps, self._segments, self._plan_number = steps, segments, plan_number
        self._session: weakref.ref[Session] | None = None
        self._calls: dict[str, int] = {}

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Begin a step at a call of the model, or go on with the one under way."""
        session = self._steps.begin(args, kwargs)
        number = None if session is None else self._plan_number(session)
        if session is not None and number is not None:
            if self._session is None or self._session() is not session:
                self._session = weakref.ref(session)
                self._calls = {}
            self._segments.begin_call(number, self._calls, session.sizes)
        return session

    def left(self, session: Session, output: Any) -> None:
        """The call of the model has returned, or raised."""
        self._segments.end_call()
        self._steps.left(session, output)


@contextmanager
def segmented(
    model: nn.Module, program: PlacedProgram, *, calls: int = 1, verify_every: int | None = None
) -> Iterator[None]:
    """Train a model in the block so that parts of it run again in the backward pass.

    Nothing leaves the device. Losses, gradients, parameters and buffers are bitwise those of plain
    training. A step has so many `calls` of the model; `verify_every` as for `Segments`.
    """
    root = unwrap(model)
    segments = Segments(root, [program], verify_every=verify_every)
    hooks = Hooks(root, _EachCall(calls))
    hooks.steps = SegmentedSteps(_EachCall(calls, hooks), segments)
    segments.attach()
    try:
        hooks.attach(lambda path: False)
        yield
    finally:
        hooks.detach()
        segments.detach()


class _Quiet(Session):
    """A step of which nobody wants to know anything."""

    def tick(self, event: Event) -> None:
        """Take no note."""

    def wants(self, event: Event) -> bool:
        """Nothing is wanted."""
        return False


class _EachCall:
    """Begins a step at every so many calls of the model."""

    def __init__(self, calls: int, hooks: Hooks | None = None) -> None:
        self._calls, self._made, self._hooks = calls, 0, hooks
        self._session: Session | None = None

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        if not torch.is_grad_enabled() or self._hooks is None:
            return None
        if self._session is None or self._session.failed or self._made >= self._calls:
            self._session, self._made = _Quiet(self._hooks), 0
        self._made += 1
        return self._session

    def left(self, session: Session, output: Any) -> None:
        """Nothing is left open."""
