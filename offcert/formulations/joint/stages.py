"""Moving and running again in stages, with runs and copies as wholes: a claim of HiGHS.

The linear program of `offcert.formulations.joint.program`, cut at the start and the end of every
first run, without spans of several windows. What spans say of parts is said of wholes instead: a
computation runs again in a window or it does not, and at a boundary a copy of a value *exists*, on
the device or on the host, or none does (docs/theory/joint.md, `joint-stages`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from offcert.core.errors import MethodError
from offcert.formulations.common.linear_model import LinearModel
from offcert.formulations.common.linear_solvers import SCIPY, solve_linear
from offcert.formulations.joint.program import ONE, ZERO, JointProgram, Terms
from offcert.formulations.joint.room import Grid, contents, rooms
from offcert.questions.schedule.problem import Problem, Transfers

# How far the solver may be off, as a part of the computing time. Its rows hold to 1e-6: given by
# HiGHS, ten times as much to be safe.
_MARGIN = 1e-5


@dataclass(frozen=True)
class StagesClaim:
    """The solver's claim about the least time."""

    # Ticks that every execution takes, less a margin and rounded up; None if it says nothing.
    value: int | None
    details: dict[str, Any]  # For the certificate: solver, version, sizes.
    error: str | None  # The failure in a sentence; None if there was none.


def solve(problem: Problem, time_limit: float) -> StagesClaim:
    """Return the bound that HiGHS claims on the ticks of moving and running again.

    Parameters
    ----------
    problem : Problem
        With a network in which nothing is changed in place; its transfers are atomic, or nothing
        may leave.
    time_limit : float
        Seconds for the solver.

    Raises
    ------
    MethodError
        If the problem is another.
    """
    model, program = stages_model(problem)
    answer = solve_linear(model, SCIPY, time_limit=time_limit)
    grid = program.grid
    single = sum(map(grid.duration, filter(grid.single, range(grid.windows))))
    value = None
    if math.isfinite(answer.bound):
        value = math.ceil((answer.bound - _MARGIN) * program.unit + single)
    return StagesClaim(value, answer.statistics, answer.error)


def stages_model(problem: Problem) -> tuple[LinearModel, JointProgram]:
    """Return the mixed-integer program, and the linear one of which it is made."""
    network = problem.computed
    if network is None or any(value.base is not None for value in network.values):
        raise MethodError("stages of wholes are for networks that change nothing in place")
    if problem.offload and problem.transfers is not Transfers.ATOMIC:
        raise MethodError(
            f"stages of wholes are for atomic transfers, not {problem.transfers} ones"
        )
    known = contents(network, problem.offload)
    grid = Grid(network, tuple(range(2 * len(network) - 1)), ())
    room = rooms(known, grid, problem.platform.memory, True)
    program = JointProgram(problem, known, grid, room)
    model = LinearModel()
    runs = {column for again in program.again for column in again.values()}
    for column, (cost, upper) in enumerate(zip(program.cost, program.upper, strict=True)):
        model.column(0.0, upper, cost=cost, integer=column in runs)
    rows = program.rows
    terms: list[Terms] = [[] for _ in rows.keys]
    for row, column, value in zip(rows.rows, rows.columns, rows.values, strict=True):
        terms[row].append((column, value))
    for sum_, low in zip(terms, rows.low, strict=True):
        model.row(sum_, low)
    _Copies(model, program).add()
    return model, program


class _Copies:
    """The rows about copies that exist, for each boundary and value."""

    def __init__(self, model: LinearModel, program: JointProgram) -> None:
        self.model, self.program = model, program
        # What is there at the start exists, and so does what is being read.
        self.exists = [
            {
                value: ONE if column == ONE or not boundary else model.binary()[0][0]
                for value, column in present.items()
            }
            for boundary, present in enumerate(program.present)
        ]

    def add(self) -> None:
        """Add all rows."""
        for boundary in range(self.program.grid.windows):
            for value in self.exists[boundary]:
                self._follow(boundary, value)
                if boundary:
                    self._place(boundary, value)

    def _follow(self, window: int, value: int) -> None:
        """Add rows: a value in a window, or at its end, existed before or is made in it."""
        program = self.program
        source: Terms = [(self.exists[window][value], 1.0)]
        maker = program.contents.maker[value]
        if maker in program.again[window]:
            source.append((program.again[window][maker], 1.0))
        self._at_most(program.there[window][value], source)
        if window + 1 < program.grid.windows and value in self.exists[window + 1]:
            self._at_most(self.exists[window + 1][value], source)

    def _place(self, boundary: int, value: int) -> None:
        """Every byte of what exists is on the device or has left; nothing else is, or has."""
        exists, present = self.exists[boundary][value], self.program.present[boundary][value]
        left = self.program.left[boundary].get(value)
        self._at_most(present, [(exists, 1.0)])
        places: Terms = [] if present == ZERO else [(present, 1.0)]
        if left is not None:
            places.append((left, 1.0))
            self._at_most(left, [(exists, 1.0)])
        self._at_most(exists, places)

    def _at_most(self, column: int, terms: Terms) -> None:
        if column != ZERO and (ONE, 1.0) not in terms:
            self.model.row([*terms, (column, -1.0)], 0.0)
