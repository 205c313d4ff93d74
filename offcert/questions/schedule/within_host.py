"""Copies on the host that keep to a limit, and those that go elsewhere.

Registered memory cannot be moved out by the system. What has no room there goes to a file, or to
memory that is not registered: the copies with the fewest bytes, because a byte elsewhere is written
there and read from there in every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from offcert.questions.placement.problem import PlacementProblem
from offcert.questions.schedule.residences import HOST_ALIGNMENT

# Steps into which bytes are divided when it is decided which tensors leave. Arbitrary.
_STEPS = 1024

# The last number, and those before it.
_Chain = tuple[int, Any] | None


def bytes_for_staging(problem: PlacementProblem, limit: int) -> int:
    """Return how much of a limit copies get that are on their way; 0 if that would be too much.

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

    Parameters
    ----------
    problem : PlacementProblem
        When each copy is needed, and its bytes.
    pinned : int
        Bytes that may be pinned. If not all copies fit, those in pageable memory come and go by
        way of a part of it.

    Returns
    -------
    tuple of (int, int)
        Most bytes that are needed at a time, of pinned memory and of pageable memory. The former is
        above `pinned` where no copy could be on its way through it.
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
