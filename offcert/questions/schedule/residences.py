"""Residences: when tensors and workspaces occupy device memory, and copies host memory.

A schedule of whole transfers says of every tensor and workspace from when to when it has memory.

- A tensor has it from the start of the operation that writes it (one that is resident at the
  start: from time 0) to the end of its last use.
- Where a gap of it is evicted, it has none from its release, which `Schedule.release` defines, to
  the start of its prefetch. So it has one residence more than it has evicted gaps.
- A workspace has it while its operation runs.
- What is empty has none.

These are the events by which `offcert.questions.schedule.check` counts bytes, so the most bytes
that residences take together are the memory that the schedule needs.

**The axis.** Ticks do not order everything. At one tick, in this order: memory is released;
operations of no duration run, one after the other; prefetches and all other operations take memory.
A tensor that is written and read last by operations of no duration would have an empty stretch of
ticks, and yet needs room while they run. Therefore every operation of no duration gets one unit of
the axis for itself: a moment is a tick plus the number of such operations before it. Without any
the axis is that of ticks.

Registered memory of the host may be limited. Copies that have no room there go to a file, or to
memory that is not registered: those with the fewest bytes, as each byte is written there and read
from there in every step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.core.units import Units
from offcert.questions.placement.problem import Occupant, PlacementProblem, Residence
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, Transfer

# Bytes of which addresses on the host are multiples. Given by processors: a line of the cache, and
# the widest vector.
HOST_ALIGNMENT = 64

HostResidences = tuple[tuple[Occupant, Residence], ...]


def host_placement_problem(
    problem: Problem, schedule: Schedule | FluidSchedule, alignment: int = HOST_ALIGNMENT
) -> PlacementProblem:
    """Return the problem of finding addresses on the host for what a valid schedule offloads.

    Transfers are whole, times are ticks of the schedule, addresses multiples of `alignment`.
    """
    rows = [residence for _, residence in host_residences(problem.trace, schedule)]
    units = Units(problem.units.time, problem.units.size)
    return PlacementProblem(f"{problem.name} on the host", rows, None, alignment, units)


def host_residences(trace: Trace, schedule: Schedule | FluidSchedule) -> HostResidences:
    """Return which tensors have a copy on the host, and from when to when, in ticks.

    Ordered by the numbers of the tensors; empty tensors have none.
    """
    if isinstance(schedule, FluidSchedule):
        raise InputError(
            "a schedule that moves tensors in pieces has no copies to be placed on the host: with "
            "interruptible or fractional transfers tensors leave and return byte by byte"
        )
    stays: dict[int, tuple[int, int]] = {}
    for transfer in schedule.transfers:
        tensor = trace.gaps[transfer.gap].tensor
        start, end = stays.get(tensor, (transfer.start, transfer.end))
        stays[tensor] = min(start, transfer.start), max(end, transfer.end)
    return residences_of(trace, stays)


def host_residences_in_order(trace: Trace, plan: Plan) -> HostResidences:
    """Return which tensors have a copy on the host, and before which operations it is needed.

    The plan makes sense on the trace (`Plan.require_consistent`). They are ordered by the numbers
    of the tensors; what is empty has none. A residence starts at the operation before which the
    copy is written, and ends after that before which it is read last.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for move in plan.moves:
        tensor = trace.gaps[move.gap].tensor
        if move.kind is Kind.OFFLOAD:
            first[tensor] = move.before
        else:
            last[tensor] = max(last.get(tensor, 0), move.before)
    return residences_of(trace, {tensor: (first[tensor], last[tensor] + 1) for tensor in first})


def residences_of(trace: Trace, stays: dict[int, tuple[int, int]]) -> HostResidences:
    """Return the residences of tensors by when each has a copy, ordered by their numbers."""
    return tuple(
        (
            Occupant("tensor", tensor),
            Residence(trace.tensors[tensor].name, trace.tensors[tensor].size, start, end),
        )
        for tensor, (start, end) in sorted(stays.items())
        if trace.tensors[tensor].size
    )


def placement_problem(
    problem: Problem,
    schedule: Schedule | FluidSchedule,
    capacity: int | None = None,
    alignment: int = 1,
) -> PlacementProblem:
    """Return the problem of finding an address for every residence of a schedule.

    The schedule is a valid one of the problem (of a certificate, `Certificate.executed`), with
    whole transfers. The capacity is the bytes of the pool, which by default is to be as small as
    possible; every address is a multiple of the alignment.
    """
    found = residences(problem.trace, schedule)
    # Ticks suffice where every operation lasts.
    axis = problem.units.time if all(problem.trace.durations) else "tick"
    return PlacementProblem(
        problem.name,
        [residence for _, residence in found],
        capacity,
        alignment,
        Units(axis, problem.units.size),
    )


def residences(
    trace: Trace, schedule: Schedule | FluidSchedule
) -> tuple[tuple[Occupant, Residence], ...]:
    """Return the residences of all tensors and workspaces in a valid schedule, on the axis.

    Tensors by their numbers, the residences of each in the order of time; then workspaces by the
    numbers of their operations.
    """
    whole = require_whole(schedule)
    return (*_of_tensors(trace, whole), *_of_workspaces(trace, whole))


def require_whole(schedule: Schedule | FluidSchedule) -> Schedule:
    """Return a schedule whose transfers are whole."""
    if isinstance(schedule, FluidSchedule):
        raise InputError(
            "a schedule that moves tensors in pieces cannot be placed: with interruptible or "
            "fractional transfers memory is taken and released byte by byte"
        )
    return schedule


def _of_tensors(trace: Trace, schedule: Schedule) -> Iterator[tuple[Occupant, Residence]]:
    axis = _Axis(trace, schedule)
    # By tensor, as gaps are ordered.
    absences: dict[int, list[tuple[int, int]]] = {}
    copied, returns = _transfers(trace, schedule)
    for number in sorted(returns):
        gap = trace.gaps[number]
        # Not before the copy is complete, nor before the operation ends that opens the gap.
        gone = max(axis.released(copied[gap.tensor].end), axis.end(gap.before))
        back = axis.taken(returns[number].start)
        absences.setdefault(gap.tensor, []).append((gone, back))
    for index, tensor in enumerate(trace.tensors):
        if tensor.size == 0:
            continue
        start = axis.begin(tensor.uses[0])
        for stay, (gone, back) in enumerate(absences.get(index, ())):
            name = _name(tensor.name, stay)
            yield Occupant("tensor", index), Residence(name, tensor.size, start, gone)
            start = back
        name = _name(tensor.name, len(absences.get(index, ())))
        end = axis.end(tensor.uses[-1])
        yield Occupant("tensor", index), Residence(name, tensor.size, start, end)


def _of_workspaces(trace: Trace, schedule: Schedule) -> Iterator[tuple[Occupant, Residence]]:
    axis = _Axis(trace, schedule)
    for index, operation in enumerate(trace.operations):
        if operation.workspace:
            name = f"workspace of {operation.name}"
            start, end = axis.begin(index), axis.end(index)
            yield Occupant("workspace", index), Residence(name, operation.workspace, start, end)


def _transfers(trace: Trace, schedule: Schedule) -> tuple[dict[int, Transfer], dict[int, Transfer]]:
    """Return the offload of each tensor, and the prefetch of each gap."""
    copied, returns = {}, {}
    for transfer in schedule.transfers:
        if transfer.kind is Kind.OFFLOAD:
            copied[trace.gaps[transfer.gap].tensor] = transfer
        else:
            returns[transfer.gap] = transfer
    return copied, returns


def _name(name: str, stay: int) -> str:
    """Return the name of a tensor's residence; later ones are counted."""
    return name if stay == 0 else f"{name} (back {stay})"


class _Axis:
    """Moments of a schedule: ticks, and a unit for every operation of no duration."""

    def __init__(self, trace: Trace, schedule: Schedule) -> None:
        self._schedule = schedule
        instant = [index for index, duration in enumerate(trace.durations) if duration == 0]
        self._instant = {index: number for number, index in enumerate(instant)}
        # Operations start one after the other.
        self._at = [schedule.starts[index] for index in instant]

    def released(self, tick: int) -> int:
        """Return when memory is released at a tick: before anything runs."""
        return tick + bisect_left(self._at, tick)

    def taken(self, tick: int) -> int:
        """Return when prefetches and lasting operations take memory at a tick."""
        return tick + bisect_right(self._at, tick)

    def begin(self, operation: int) -> int:
        """Return when an operation begins (-1: the schedule)."""
        if operation < 0:
            return 0
        start = self._schedule.starts[operation]
        number = self._instant.get(operation)
        return self.taken(start) if number is None else start + number

    def end(self, operation: int) -> int:
        """Return when an operation ends (-1: what comes before all)."""
        if operation < 0:
            return 0
        if operation in self._instant:
            return self.begin(operation) + 1
        return self.released(self._schedule.ends[operation])


# Steps into which bytes are divided when it is decided which tensors leave. Arbitrary.
_STEPS = 1024

# The last number, and those before it.
_Chain = tuple[int, Any] | None


def bytes_for_staging(problem: PlacementProblem, limit: int) -> int:
    """Return the bytes of a limit that are for copies in transit; 0 if there is no room.

    With room for four of the largest, two may be on their way to the file while two come back.
    Where one has no room it would go in small pieces, each of which the host waits for.
    """
    largest = _aligned(max(problem.sizes))
    size = max(largest, min(4 * largest, limit // 4 // HOST_ALIGNMENT * HOST_ALIGNMENT))
    return size if 2 * HOST_ALIGNMENT <= size <= limit // 2 else 0


def _aligned(size: int) -> int:
    return -(-size // HOST_ALIGNMENT) * HOST_ALIGNMENT


def kept_within(problem: PlacementProblem, target: int) -> frozenset[int]:
    """Find residences of which never more than so many bytes are needed at a time."""
    residences, sizes = problem.residences, problem.sizes
    # What takes nothing never has to leave.
    kept = set(range(len(residences)))
    moments = sorted({residence.start for residence in residences})
    while True:
        # A sum grows only where a residence starts.
        there = {
            moment: [i for i in kept if residences[i].start <= moment < residences[i].end]
            for moment in moments
        }
        moment = max(moments, key=lambda moment: sum(sizes[i] for i in there[moment]))
        excess = sum(sizes[i] for i in there[moment]) - target
        if excess <= 0:
            return frozenset(kept)
        candidates = sorted(i for i in there[moment] if sizes[i])
        if not candidates:
            return frozenset(kept)
        kept -= set(least_covering(candidates, [sizes[i] for i in candidates], excess))


def least_covering(items: Sequence[int], sizes: Sequence[int], excess: int) -> list[int]:
    """Return items of the least total size that is not below `excess`; all if they do not reach it.

    Sums are told apart by 1/1024 of `excess`; where that is less than one, the answer is exact.
    """
    if sum(sizes) <= excess:
        return list(items)
    unit = max(1, excess // _STEPS)
    # By sums in units, rounded down: the true sum, and its items as a chain. Enough has key -1.
    best: dict[int, tuple[int, _Chain]] = {0: (0, None)}
    for number, size in enumerate(sizes):
        for total, chain in list(best.values()):
            if total >= excess:
                continue
            grown = total + size
            key = -1 if grown >= excess else grown // unit
            if key not in best or _better(grown, best[key][0], excess):
                best[key] = grown, (number, chain)
    found, chain = [], best[-1][1]
    while chain is not None:
        number, chain = chain
        found.append(items[number])
    return found


def _better(grown: int, known: int, excess: int) -> bool:
    """Whether a sum is to be kept rather than another one of the same step."""
    return grown < known if known >= excess else grown > known


def pinned_and_pageable(problem: PlacementProblem, pinned: int) -> tuple[int, int]:
    """Divide copies on the host between pinned memory of a limited size and pageable memory.

    The problem says when each copy is needed, and its bytes. If not all copies fit into so many
    pinned bytes, those in pageable memory come and go by way of a part of them. Returned are the
    most bytes that are needed at a time, of pinned and of pageable memory. The former is above
    `pinned` where no copy could be on its way through it.
    """
    if problem.load <= pinned:
        return problem.load, 0
    staging = bytes_for_staging(problem, pinned)
    if staging == 0:
        return max(2 * _aligned(max(problem.sizes)), 4 * HOST_ALIGNMENT), problem.load
    kept = kept_within(problem, pinned - staging)
    rows = list(enumerate(problem.residences))
    inside = tuple(residence for index, residence in rows if index in kept)
    outside = tuple(residence for index, residence in rows if index not in kept)
    most = replace(problem, residences=inside).load
    return staging + most, replace(problem, residences=outside).load
