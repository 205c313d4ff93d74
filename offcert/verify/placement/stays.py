"""Stays of tensors and workspaces in the memory of a schedule: stated again, for verification."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.schedule import Schedule

_Key = tuple[int, int, int]
_RELEASED, _RUNS, _TAKEN = range(3)


@dataclass(frozen=True, slots=True)
class Stay:
    """A stretch of time in which a tensor or a workspace has memory.

    Attributes
    ----------
    kind : str
        ``"tensor"`` or ``"workspace"``.
    index : int
        Of the tensor or the operation.
    name : str
        As documents have it.
    size : int
        Bytes.
    start, end : int
        Ticks, each plus the number of operations of no duration that have begun before.
    """

    kind: str
    index: int
    name: str
    size: int
    start: int
    end: int


def stays(trace: Trace, schedule: Schedule) -> list[Stay]:
    """Return all stays of a schedule that the checker has found to be valid.

    They are ordered as in documents: tensors by number, the stays of each by time, then workspaces.
    """
    instants = sorted(
        (start, _RUNS, index)
        for index, (start, operation) in enumerate(
            zip(schedule.starts, trace.operations, strict=True)
        )
        if operation.duration == 0
    )

    def moment(key: _Key) -> int:
        return key[0] + bisect_left(instants, key)

    found = []
    for index, name, size, first, last in _of_tensors(trace, schedule):
        found.append(Stay("tensor", index, name, size, moment(first), moment(last)))
    for index, operation in enumerate(trace.operations):
        if operation.workspace > 0:
            first, last = _run(trace, schedule, index)
            name = f"workspace of {operation.name}"
            size = operation.workspace
            found.append(Stay("workspace", index, name, size, moment(first), moment(last)))
    return found


def _run(trace: Trace, schedule: Schedule, operation: int) -> tuple[_Key, _Key]:
    """Return when an operation begins and when it has ended; -1 is what was before the start."""
    if operation == -1:
        return (0, _RELEASED, 0), (0, _RELEASED, 0)
    start, end = schedule.starts[operation], schedule.ends[operation]
    if trace.operations[operation].duration == 0:
        return (start, _RUNS, operation), (start, _RUNS, operation + 1)
    return (start, _TAKEN, 0), (end, _RELEASED, 0)


def _of_tensors(trace: Trace, schedule: Schedule) -> Iterator[tuple[int, str, int, _Key, _Key]]:
    """Yield number, name and size of a tensor with the beginning and the end of a stay."""
    on_host: dict[int, int] = {}
    fetched: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for transfer in schedule.transfers:
        gap = trace.gaps[transfer.gap]
        if transfer.kind is Kind.OFFLOAD:
            on_host[gap.tensor] = transfer.end
        else:
            fetched[gap.tensor].append((gap.before, gap.after, transfer.start))
    for index, tensor in enumerate(trace.tensors):
        if tensor.size == 0:
            continue
        begin, _ = _run(trace, schedule, tensor.uses[0])
        number = 0
        for opened, _, returned in sorted(fetched[index]):
            _, used = _run(trace, schedule, opened)
            yield (
                index,
                _called(tensor.name, number),
                tensor.size,
                begin,
                max((on_host[index], _RELEASED, 0), used),
            )
            begin, number = (returned, _TAKEN, 0), number + 1
        _, end = _run(trace, schedule, tensor.uses[-1])
        yield index, _called(tensor.name, number), tensor.size, begin, end


def _called(name: str, number: int) -> str:
    return f"{name} (back {number})" if number else name
