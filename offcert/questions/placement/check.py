"""Whether addresses are those of a placement: the one place that says so.

Residences enter in the order of time. Those that are there share no byte, so they are ordered by
address, and one that enters can only meet its neighbours in that order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice

from offcert.core.messages import cut
from offcert.questions.placement.problem import Placement, PlacementProblem

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
