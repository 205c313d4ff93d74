"""Outcomes of the models of graphs, and how a solver's word becomes a bound in bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from offcert.core.result import SolveStatus
from offcert.questions.selection.graph import CheckpointGraph, GraphSelection


@dataclass(frozen=True)
class GraphOutcome:
    """The best selection that a model found, and its solver's claim.

    Attributes
    ----------
    status : SolveStatus
        ``OPTIMAL`` only if the selection's objective equals the lower bound.
    selection : GraphSelection
        The best one known; its bytes are counted anew, never the solver's.
    lower_bound : int
        Bytes. As far as the solver is right, no selection has a smaller objective.
    solver : str
        Who says so.
    error : str or None
        The failure in a sentence; None if there was none.
    statistics : mapping
        JSON values that are good to know and that nothing depends on.
    """

    status: SolveStatus
    selection: GraphSelection
    lower_bound: int
    solver: str
    error: str | None = None
    statistics: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class GraphRun:
    """The best selection and the bound so far, whatever happens to the solver.

    Parameters
    ----------
    graph : CheckpointGraph
        The graph that is solved.
    best : GraphSelection
        A known one; the models have no solution that is worse.
    solver : str
        Its name.
    """

    graph: CheckpointGraph
    best: GraphSelection
    solver: str
    lower_bound: int = 0
    error: str | None = None
    statistics: dict[str, Any] = field(default_factory=dict)

    def take_bound(self, value: float, unit: int) -> None:
        """Take a bound in bytes; objectives are multiples of the unit, so it is rounded up."""
        if math.isfinite(value):
            self.lower_bound = max(self.lower_bound, math.ceil(value / unit) * unit)

    def take(self, stored: list[int]) -> None:
        """Take a selection that a solver found."""
        found = self.graph.select(stored)
        if found.objective < self.best.objective:
            self.best = found

    def outcome(self) -> GraphOutcome:
        """Return the best selection, the lower bound and the status so far."""
        if self.lower_bound > self.best.objective:
            self.error = (
                f"a bound of {self.lower_bound} contradicts a selection of {self.best.objective}"
            )
            self.lower_bound = 0
        optimal = self.lower_bound == self.best.objective
        status = SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE
        return GraphOutcome(
            status, self.best, self.lower_bound, self.solver, self.error, self.statistics
        )
