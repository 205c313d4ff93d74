"""Outcomes of exact models of checkpoint selection: the best selection, the solver's claim."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from offcert.core.result import SolveStatus
from offcert.heuristics.checkpoint.live import require_checkpoints

# Relative error of a float.
_FLOAT = Fraction(1, 2**52)


@dataclass(frozen=True, slots=True)
class SelectionOutcome:
    """Checkpoints, and how much less memory others could take at best.

    Attributes
    ----------
    status : SolveStatus
        ``OPTIMAL`` only if the memory equals the lower bound.
    checkpoints : tuple of int
        The best ones known, the hint included.
    memory : int
        Bytes that they take, counted again in integers; never the solver's number.
    lower_bound : int
        Bytes; no other checkpoints take less, as far as the solver is right.
    error : str or None
        The failure in a sentence, in the solver or around it; None if there was none.
    interrupted : bool
        Whether the user ended it.
    seconds : float
        How long it took.
    statistics : mapping
        JSON values that are good to know: solver, version, sizes, the solver's own words.
    """

    status: SolveStatus
    checkpoints: tuple[int, ...]
    memory: int
    lower_bound: int
    error: str | None = None
    interrupted: bool = False
    seconds: float = 0.0
    statistics: Mapping[str, Any] = field(default_factory=dict)


class SelectionRun:
    """One run of a model: the best checkpoints and bound so far, whatever happens to the solver.

    Parameters
    ----------
    count : int
        Number of data.
    memory : callable
        Bytes that checkpoints take.
    hint : sequence of int, optional
        Checkpoints; by default everything, or both ends alone, whichever takes less.
    lower_bound : int
        Bytes, known without a solver.
    **statistics : JSON values
        Settings.

    Raises
    ------
    InputError
        If the hint is none.
    """

    def __init__(
        self,
        count: int,
        memory: Callable[[Sequence[int]], int],
        hint: Sequence[int] | None,
        lower_bound: int,
        **statistics: Any,
    ) -> None:
        self._began = time.monotonic()
        self._memory = memory
        if hint is not None:
            require_checkpoints(count, hint)
        known = [tuple(range(count)), (0, count - 1)] if hint is None else [tuple(hint)]
        self.best = min(known, key=memory)
        self.value = memory(self.best)
        self.lower_bound = lower_bound
        self.error: str | None = None
        self.interrupted = False
        self.statistics: dict[str, Any] = dict(statistics)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def take_checkpoints(self, checkpoints: Sequence[int]) -> None:
        """Take a solver's solution, counted again."""
        value = self._memory(checkpoints)
        if value < self.value:
            self.best, self.value = tuple(checkpoints), value

    def take_bound(self, claimed: float, margin: float, unit: int) -> None:
        """Take a solver's bound, in units of bytes of which all sizes are multiples.

        It is a float: `margin` units come off, and what such a float cannot tell apart; then it is
        rounded up. A bound above known checkpoints is refuted by them.
        """
        if not math.isfinite(claimed):
            return
        least = Fraction(claimed) - Fraction(margin) - abs(Fraction(claimed)) * _FLOAT
        bound = unit * math.ceil(least)
        if bound > self.value:
            self.error = f"a bound of {bound} contradicts checkpoints that take {self.value}"
            return
        self.lower_bound = max(self.lower_bound, bound)

    def outcome(self) -> SelectionOutcome:
        """Return the best selection, the lower bound and the status so far."""
        optimal = self.value == self.lower_bound
        return SelectionOutcome(
            SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE,
            self.best,
            self.value,
            self.lower_bound,
            self.error,
            self.interrupted,
            round(self.elapsed, 3),
            self.statistics,
        )
