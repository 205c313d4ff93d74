"""Whether addresses are those of a placement: the one place that says so.

Residences enter in the order of time. Those that are there share no byte, so they are ordered by
address, and one that enters can only meet its neighbours in that order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice

from offcert.core.messages import cut
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.placement.problem import Placement, PlacementProblem
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


# Faults of one kind that are named; more are counted. Arbitrary.
_SHOWN = 10
# Letters of a name in a sentence that has two. Arbitrary.
_NAME = 60


def placement_faults(problem: PlacementProblem, placement: Placement) -> list[str]:
    """Return every reason why `placement` is not one of `problem`.

    Parameters
    ----------
    problem : PlacementProblem
        If it has a capacity, no byte beyond it may be taken.
    placement : Placement
        Claimed addresses.

    Returns
    -------
    list of str
        One sentence a violation, with residences, times and bytes; empty if there is none. Of
        several of a kind the first ones.
    """
    count = len(problem.residences)
    addresses = placement.addresses
    if len(addresses) != count:
        return [f"there are {len(addresses)} addresses for {count} residences"]
    wrong = [
        f"residence {index} has the address {cut(repr(address))}, which is no integer"
        for index, address in enumerate(addresses)
        if type(address) is not int
    ]
    if wrong:
        return _first(iter(wrong), "addresses that are no integers")
    return [
        *_first(_outside(problem, addresses), "residences outside the pool"),
        *_first(_unaligned(problem, addresses), "addresses that are no multiples"),
        *_first(_overlaps(problem, addresses), "overlaps"),
    ]


def _first(faults: Iterator[str], what: str) -> list[str]:
    """Return the first faults, and how many more there are."""
    found = list(islice(faults, _SHOWN))
    more = sum(1 for _ in faults)
    return [*found, *([f"there are {more} more {what}"] if more else [])]


def _taken(problem: PlacementProblem, index: int) -> int:
    """Return the bytes that a residence takes: whole multiples of the alignment."""
    unit = problem.alignment
    return (problem.residences[index].size + unit - 1) // unit * unit


def _said(problem: PlacementProblem, addresses: Sequence[int], index: int) -> str:
    residence = problem.residences[index]
    begin = addresses[index]
    return (
        f"{cut(residence.name, _NAME)} (residence {index}, times {residence.start} to "
        f"{residence.end}, bytes {begin} to {begin + _taken(problem, index)})"
    )


def _outside(problem: PlacementProblem, addresses: Sequence[int]) -> Iterator[str]:
    for index, address in enumerate(addresses):
        end = address + _taken(problem, index)
        if address < 0:
            yield f"{_said(problem, addresses, index)} begins before the pool"
        elif problem.capacity is not None and end > problem.capacity:
            yield (
                f"{_said(problem, addresses, index)} ends {end - problem.capacity} bytes beyond "
                f"the pool of {problem.capacity}"
            )


def _unaligned(problem: PlacementProblem, addresses: Sequence[int]) -> Iterator[str]:
    for index, address in enumerate(addresses):
        if address % problem.alignment:
            said = _said(problem, addresses, index)
            yield f"{said} does not begin at a multiple of {problem.alignment}"


def _overlaps(problem: PlacementProblem, addresses: Sequence[int]) -> Iterator[str]:
    """Yield one fault for every residence that meets one that began before it and is sound."""
    residences = problem.residences
    begins: list[int] = []
    there: list[int] = []
    leaving: list[tuple[int, int]] = []
    for index in sorted(range(len(residences)), key=lambda index: residences[index].start):
        size = _taken(problem, index)
        if size == 0:
            continue
        begin, now = addresses[index], residences[index].start
        while leaving and leaving[0][0] <= now:
            place = bisect_left(begins, heappop(leaving)[1])
            del begins[place], there[place]
        place = bisect_left(begins, begin)
        met = [*there[max(place - 1, 0) : place], *there[place : place + 1]]
        for other in met:
            apart = addresses[other] + _taken(problem, other) <= begin
            if not (apart or begin + size <= addresses[other]):
                pair = (_said(problem, addresses, each) for each in (other, index))
                yield " overlaps ".join(pair)
                break
        else:
            begins.insert(place, begin)
            there.insert(place, index)
            heappush(leaving, (residences[index].end, begin))
