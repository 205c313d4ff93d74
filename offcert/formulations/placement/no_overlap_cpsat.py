"""Addresses as rectangles that must not overlap, solved by OR-Tools' CP-SAT.

A residence is a rectangle whose stretch of time is given and whose address is a variable. The
constraint is `add_no_overlap_2d`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from ortools.sat.python import cp_model

from offcert.core.result import Bound
from offcert.formulations.common.cpsat import CpSatEnd, run_cpsat, solver_with
from offcert.formulations.common.outcome import CP_SAT
from offcert.formulations.placement.skyline_state import Sections
from offcert.proofs.placement_certificate import claimed
from offcert.questions.placement.problem import Placement, PlacementOutcome, PlacementProblem

# The name of its bounds.
NO_OVERLAP = "no_overlap_cpsat"
# How far the solver's integer bound may be off, as it reports a float. Assumed.
_MARGIN = 1e-6


def no_overlap_cpsat(
    problem: PlacementProblem,
    *,
    time_limit: float = 60.0,
    workers: int = 1,
    seed: int = 0,
    hint: Placement | None = None,
    bound: int = 0,
    found: Callable[[Placement], object] | None = None,
) -> PlacementOutcome:
    """Find the least pool, or any placement within the problem's capacity.

    Arguments are as for `skyline_search`; `found` is called from another thread. The bound, if it
    is better than the load and `bound`, is the solver's word, and may rest on `bound`.
    """
    deadline = time.monotonic() + time_limit
    sections = Sections(problem)
    unit = sections.unit
    least = max(problem.load, bound)
    if len(sections) == 0 or (problem.capacity is not None and least > problem.capacity):
        empty = Placement([0] * len(problem.residences)) if len(sections) == 0 else None
        return PlacementOutcome(empty, (), True)
    run = _NoOverlapRun(
        sections, -(-least // unit), _most(problem, sections, hint), problem.capacity
    )
    if hint is not None:
        run.hint(sections.addresses(hint))
    end = run.solve(max(0.1, deadline - time.monotonic()), workers, seed, found)
    bounds: tuple[Bound, ...] = ()
    if run.least * unit > least:
        bounds = (claimed(NO_OVERLAP, run.least * unit, CP_SAT, run.statistics),)
    outcome = PlacementOutcome(run.placement, bounds, run.complete)
    if end.interrupted:
        raise KeyboardInterrupt
    return outcome


def _most(problem: PlacementProblem, sections: Sections, hint: Placement | None) -> int:
    """Return the largest pool of interest, in units."""
    if problem.capacity is not None:
        return problem.capacity // sections.unit
    if hint is None:
        return int(sections.size.sum())
    return (hint.pool(problem) - 1) // sections.unit


class _NoOverlapRun:
    """The model, and what the solver has said; numbers are in units."""

    def __init__(self, sections: Sections, least: int, most: int, capacity: int | None) -> None:
        self.sections, self.least = sections, least
        self.placement: Placement | None = None
        self.complete = False
        self.statistics: dict[str, Any] = {"solver": f"{CP_SAT} {version('ortools')}"}
        self._most = most
        self._enough = capacity is not None
        self._model = cp_model.CpModel()
        if most < least:
            self._model.add_bool_or([])
            self._address: list[cp_model.IntVar] = []
            return
        self._build(least, most)

    def _build(self, least: int, most: int) -> None:
        model, sections = self._model, self.sections
        rows = list(
            zip(
                sections.size.tolist(), sections.first.tolist(), sections.last.tolist(), strict=True
            )
        )
        self._address = [
            model.new_int_var(0, most - size, f"y{box}") for box, (size, _, _) in enumerate(rows)
        ]
        spans = [
            model.new_fixed_size_interval_var(first, last - first, f"t{box}")
            for box, (_, first, last) in enumerate(rows)
        ]
        heights = [
            model.new_fixed_size_interval_var(self._address[box], size, f"a{box}")
            for box, (size, _, _) in enumerate(rows)
        ]
        model.add_no_overlap_2d(spans, heights)
        if not self._enough:
            pool = model.new_int_var(least, most, "pool")
            for address, (size, _, _) in zip(self._address, rows, strict=True):
                model.add(address + size <= pool)
            model.minimize(pool)

    def hint(self, addresses: list[int]) -> None:
        """Suggest addresses, in units."""
        for variable, value in zip(self._address, addresses, strict=False):
            self._model.add_hint(variable, value)

    def solve(
        self,
        seconds: float,
        workers: int,
        seed: int,
        found: Callable[[Placement], object] | None,
    ) -> CpSatEnd:
        """Run the solver, and take over its answer."""
        solver = solver_with(workers, seed)

        def take(value: Callable[[Any], int]) -> None:
            addresses = [value(variable) for variable in self._address]
            self.placement = self.sections.placement(addresses)
            if found is not None:
                found(self.placement)

        end = run_cpsat(solver, self._model, seconds, on_solution=take)
        self.statistics["solver_status"] = solver.status_name(end.status)
        if end.status == cp_model.INFEASIBLE:
            self.complete = True
            self.least = self._most + 1
        elif end.status == cp_model.OPTIMAL:
            self.complete = True
        if not self._enough and end.status != cp_model.INFEASIBLE:
            said = solver.best_objective_bound
            if math.isfinite(said):
                self.least = max(self.least, math.ceil(said - _MARGIN))
        return end
