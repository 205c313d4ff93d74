"""Problems on a grid of time cells: the data that models share, and why their bounds are sound.

Why a coarse grid is sound
--------------------------
Let ``γ`` be the ticks of a cell. Operations and transfers last ``⌊d/γ⌋`` cells. Take any schedule
at full resolution and move every start s to the cell ``⌊s/γ⌋``. The result is feasible on the grid:

1. *Order, link, data, windows.* If ``s + d ≤ s'``, then ``⌊s/γ⌋ + ⌊d/γ⌋ ≤ ⌊(s + d)/γ⌋ ≤ ⌊s'/γ⌋``.
   So whatever waited for an end still waits for it: an operation for the one before it, a transfer
   for the link, an offload for its writer, a prefetch for the release, an operation for a prefetch.
   The same holds for the sum of consecutive durations (`distances`). A window ``[a, b]`` becomes
   ``[⌊a/γ⌋, ⌊b/γ⌋]``.
2. *Memory in cell τ.* Compare with the real instant ``T = (τ + 1)γ - 1``, the last tick of the
   cell. What starts in a cell up to τ has started by T, and the other way round. What ends by T
   ends, on the grid, no later than in cell τ. So if operation o runs in cell τ it runs at T, and if
   the cell lies between operations o-1 and o, then at T either o-1 runs or none does, and what is
   held then is at least what is held between them. What is absent at T (released by T, prefetch not
   started) is absent in cell τ. Hence enough is absent in cell τ, because enough was absent at T;
   this includes the rounding of the required amount up to a reachable sum.
3. *Operations that last no cell* are in no cell's memory. At its start such an operation sees what
   has been released by its cell and has not been fetched in an earlier one: at least what it really
   saw. Operations of no ticks are meant by this, and a prefetch that starts at the same time takes
   its memory after them.

So the least start of the last operation on the grid, ``c`` cells, satisfies ``cγ ≤ s`` for its
start s in every schedule, and ``cγ`` plus its exact duration is a lower bound. With ``γ = 1``
nothing is rounded, every solution is a schedule, and the bound is the optimum.

Evictable sizes may be rounded up if what must be absent stays the same: whatever was absent then
counts for at least as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from offcert.core.platform import Kind
from offcert.core.trace import Gap, Trace
from offcert.formulations.combinatorial.relaxations import heads_and_tails, required_absent
from offcert.questions.schedule.problem import Problem


@dataclass(frozen=True, slots=True)
class UsefulGap:
    """A gap that may be worth evicting."""

    number: int  # Index into ``trace.gaps``.
    # Of the tensor and the gap, as in the trace.
    tensor: int
    writer: int
    before: int
    after: int
    size: int  # Bytes, perhaps rounded up.


@dataclass(frozen=True, slots=True)
class GridData:
    """The part of a problem on a grid that is the same for every model."""

    grid: int  # Ticks a cell.
    # For each operation, which of the gaps worth evicting span it.
    over: tuple[tuple[int, ...], ...]
    # For each operation, bytes that must be absent while it runs, rounded up to a reachable sum.
    required: tuple[int, ...]
    distances: tuple[tuple[int, int, int], ...]  # As `distances` returns them.


def transfer_times(problem: Problem) -> list[int]:
    """Return the ticks of every gap's offload and of every gap's prefetch."""
    trace, ticks = problem.trace, problem.platform.transfer_time
    return [ticks(trace.gap_size(gap), kind) for gap in range(len(trace.gaps)) for kind in Kind]


def longest_makespan(problem: Problem) -> int:
    """Return a makespan, in ticks, that some optimal schedule does not exceed.

    Executed without waiting, some operation or transfer runs at every time; a tensor leaves once
    and comes back at most once a gap.
    """
    return problem.trace.compute_time + sum(transfer_times(problem))


def start_windows(problem: Problem, upper: int) -> tuple[list[int], list[int]] | None:
    """Return the earliest and the latest start of each operation, in ticks.

    The problem is a feasible one with atomic transfers; only schedules of at most `upper` ticks
    count. None if some operation has no time to start at: then there is no such schedule.
    """
    durations = problem.trace.durations
    own = heads_and_tails(problem, required_absent(problem, subset_sum=True))
    # Schedules have integer times.
    earliest = list(map(math.ceil, own.heads))
    latest = [upper - math.ceil(tail) for tail in own.tails]
    for o in range(1, len(durations)):
        earliest[o] = max(earliest[o], earliest[o - 1] + durations[o - 1])
    for o in reversed(range(len(durations) - 1)):
        latest[o] = min(latest[o], latest[o + 1] - durations[o])
    if any(low > high for low, high in zip(earliest, latest, strict=True)):
        return None
    return earliest, latest


def useful_gaps(trace: Trace, required: Sequence[int]) -> Iterator[tuple[int, Gap, list[int]]]:
    """Yield each gap that spans operations at which memory can bind: its number, itself, and these.

    During each operation, `required` bytes must be absent. Evicting another gap frees memory only
    where everything fits anyway: what is held in idle time is held during the operations on both of
    its sides too.
    """
    for number, gap in enumerate(trace.gaps):
        binding = [o for o in range(gap.before + 1, gap.after) if required[o] > 0]
        if binding:
            yield number, gap, binding


def spanning(gaps: Iterable[tuple[int, int]], operations: int) -> tuple[tuple[int, ...], ...]:
    """Return, for each operation, which of the gaps (before, after) span it."""
    over: list[list[int]] = [[] for _ in range(operations)]
    for index, (before, after) in enumerate(gaps):
        for o in range(before + 1, after):
            over[o].append(index)
    return tuple(map(tuple, over))


def distances(durations: Sequence[int], grid: int) -> tuple[tuple[int, int, int], ...]:
    """Return distances in cells over 2, 4, 8, … operations, where rounding makes them too short.

    Durations and the grid's cell are in ticks. In ``(a, b, cells)``, operation b starts at least so
    long after a. This recovers part of what rounding every duration down loses.
    """
    found = []
    step = 2
    while grid > 1 and step < len(durations):
        for a in range(len(durations) - step):
            stretch = durations[a : a + step]
            cells = sum(stretch) // grid
            if cells > sum(duration // grid for duration in stretch):
                found.append((a, a + step, cells))
        step *= 2
    return tuple(found)


def symmetric_pairs(
    gaps: Sequence[UsefulGap], times: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield pairs (outer, inner) of indices of gaps that may be exchanged.

    Of two such gaps the outer one may be assumed to be evicted first, to leave first and to return
    last: `offcert.formulations.models.interval_model` says why, where it uses that. `times` says
    how long the offload and the prefetch of each last: sizes that were rounded up to the same one
    may last differently.
    """
    members: dict[int, list[int]] = {}
    for index, gap in enumerate(gaps):
        members.setdefault(gap.tensor, []).append(index)
    single = [indices[0] for indices in members.values() if len(indices) == 1]
    single.sort(key=lambda i: (gaps[i].size, gaps[i].before, -gaps[i].after, i))
    for outer, inner in pairwise(single):
        a, b = gaps[outer], gaps[inner]
        nested = a.before <= b.before and a.after >= b.after and a.writer <= b.writer
        if a.size == b.size and times[outer] == times[inner] and nested:
            yield outer, inner
