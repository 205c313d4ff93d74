"""The memory over time of a schedule whose transfers are whole: it changes in steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.core.trace import Trace


def resident_changes(
    trace: Trace, starts: Sequence[int], ends: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield when the bytes on the device change, and by how much, if nothing leaves."""
    for tensor in trace.tensors:
        first = tensor.uses[0]
        yield starts[first] if first >= 0 else 0, tensor.size
        yield ends[tensor.uses[-1]], -tensor.size
    for operation, start, end in zip(trace.operations, starts, ends, strict=True):
        yield start, operation.workspace
        yield end, -operation.workspace


def memory_curve(problem: Problem, schedule: Schedule) -> tuple[list[int], list[int]]:
    """Return the bytes on the device over time, as the times of change and the bytes from then on.

    Changes at the same time are joined, so an operation of no duration does not show.
    """
    trace = problem.trace
    changes: dict[int, int] = {0: 0}

    def change(time: int, size: int) -> None:
        changes[time] = changes.get(time, 0) + size

    for time, size in resident_changes(trace, schedule.starts, schedule.ends):
        change(time, size)
    offloads = {trace.gaps[t.gap].tensor: t for t in schedule.transfers if t.kind is Kind.OFFLOAD}
    for transfer in schedule.transfers:
        if transfer.kind is Kind.PREFETCH:
            gap = trace.gaps[transfer.gap]
            left = schedule.ends[gap.before] if gap.before >= 0 else 0
            # What has not been verified may come back without having left.
            if gap.tensor in offloads:
                left = max(offloads[gap.tensor].end, left)
            change(left, -trace.gap_size(transfer.gap))
            change(transfer.start, trace.gap_size(transfer.gap))
    times = sorted(changes)
    held, total = [], 0
    for time in times:
        total += changes[time]
        held.append(total)
    return times, held
