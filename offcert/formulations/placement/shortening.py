"""Schedules of the same step time whose tensors occupy memory for as short as possible.

A schedule is made to end early, so it takes memory as soon as there is some: tensors are written,
and return, long before the link or another operation can go on with them. Addresses are easier to
find if they do so late. Here the order of everything stays as it is: of the operations, of the
transfers in each direction (of all, on a simplex link), and of every release before a taking of
memory that it came before. Within that order, times are chosen that minimise bytes times the ticks
for which they are kept: a linear program of differences, which has integer optima.

What did not meet before does not meet afterwards, so no load is higher, and every placement of the
given schedule's residences is one of the new ones. The page ``docs/theory/placement-search.md``
derives it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from offcert.core.platform import Kind
from offcert.formulations.common.highs import run_linprog
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer

# The solver's unit of bytes times ticks, as its tolerances are absolute. Arbitrary.
_UNIT = 1e6


def shortened(problem: Problem, schedule: Schedule, *, time_limit: float = 10.0) -> Schedule:
    """Return a schedule of the same step time whose residences take fewer bytes times ticks.

    It has the same transfers, which are whole, and the same makespan. Where the solver has no
    answer within `time_limit` seconds, or none that holds exactly, it is the given one. The problem
    is the one that is executed: of a certificate, `Certificate.executed`.
    """
    program = _program(problem, schedule)
    times = program.solved(time_limit)
    if times is None or not program.holds(times):
        return schedule
    count = len(schedule.starts)
    lengths = program.lengths
    transfers = [
        Transfer(each.kind, each.gap, times[place], times[place] + lengths[place])
        for place, each in enumerate(schedule.transfers, count)
    ]
    ends = [start + length for start, length in zip(times[:count], lengths, strict=False)]
    return Schedule(times[:count], ends, transfers)


@dataclass
class _DifferenceProgram:
    """Times that differ by at least so much, and what each of them costs."""

    last: int  # Number of the time at which the last stretch begins; that stretch ends at `latest`.
    latest: int  # Tick at which everything has ended.
    # For each time, ticks of the stretch that begins then.
    lengths: list[int] = field(default_factory=list)
    # Pairs of times: the stretch of the first has ended by the second.
    rows: list[tuple[int, int]] = field(default_factory=list)
    # Bytes by which a tick later is worse, or better if negative.
    cost: list[int] = field(default_factory=list)

    def add(self, length: int) -> int:
        """Return the number of a new time."""
        self.lengths.append(length)
        self.cost.append(0)
        return len(self.lengths) - 1

    @property
    def _ranges(self) -> list[tuple[int, int]]:
        """The earliest and the latest that each time may be."""
        ranges = [(0, self.latest - length) for length in self.lengths]
        ranges[self.last] = (ranges[self.last][1],) * 2
        return ranges

    def solved(self, time_limit: float) -> list[int] | None:
        """Return times of least cost, rounded, or None if there is no answer."""
        rows, columns = len(self.rows), len(self.lengths)
        pairs: NDArray[np.int64] = np.array(self.rows, np.int64).reshape(rows, 2)
        values = np.tile([1.0, -1.0], rows)
        matrix = csr_array(
            (values, (np.repeat(np.arange(rows), 2), pairs.ravel())), shape=(rows, columns)
        )
        lengths = np.array(self.lengths, float)
        cost = np.array(self.cost, float) / _UNIT
        bounds = [(float(low), float(high)) for low, high in self._ranges]
        limits = -lengths[pairs[:, 0]]
        answer = run_linprog(cost, matrix, limits, bounds, time_limit, "highs-ds")
        if answer.x is None or answer.status != 0:
            return None
        return [round(each) for each in answer.x.tolist()]

    def holds(self, times: list[int]) -> bool:
        """Return whether times differ as they must, exactly."""
        lengths = self.lengths
        within = (
            low <= time <= high for time, (low, high) in zip(times, self._ranges, strict=True)
        )
        return all(within) and all(times[a] + lengths[a] <= times[b] for a, b in self.rows)


def _program(problem: Problem, schedule: Schedule) -> _DifferenceProgram:
    """Return the program: times of operations first, then of transfers, then of departures."""
    program = _DifferenceProgram(len(schedule.starts) - 1, schedule.makespan)
    for start, end in zip(schedule.starts, schedule.ends, strict=True):
        program.add(end - start)
    for transfer in schedule.transfers:
        program.add(transfer.end - transfer.start)
    count = len(schedule.starts)
    program.rows += pairwise(range(count))
    directions = [[kind] for kind in Kind] if problem.platform.duplex else [list(Kind)]
    for kinds in directions:
        program.rows += pairwise(
            place for place, each in enumerate(schedule.transfers, count) if each.kind in kinds
        )
    _add_tensors(program, problem, schedule)
    _keep_releases(program, schedule)
    return program


def _add_tensors(program: _DifferenceProgram, problem: Problem, schedule: Schedule) -> None:
    """Add when copies leave and return, and what tensors and their absences cost."""
    trace, count = problem.trace, len(schedule.starts)
    for tensor in trace.tensors:
        first, last = tensor.uses[0], tensor.uses[-1]
        if first >= 0:
            program.cost[first] -= tensor.size
        if last >= 0:
            program.cost[last] += tensor.size
    leaves: dict[int, int] = {}
    for place, each in enumerate(schedule.transfers, count):
        if each.kind is Kind.OFFLOAD:
            tensor_number = trace.gaps[each.gap].tensor
            leaves[tensor_number] = place
            written = trace.tensors[tensor_number].uses[0]
            if written >= 0:
                program.rows.append((written, place))
    for place, each in enumerate(schedule.transfers, count):
        if each.kind is Kind.PREFETCH:
            gap = trace.gaps[each.gap]
            size = trace.tensors[gap.tensor].size
            departure = program.add(0)
            program.rows += [(leaves[gap.tensor], departure), (departure, place)]
            if gap.before >= 0:
                program.rows.append((gap.before, departure))
            program.rows.append((place, gap.after))
            program.cost[departure] += size
            program.cost[place] -= size


def _keep_releases(program: _DifferenceProgram, schedule: Schedule) -> None:
    """Add rows that keep every release before the takings of memory that it came before.

    Memory is released where an operation ends and an offload has ended. Operations keep their
    order and offloads theirs, so the last of each before a taking stands for all.
    """
    count = len(schedule.starts)
    copies = [
        (each.end, place)
        for place, each in enumerate(schedule.transfers, count)
        if each.kind is Kind.OFFLOAD
    ]
    copied = [end for end, _ in copies]
    takings = list(enumerate(schedule.starts))
    returns = [
        (place, each.start)
        for place, each in enumerate(schedule.transfers, count)
        if each.kind is Kind.PREFETCH
    ]
    for place, start in takings + returns:
        before = bisect_right(copied, start)
        if before > 0:
            program.rows.append((copies[before - 1][1], place))
    for place, start in returns:
        before = bisect_right(schedule.ends, start)
        if before > 0:
            program.rows.append((before - 1, place))
