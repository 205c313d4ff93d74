"""When the host holds copies of what has left: residences in an arena of the host.

What is offloaded takes memory of the host. It is copied once and read by every prefetch, so a
tensor that leaves has one copy, and the copy has one residence, whatever it is evicted again.

**By the schedule** (`host_residences`). From the start of the offload to the end of the tensor's
last prefetch, in ticks: nothing reads the copy afterwards.

**In the order of operations** (`host_residences_in_order`). A runtime that moves tensors between
operations, as `offcert.runtime` does on the CPU, does so before an operation begins: first
everything is copied out that is to be gone by then, then everything is read back whose memory the
plan has taken by then. A copy that is written before operation ``r`` and read last before operation
``c`` is needed from ``r`` to just before ``c + 1``. Two copies that do not meet on this axis are
never needed at the same time, however long anything takes: one is read for the last time
before an earlier operation than that before which the other is written.

**Ticks do not suffice for that.** Let A return in ticks 3 to 6 and B leave in ticks 6 to 9, while
one operation runs from 2 to 10. In ticks the copy of A has gone when that of B comes. But both
happen before the next operation, where B is written before A is read: in the same bytes A would be
lost. Ticks are for whoever carries out the transfers one after the other in the order of the
schedule: on a simplex link that is the order of time, so residences that do not meet in ticks
are used one after the other, however long anything takes.
"""

from __future__ import annotations

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.core.units import Units
from offcert.questions.placement.problem import Occupant, PlacementProblem, Residence
from offcert.questions.schedule.fluid_schedule import FluidSchedule
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Bytes of which addresses on the host are multiples. Given by processors: a line of the cache, and
# the widest vector.
HOST_ALIGNMENT = 64

HostResidences = tuple[tuple[Occupant, Residence], ...]


def host_placement_problem(
    problem: Problem, schedule: Schedule | FluidSchedule, alignment: int = HOST_ALIGNMENT
) -> PlacementProblem:
    """Return the problem of finding addresses on the host for what a schedule offloads.

    Parameters
    ----------
    problem : Problem
        Of which `schedule` is a valid one; of a certificate, `Certificate.executed`.
    schedule : Schedule
        Its transfers are whole. Times are its ticks.
    alignment : int
        Bytes of which every address is a multiple.

    Raises
    ------
    InputError
        If the schedule moves tensors in pieces.
    """
    rows = [residence for _, residence in host_residences(problem.trace, schedule)]
    units = Units(problem.units.time, problem.units.size)
    return PlacementProblem(f"{problem.name} on the host", rows, None, alignment, units)


def host_residences(trace: Trace, schedule: Schedule | FluidSchedule) -> HostResidences:
    """Return which tensors have a copy on the host, and from when to when, in ticks.

    Returns
    -------
    tuple of (Occupant, Residence)
        By the numbers of the tensors; what is empty has none.

    Raises
    ------
    InputError
        If the schedule moves tensors in pieces.
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
    return _residences(trace, stays)


def host_residences_in_order(trace: Trace, plan: Plan) -> HostResidences:
    """Return which tensors have a copy on the host, and before which operations it is needed.

    Parameters
    ----------
    trace : Trace
        The trace that is executed.
    plan : Plan
        A plan that makes sense on the trace (`Plan.require_consistent`).

    Returns
    -------
    tuple of (Occupant, Residence)
        By the numbers of the tensors; what is empty has none. The residence starts at the operation
        before which the copy is written, and ends after that before which it is read last.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for move in plan.moves:
        tensor = trace.gaps[move.gap].tensor
        if move.kind is Kind.OFFLOAD:
            first[tensor] = move.before
        else:
            last[tensor] = max(last.get(tensor, 0), move.before)
    return _residences(trace, {tensor: (first[tensor], last[tensor] + 1) for tensor in first})


def _residences(trace: Trace, stays: dict[int, tuple[int, int]]) -> HostResidences:
    return tuple(
        (
            Occupant("tensor", tensor),
            Residence(trace.tensors[tensor].name, trace.tensors[tensor].size, start, end),
        )
        for tensor, (start, end) in sorted(stays.items())
        if trace.tensors[tensor].size
    )
