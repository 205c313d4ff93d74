"""Problems with atomic transfers on a grid of time cells, for the time-indexed models.

A binary ``x[i, τ]`` says whether item i (an operation, a tensor's offload, a gap's prefetch) starts
in cell τ. The models use its running sums ``X[i, τ]``, "has started by cell τ": one is as good as
the other, but a precedence costs one row of two entries a cell in the sums. Windows from heads,
tails and the incumbent decide which cells an item needs variables for.

`offcert.formulations.common.grid` proves that coarse grids bound soundly.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.core.trace import Trace, require_integer
from offcert.formulations.combinatorial.relaxations import least_subset_sum, required_absent
from offcert.formulations.common.grid import (
    GridData,
    UsefulGap,
    distances,
    spanning,
    start_windows,
    transfer_times,
    useful_gaps,
)
from offcert.formulations.common.outcome import rough_plans
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer


@dataclass(frozen=True, slots=True)
class StartWindow:
    """Something that starts in one cell of a window."""

    # Cells; both belong to the window.
    first: int
    last: int
    length: int  # Cells.


@dataclass(frozen=True, slots=True)
class GridGap(UsefulGap):
    """A gap that may be worth evicting, and when it may be."""

    prefetch: StartWindow  # Its prefetch.
    # Whether its tensor has no other gap here and is opened by its writer, so that the tensor is
    # absent from the end of its offload on.
    alone: bool
    single: bool  # Whether its tensor has no other gap here.

    @classmethod
    def of(cls, trace: Trace, number: int, prefetch: StartWindow, single: bool) -> GridGap:
        """Return a gap of a trace by its number; `prefetch` and `single` are as above."""
        gap = trace.gaps[number]
        writer = trace.tensors[gap.tensor].uses[0]
        return cls(
            number=number,
            tensor=gap.tensor,
            writer=writer,
            before=gap.before,
            after=gap.after,
            size=trace.gap_size(number),
            prefetch=prefetch,
            alone=single and gap.before == writer,
            single=single,
        )


@dataclass(frozen=True, slots=True)
class TimeGrid(GridData):
    """A problem on a grid; times in cells."""

    operations: tuple[StartWindow, ...]  # In their order.
    offloads: dict[int, StartWindow]  # By tensor.
    gaps: tuple[GridGap, ...]  # Gaps that are worth evicting.
    # Bytes that must be absent in the idle time before each operation, rounded up to reachable
    # sums.
    idle_required: tuple[int, ...]
    exact: bool  # Whether nothing was rounded: cells divide every duration.

    @property
    def cells(self) -> int:
        """One more than the last cell in which anything can happen."""
        return max(item.last + item.length for item in self.operations) + 1

    @property
    def variables(self) -> int:
        """How many pairs of an item and a cell the windows leave."""
        items = [*self.operations, *self.offloads.values(), *(gap.prefetch for gap in self.gaps)]
        return sum(item.last - item.first + 1 for item in items)

    def plans(
        self,
        trace: Trace,
        starts: Sequence[int],
        offloads: dict[int, int],
        prefetches: dict[int, int],
    ) -> list[Plan]:
        """Return plans that follow a solution: the cells in which everything starts.

        Operations are in their order, offloads by tensor, prefetches by index into `gaps`.
        """
        ends = [s + item.length for s, item in zip(starts, self.operations, strict=True)]
        evicted = {self.gaps[index].number: start for index, start in prefetches.items()}
        lengths = {gap.number: gap.prefetch.length for gap in self.gaps}
        transfers = [
            Transfer(Kind.PREFETCH, gap, start, start + lengths[gap])
            for gap, start in evicted.items()
        ]
        for tensor, gap in trace.first_gaps(evicted).items():
            start = offloads[tensor]
            end = start + self.offloads[tensor].length
            transfers.append(Transfer(Kind.OFFLOAD, gap, start, end))
        rough = Schedule(starts, ends, transfers)
        return [rough.plan(trace)] if self.exact else rough_plans(trace, rough)


def build_grid(problem: Problem, grid: int, upper: int, plain: bool = False) -> TimeGrid | None:
    """Return the problem on a grid, or None if its windows leave no schedule of at most `upper`.

    The problem is feasible: its memory is at least the trace's least. `grid` is the ticks of a
    cell, `upper` are ticks. If `plain`, windows follow from durations alone, and amounts stay as
    they are.
    """
    require_integer(grid, "grid", 1)
    trace = problem.trace
    required = required_absent(problem, subset_sum=not plain)
    windows = _plain_windows(trace, upper) if plain else start_windows(problem, upper)
    exact = common_divisor(problem) % grid == 0
    if windows is None:
        return None
    earliest, latest = windows
    if exact:
        earliest = [-(-time // grid) * grid for time in earliest]
        latest = [time // grid * grid for time in latest]
        if any(low > high for low, high in zip(earliest, latest, strict=True)):
            return None
    operations = (
        StartWindow(low // grid, high // grid, duration // grid)
        for low, high, duration in zip(earliest, latest, trace.durations, strict=True)
    )
    offloads, prefetches = _transfers(problem, grid, required, earliest, latest)
    apart = () if plain else distances(trace.durations, grid)
    return _time_grid(problem, grid, operations, offloads, prefetches, required, apart, exact)


def _time_grid(
    problem: Problem,
    grid: int,
    operations: Iterable[StartWindow],
    offloads: dict[int, StartWindow],
    prefetches: dict[int, StartWindow],
    required: Sequence[int],
    apart: tuple[tuple[int, int, int], ...],
    exact: bool,
) -> TimeGrid:
    """Return windows of operations, offloads by tensor and prefetches by gap as a grid."""
    trace = problem.trace
    several = Counter(trace.gaps[number].tensor for number in prefetches)
    gaps = tuple(
        GridGap.of(trace, number, window, several[trace.gaps[number].tensor] == 1)
        for number, window in prefetches.items()
    )
    return TimeGrid(
        grid=grid,
        operations=tuple(operations),
        offloads=offloads,
        gaps=gaps,
        over=spanning(((gap.before, gap.after) for gap in gaps), len(trace)),
        required=tuple(required),
        idle_required=idle_required(problem),
        distances=apart,
        exact=exact,
    )


def rounded_up(problem: Problem, grid: int, required: Sequence[int], last: int) -> TimeGrid:
    """Return a problem on a grid with durations rounded up, so that solutions are schedules.

    Windows follow from durations alone, and everything ends by cell `last`. During each operation
    `required` bytes must be absent.
    """
    trace = problem.trace

    def cells(ticks: int) -> int:
        return -(-ticks // grid)

    lengths = [cells(duration) for duration in trace.durations]
    ends = list(accumulate(lengths))
    starts = [end - length for end, length in zip(ends, lengths, strict=True)]
    latest = [last - (ends[-1] - start) for start in starts]
    offloads: dict[int, StartWindow] = {}
    prefetches: dict[int, StartWindow] = {}
    for number, gap, _ in useful_gaps(trace, required):
        size = trace.gap_size(number)
        out, back = (cells(problem.platform.transfer_time(size, kind)) for kind in Kind)
        writer = trace.tensors[gap.tensor].uses[0]
        written = ends[writer] if writer >= 0 else 0
        first = max(written + out, ends[gap.before] if gap.before >= 0 else 0)
        until = latest[gap.after] - back
        known = offloads.get(gap.tensor)
        left = until - out if known is None else max(known.last, until - out)
        offloads[gap.tensor] = StartWindow(written, left, out)
        prefetches[number] = StartWindow(first, until, back)
    operations = map(StartWindow, starts, latest, lengths)
    return _time_grid(problem, grid, operations, offloads, prefetches, required, (), True)


def _plain_windows(trace: Trace, upper: int) -> tuple[list[int], list[int]]:
    """Return the earliest and latest starts of operations that durations leave, in ticks."""
    earliest = list(accumulate(trace.durations, initial=0))
    return earliest[:-1], [upper - earliest[-1] + start for start in earliest[:-1]]


def common_divisor(problem: Problem) -> int:
    """Return the largest number of ticks that divides every duration, of transfers too.

    Cells of so many ticks lose nothing. Take a schedule and let everything start as early as its
    order of events allows. Then whatever starts after time 0 does so when something ends, or at the
    same time as something that claims memory before it; so every start is a sum of durations.
    """
    return math.gcd(*problem.trace.durations, *transfer_times(problem)) or 1


def choose_grid(problem: Problem, upper: int, variables: int, plain: bool = False) -> int:
    """Return a fine grid, in ticks a cell, on which at most about `variables` are needed."""
    unit = common_divisor(problem)
    finest = build_grid(problem, unit, upper, plain)
    return unit if finest is None else unit * max(1, -(-finest.variables // variables))


def require_coarse_enough(data: TimeGrid, variables: int) -> None:
    """Raise if a grid needs more than `variables` pairs of an item and a cell."""
    needed = data.variables
    if needed > variables:
        coarser = -(-needed * data.grid // variables)
        raise InputError(
            f"grid must be at least about {coarser} ticks here, not {data.grid}: "
            f"{needed} variables are too many"
        )


def _transfers(
    problem: Problem,
    grid: int,
    required: Sequence[int],
    earliest: Sequence[int],
    latest: Sequence[int],
) -> tuple[dict[int, StartWindow], dict[int, StartWindow]]:
    """Return the offloads, by tensor, and the prefetches, by gap, for which there is time.

    A release after the last operation at which memory can bind frees nothing that is needed, and
    neither does a prefetch before the first one, unless the idle time on that side can bind too:
    only between a binding operation and one that opens or closes the gap.
    """
    trace = problem.trace
    windows: dict[int, tuple[int, int]] = {}
    lengths: dict[int, int] = {}
    prefetches = {}
    for number, gap, binding in useful_gaps(trace, required):
        out, back = (
            problem.platform.transfer_time(trace.gap_size(number), kind)
            for kind in (Kind.OFFLOAD, Kind.PREFETCH)
        )
        writer = trace.tensors[gap.tensor].uses[0]
        written = earliest[writer] + trace.durations[writer] if writer >= 0 else 0
        opened = earliest[gap.before] + trace.durations[gap.before] if gap.before >= 0 else 0
        first = max(written + out, opened)
        if binding[0] > gap.before + 1:
            first = max(first, earliest[binding[0]])
        last = latest[gap.after] - back
        released = last
        if binding[-1] < gap.after - 1:
            released = min(last, latest[binding[-1]] + trace.durations[binding[-1]])
        if first <= last and written + out <= released:
            prefetches[number] = StartWindow(first // grid, last // grid, back // grid)
            lengths[gap.tensor] = out
            low, high = windows.get(gap.tensor, (written, written))
            windows[gap.tensor] = (low, max(high, released - out))
    offloads = {
        tensor: StartWindow(low // grid, high // grid, lengths[tensor] // grid)
        for tensor, (low, high) in windows.items()
    }
    return offloads, prefetches


def idle_required(problem: Problem) -> tuple[int, ...]:
    """Return the bytes that must be absent in the idle time before each operation."""
    trace = problem.trace
    amounts = []
    for o, held in enumerate(trace.live_before):
        sizes = sorted(
            trace.gap_size(number)
            for number, gap in enumerate(trace.gaps)
            if gap.before < o <= gap.after
        )
        amounts.append(least_subset_sum(tuple(sizes), held - problem.platform.memory))
    return tuple(amounts)


def cells_to_order(first: StartWindow, second: StartWindow) -> Iterable[int]:
    """Return the cells in which "second has started" must imply "first, an operation, has ended".

    Before, the second cannot have started; after, the first has ended in any case.
    """
    return range(second.first, min(second.last, first.last + first.length - 1) + 1)
