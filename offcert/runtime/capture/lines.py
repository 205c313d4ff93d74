"""Finds lines while a step is recorded: calls that only hand one tensor from each to the next."""

from __future__ import annotations

from typing import Any

import torch

from offcert.runtime.segments.arguments import Handed
from offcert.runtime.watch.events import Event


class LineFinder:
    """Told of the calls of modules in forward passes, and of operators.

    A call belongs to a line if no other module is called in it, and it takes one tensor and returns
    one. It continues the line if the tensor is the very object that the call before returned, not
    changed since, and no operator was called in between, not even for a view: what the program does
    between the calls of a line does not run again.

    Attributes
    ----------
    found : list of list of Event
        The beginnings of the calls of each line with at least two of them.
    """

    def __init__(self) -> None:
        self._lines: list[list[Event]] = []
        # The result of the last call, if a line may go on.
        self._handed: Handed | None = None
        # The innermost call that is being made, and whether it continues the line.
        self._open: tuple[Event, bool] | None = None

    @property
    def found(self) -> list[list[Event]]:
        """The lines so far."""
        return [line for line in self._lines if len(line) > 1]

    def enter(self, event: Event, values: Any) -> None:
        """Note that a module is called; its arguments are a tuple if there are no keywords."""
        self._open = None
        if isinstance(values, tuple) and len(values) == 1 and torch.is_grad_enabled():
            continues = self._handed is not None and self._handed.is_(values[0])
            if continues or isinstance(values[0], torch.Tensor):
                self._open = event, continues

    def leave(self, path: str, output: Any) -> None:
        """Note that a module returns."""
        opened, self._open = self._open, None
        # A call in which others were made is none of a line, but does not end it either.
        if opened is None or opened[0].path != path:
            return
        event, continues = opened
        if not continues:
            self._lines.append([])
        self._lines[-1].append(event)
        self._handed = Handed(output) if isinstance(output, torch.Tensor) else None

    def note_operator(self) -> None:
        """Note that an operator is called: if that is between two calls, a line ends."""
        self._handed = None

    def cut(self) -> None:
        """End the line."""
        self._handed = self._open = None
