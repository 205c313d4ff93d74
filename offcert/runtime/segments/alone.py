"""Segments of a model alone, without a plan: parts run again, and nothing leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from offcert.runtime.segments.attach import SegmentedSteps, Segments
from offcert.runtime.segments.placed import PlacedProgram
from offcert.runtime.watch.events import Session
from offcert.runtime.watch.hooks import Hooks, unwrap


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
    steps = _EachCall(calls)
    hooks = steps.hooks = Hooks(root, steps)
    hooks.steps = SegmentedSteps(steps, segments)
    segments.attach()
    try:
        hooks.attach(lambda path: False)
        yield
    finally:
        hooks.detach()
        segments.detach()


class _EachCall:
    """Begins a step at every so many calls of the model."""

    hooks: Hooks

    def __init__(self, calls: int) -> None:
        self._calls, self._made = calls, 0
        self._session: Session | None = None

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        if not torch.is_grad_enabled():
            return None
        if self._session is None or self._session.failed or self._made >= self._calls:
            self._session, self._made = Session(self.hooks), 0
        self._made += 1
        return self._session

    def left(self, session: Session, output: Any) -> None:
        """Nothing is left open."""
