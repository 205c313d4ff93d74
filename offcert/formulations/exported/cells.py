"""Cells of time in exported models: rounded so that a bound stays one, or a schedule legal.

Down, a duration takes as many whole cells as it has: `offcert.formulations.common.grid` shows that
an optimum on the grid bounds every schedule. Up, it takes one more where it does not end with a
cell. Then a solution is a schedule: let everything start at the first tick of its cell. What waits
for an end waits at least as long as it lasts; memory is taken in the same order, and given back no
later. So nothing is there that was not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from offcert.core.errors import InputError
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.common.grid import useful_gaps
from offcert.formulations.common.time_grid import (
    TimeGrid,
    build_grid,
    common_divisor,
    rounded_up,
)
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers


class Keeps(StrEnum):
    """The claim that stays valid on a coarse grid."""

    BOUND = "bound"
    SCHEDULE = "schedule"


@dataclass(frozen=True)
class Cells:
    """How times of a problem are rounded in a file."""

    grid: int  # Ticks a cell.
    keeps: Keeps  # Whether bounds or schedules stay valid.
    horizon: int  # Ticks; longer schedules are not described.

    @property
    def name(self) -> str:
        """A name for variables, from which a solution's cells can be read."""
        return f"grid_{self.grid}_{self.keeps}_{self.horizon}"

    @classmethod
    def of_name(cls, name: str) -> Cells:
        """Return the cells of such a name."""
        _, grid, keeps, horizon = name.split("_")
        return cls(int(grid), Keeps(keeps), int(horizon))

    def length(self, ticks: int) -> int:
        """Return how many cells a duration takes."""
        return -(-ticks // self.grid) if self.keeps is Keeps.SCHEDULE else ticks // self.grid

    def exact(self, problem: Problem) -> bool:
        """Return whether nothing is rounded: cells divide every duration."""
        return common_divisor(problem) % self.grid == 0


def require_exportable(problem: Problem) -> None:
    """Raise unless a problem is one of whole transfers in which everything runs once."""
    if problem.recompute is not Recompute.NONE:
        raise InputError(
            "this model is for problems in which nothing runs again, not recompute "
            f"{problem.recompute}"
        )
    if problem.minimise is not Minimise.TIME:
        raise InputError("this model is for problems that minimise time, not memory")
    if problem.transfers is not Transfers.ATOMIC:
        raise InputError(f"this model is for atomic transfers, not {problem.transfers} ones")
    if problem.platform.memory < problem.trace.least_memory:
        raise InputError(
            f"memory must be at least {problem.trace.least_memory}: with "
            f"{problem.platform.memory} there is no schedule"
        )


def time_grid(problem: Problem, cells: Cells) -> TimeGrid:
    """Return a problem on the grid of its cells."""
    if cells.keeps is Keeps.BOUND:
        data = build_grid(problem, cells.grid, cells.horizon)
        if data is None:
            raise InputError(f"no schedule fits into the horizon of {cells.horizon} ticks")
        return data
    required = required_absent(problem, subset_sum=True)
    useful = len(list(useful_gaps(problem.trace, required)))
    # Along what decides the makespan every operation and transfer grows by less than a cell.
    last = cells.length(cells.horizon) + len(problem.trace) + 2 * useful
    return rounded_up(problem, cells.grid, required, last)
