"""Faster alternatives where a schedule leaves room for their workspace."""

from __future__ import annotations

from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.split.menu import Menu


def free_workspace(trace: Trace, schedule: Schedule, memory: int) -> list[int]:
    """Return the bytes that a schedule leaves free for the workspace of each operation.

    Parameters
    ----------
    trace : Trace
        The trace that is scheduled; its own workspaces do not count.
    schedule : Schedule
        Of `trace`, with workspaces no larger than what is left free.
    memory : int
        Bytes on the device.
    """
    operations = trace.operations
    room = [memory - need + o.workspace for need, o in zip(trace.demand, operations, strict=True)]
    copied = {
        trace.gaps[transfer.gap].tensor: transfer.end
        for transfer in schedule.transfers
        if transfer.kind is Kind.OFFLOAD
    }
    for transfer in schedule.transfers:
        if transfer.kind is not Kind.PREFETCH:
            continue
        gap = trace.gaps[transfer.gap]
        gone = copied[gap.tensor]
        for operation in range(gap.before + 1, gap.after):
            if gone <= schedule.starts[operation] and transfer.start >= schedule.ends[operation]:
                room[operation] += trace.tensors[gap.tensor].size
    return room


def upgraded(trace: Trace, menu: Menu, schedule: Schedule, memory: int) -> tuple[int, ...] | None:
    """Return the fastest alternatives that fit into what a schedule leaves free.

    The plan of the schedule can then still be followed: what returns may have to wait for an
    operation that now takes longer, but for nothing that comes after it.

    Returns
    -------
    tuple of int or None
        A choice; None if some operation has no alternative that fits.
    """
    room = free_workspace(trace, schedule, memory)
    choice = []
    for operation, row in menu.offers:
        fits = [number for number, way in enumerate(row) if way.workspace <= room[operation]]
        if not fits:
            return None
        choice.append(min(fits, key=lambda number: (row[number].duration, row[number].workspace)))
    return tuple(choice)
