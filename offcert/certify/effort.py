"""The effort of a step of a search: its time, threads, seed and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from offcert.certify.option import Value


@dataclass(frozen=True)
class Effort:
    """The time and threads that a step may spend, and its other settings.

    Attributes
    ----------
    seconds : float
        Time limit.
    workers : int
        Threads, for solvers that can use several.
    seed : int
        Of random choices.
    grid : int or None
        Ticks a cell, for time-indexed models; None lets the model choose.
    solver : str or None
        Which linear solver, by its PuLP name or ``"scipy"``; None is the model's default.
    options : mapping of str to Value
        The options of the method itself, by name, where they are not as by default.
    climb : callable or None
        Given a search, threads and a seed, runs the ladder that suits its problem: for steps that
        search problems which are parts of theirs.
    """

    seconds: float
    workers: int = 2
    seed: int = 0
    grid: int | None = None
    solver: str | None = None
    options: Mapping[str, Value] = field(default_factory=dict)
    climb: Callable[[Any, int, int], None] | None = None
