"""Data of the interval model: integers on a time grid, and windows for everything.

`offcert.formulations.common.grid` proves that coarse grids, and sizes rounded up, bound soundly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from offcert.core.platform import Kind
from offcert.formulations.combinatorial.relaxations import least_subset_sum, required_absent
from offcert.formulations.common.grid import (
    GridData,
    UsefulGap,
    distances,
    spanning,
    start_windows,
    useful_gaps,
)
from offcert.questions.schedule.problem import Problem

# The largest energy, height and horizon of a model: the solver multiplies times by heights and adds
# the products in 64 bits. Derived.
LARGEST_ENERGY = 2**60
LARGEST_HEIGHT = 2**30
LARGEST_HORIZON = 2**50


@dataclass(frozen=True, slots=True)
class IntervalGap(UsefulGap):
    """A gap that spans an operation at which memory can bind; all times in grid cells."""

    # The first and the last operation in the gap at which memory can bind.
    first: int
    last: int
    # Cells that a transfer lasts, out and back.
    offload_time: int
    prefetch_time: int
    height: int  # Units of the cumulative's capacity that it takes.


@dataclass(frozen=True, slots=True)
class IntervalData(GridData):
    """A problem on a grid."""

    # Whether a solution is a schedule as it stands (one tick a cell, sizes not rounded).
    exact: bool
    # Cells; earliest and latest start (one entry an operation).
    durations: tuple[int, ...]
    earliest: tuple[int, ...]
    latest: tuple[int, ...]
    gaps: tuple[IntervalGap, ...]  # Gaps that are worth evicting.
    # For each operation, what its evictable tensors may take of the capacity while it runs and in
    # the idle time before it; None where memory cannot bind.
    room: tuple[int | None, ...]
    idle_room: tuple[int | None, ...]
    capacity: int  # Of the cumulative.


@dataclass(frozen=True, slots=True)
class Instant:
    """The start of an operation, or the last cell in which it runs."""

    operation: int  # Its index.
    at_end: bool  # Whether it is the end; else it is the start.


def choose_grid(problem: Problem, upper: int) -> int:
    """Return the finest grid, in ticks a cell, on which the solver's products stay in 64 bits."""
    height = max(1, min(_unit_heights(problem), LARGEST_HEIGHT))
    cells = max(1, min(LARGEST_HORIZON, LARGEST_ENERGY // height))
    return max(1, -(-upper // cells))


def _unit_heights(problem: Problem) -> int:
    """Bytes of all evictable tensors, in units of the greatest common divisor of their sizes."""
    sizes = [problem.trace.gap_size(gap) for gap in range(len(problem.trace.gaps))]
    return sum(sizes) // math.gcd(*sizes) if sizes else 0


def prepare(problem: Problem, grid: int, upper: int) -> IntervalData | None:
    """Return a problem on a grid, or None if its windows leave no schedule of at most `upper`.

    The problem is feasible: its memory is at least the trace's least. `grid` is the ticks of a
    cell, `upper` are ticks.
    """
    trace = problem.trace
    windows = start_windows(problem, upper)
    if windows is None:
        return None
    earliest, latest = windows
    needed = required_absent(problem)
    gaps, unit = _useful_gaps(problem, needed, grid)
    over = spanning(((gap.before, gap.after) for gap in gaps), len(trace))
    required = tuple(
        least_subset_sum(tuple(sorted(gaps[index].size for index in spanning)), amount)
        for amount, spanning in zip(needed, over, strict=True)
    )
    room, idle_room, capacity = _rooms(problem, gaps, over, unit)
    return IntervalData(
        grid=grid,
        exact=grid == 1 and all(gap.size == trace.gap_size(gap.number) for gap in gaps),
        durations=tuple(duration // grid for duration in trace.durations),
        earliest=tuple(time // grid for time in earliest),
        latest=tuple(time // grid for time in latest),
        distances=distances(trace.durations, grid),
        required=required,
        gaps=gaps,
        over=over,
        room=room,
        idle_room=idle_room,
        capacity=capacity,
    )


def _useful_gaps(
    problem: Problem, needed: Sequence[int], grid: int
) -> tuple[tuple[IntervalGap, ...], int]:
    """Return the gaps worth evicting, and the unit of their heights."""
    trace, ticks = problem.trace, problem.platform.transfer_time
    found = list(useful_gaps(trace, needed))
    sizes = [trace.gap_size(number) for number, _, _ in found]
    unit = math.gcd(*sizes) if sizes else 1
    if sum(sizes) // unit > LARGEST_HEIGHT:
        unit = -(-sum(sizes) // LARGEST_HEIGHT)
    heights = [-(-size // unit) for size in sizes]
    gaps = tuple(
        IntervalGap(
            number=number,
            tensor=gap.tensor,
            writer=trace.tensors[gap.tensor].uses[0],
            before=gap.before,
            after=gap.after,
            size=height * unit,
            first=binding[0],
            last=binding[-1],
            offload_time=ticks(trace.gap_size(number), Kind.OFFLOAD) // grid,
            prefetch_time=ticks(trace.gap_size(number), Kind.PREFETCH) // grid,
            height=height,
        )
        for (number, gap, binding), height in zip(found, heights, strict=True)
    )
    return gaps, unit


def _rooms(
    problem: Problem, gaps: Sequence[IntervalGap], over: Sequence[Sequence[int]], unit: int
) -> tuple[tuple[int | None, ...], tuple[int | None, ...], int]:
    """Return the room for evictable tensors during and before operations, and the capacity."""
    trace, memory = problem.trace, problem.platform.memory
    room: list[int | None] = []
    idle_room: list[int | None] = []
    capacity = 0
    for o in range(len(trace)):
        across = [gap for gap in gaps if gap.before < o <= gap.after]
        for demand, present, rooms in (
            (trace.demand[o], [gaps[index] for index in over[o]], room),
            (trace.live_before[o], across, idle_room),
        ):
            if demand > memory:
                # Sizes may have been rounded up, so the room for them is counted in the same units.
                rest = (memory - demand + sum(gap.size for gap in present)) // unit
                rooms.append(rest)
                capacity = max(capacity, rest)
            else:
                rooms.append(None)
                capacity = max(capacity, sum(gap.height for gap in present))
    return tuple(room), tuple(idle_room), capacity


def instants(data: IntervalData) -> tuple[Instant, ...]:
    """Return the instants at which absence is counted by literals, in order of time."""
    binding = [o for o, amount in enumerate(data.required) if amount > 0]
    if not binding:
        return ()
    turn = max(binding, key=lambda o: data.required[o])
    found = []
    for o in binding:
        if o <= turn or data.durations[o] == 0:
            found.append(Instant(o, at_end=False))
        if o >= turn and data.durations[o] > 0:
            found.append(Instant(o, at_end=True))
    return tuple(found)
