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
from itertools import accumulate

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.common.grid import spanning, useful_gaps
from offcert.formulations.common.time_grid import (
    GridGap,
    StartWindow,
    TimeGrid,
    build_grid,
    common_divisor,
    idle_required,
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
    return _rounded_up(problem, cells)


def _rounded_up(problem: Problem, cells: Cells) -> TimeGrid:
    trace = problem.trace
    required = required_absent(problem, subset_sum=True)
    useful = list(useful_gaps(trace, required))
    lengths = [cells.length(duration) for duration in trace.durations]
    # Along what decides the makespan every operation and transfer grows by less than a cell.
    last = cells.length(cells.horizon) + len(trace) + 2 * len(useful)
    ends = list(accumulate(lengths))
    starts = [end - length for end, length in zip(ends, lengths, strict=True)]
    rest = [last - (ends[-1] - start) for start in starts]
    offloads: dict[int, StartWindow] = {}
    gaps: list[GridGap] = []
    tensors = [gap.tensor for _, gap, _ in useful]
    for number, gap, _ in useful:
        size = trace.gap_size(number)
        out, back = (cells.length(problem.platform.transfer_time(size, kind)) for kind in Kind)
        writer = trace.tensors[gap.tensor].uses[0]
        written = ends[writer] if writer >= 0 else 0
        first = max(written + out, ends[gap.before] if gap.before >= 0 else 0)
        latest = rest[gap.after] - back
        known = offloads.get(gap.tensor)
        until = latest - out if known is None else max(known.last, latest - out)
        offloads[gap.tensor] = StartWindow(written, until, out)
        prefetch = StartWindow(first, latest, back)
        gaps.append(GridGap.of(trace, number, prefetch, tensors.count(gap.tensor) == 1))
    return TimeGrid(
        grid=cells.grid,
        operations=tuple(map(StartWindow, starts, rest, lengths)),
        offloads=offloads,
        gaps=tuple(gaps),
        over=spanning(((gap.before, gap.after) for gap in gaps), len(trace)),
        required=tuple(required),
        idle_required=idle_required(problem),
        distances=(),
        exact=True,
    )
