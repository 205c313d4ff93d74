"""A few residences that do not fit into some capacity: a bound that can be checked.

The skyline search says that something does not fit, and is fast. What it says is then asked of
fewer and fewer residences, as one looks for an irreducible infeasible subset of the rows of a
linear program, by deletion: what does not fit without a residence either is left without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offcert.formulations.placement.sections import Sections
from offcert.formulations.placement.skyline import Answer, Skyline
from offcert.questions.placement.problem import Placement, PlacementProblem

# An asking search may take so many times the nodes of the one before, and so many more. Arbitrary.
_MORE, _LEAST_NODES = 1.5, 500
# Attempts without an answer before the rest is left open, where the time lasts. Arbitrary.
_ATTEMPTS = 16


@dataclass(frozen=True)
class Infeasible:
    """Residences that do not fit into less than some capacity."""

    value: int  # Bytes; into less these do not fit.
    residences: tuple[int, ...]  # Numbers of the residences.


def exclude(
    problem: PlacementProblem,
    least: int,
    until: float,
    seed: int = 0,
    hint: Placement | None = None,
    found: Callable[[Placement], object] | None = None,
) -> Infeasible | None:
    """Exclude capacities from `least` on, as many as can be.

    Parameters
    ----------
    problem : PlacementProblem
        The problem; with a capacity, that alone is asked for.
    least : int
        Bytes; a bound that is known already.
    until : float
        When to stop, in seconds of the monotonic clock.
    seed : int
        Seed of the order in which boxes are tried.
    hint : Placement, optional
        A valid placement; only capacities below its pool are of interest.
    found : callable, optional
        Given every placement that is met with.

    Returns
    -------
    Infeasible or None
        All residences, or nothing if no capacity was excluded.
    """
    sections = Sections(problem)
    unit, skyline = sections.unit, Skyline(sections, seed)
    first = low = -(-least // unit)
    high = int(sections.size.sum()) if hint is None else -(-hint.pool(problem) // unit)
    if problem.capacity is not None:
        first = low = max(low, problem.capacity // unit)
        high = min(high, problem.capacity // unit + 1)
    step = left = 1
    while low < high and left <= _ATTEMPTS and time.monotonic() < until:
        # Where much is excluded, units may be bytes: steps grow.
        capacity = min(low + step, high) - 1
        answer = skyline.attempt(capacity, until)
        if answer is Answer.NONE:
            low, step = capacity + 1, 2 * step
        elif answer is Answer.FOUND:
            placement = sections.placement(skyline.addresses)
            high = placement.pool(problem) // unit
            step = max(1, (high - low) // 2)
            if found is not None:
                found(placement)
        else:
            step, left = max(1, step // 4), left + 1
    return Infeasible(low * unit, sections.residence) if low > first else None


def reduced(
    problem: PlacementProblem, excluded: Infeasible, until: float, seed: int = 0
) -> Infeasible:
    """Leave residences out, as long as those that are left do not fit either.

    Parameters
    ----------
    problem : PlacementProblem
        The problem whose residences they are.
    excluded : Infeasible
        A set of residences that does not fit.
    until : float
        When to stop, in seconds of the monotonic clock.
    seed : int
        Seed of the order in which boxes are tried.

    Returns
    -------
    Infeasible
        Fewer residences, and perhaps a larger value: what divides all of their sizes may be more.
    """
    rows = problem.residences
    area = {
        each: problem.sizes[each] * (rows[each].end - rows[each].start) for each in range(len(rows))
    }
    # Residences of the least area first: they are the least likely to be needed.
    kept = sorted(excluded.residences, key=lambda each: area[each])
    _, nodes = _refuted(problem, kept, excluded.value, until, None, seed)
    length = len(kept) // 2
    while length:
        at = 0
        while at < len(kept) and time.monotonic() < until:
            fewer = kept[:at] + kept[at + length :]
            limit = int(_MORE * nodes) + _LEAST_NODES
            refuted, needed = _refuted(problem, fewer, excluded.value, until, limit, seed)
            if refuted:
                kept, nodes = fewer, max(nodes, needed)
            else:
                at += length
        length //= 2
    unit = Sections(_part(problem, kept)).unit
    return Infeasible(-(-excluded.value // unit) * unit, tuple(sorted(kept)))


def _part(problem: PlacementProblem, chosen: Sequence[int]) -> PlacementProblem:
    rows = [problem.residences[index] for index in chosen]
    return PlacementProblem("", rows, None, problem.alignment)


def _refuted(
    problem: PlacementProblem,
    chosen: Sequence[int],
    value: int,
    until: float,
    nodes: int | None,
    seed: int,
) -> tuple[bool, int]:
    """Return whether it is seen that residences do not fit into less, and after how many nodes."""
    sections = Sections(_part(problem, chosen))
    if len(sections) == 0:
        return False, 0
    capacity = (value - 1) // sections.unit
    if sections.loads.max() > capacity:
        return True, 0
    skyline = Skyline(sections, seed)
    while time.monotonic() < until and (nodes is None or skyline.nodes < nodes):
        answer = skyline.attempt(capacity, until)
        if answer is not Answer.OPEN:
            return answer is Answer.NONE, skyline.nodes
    return False, skyline.nodes
