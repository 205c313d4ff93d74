"""The skyline search: an exact method of our own for addresses.

The idea of a search that places boxes at the lowest possible address, decomposes where nothing
connects sections, and leaves out what can be moved down, is that of MiniMalloc (Moffitt,
"MiniMalloc: A lightweight memory allocator for hardware-accelerated machine learning", 2023). Here
one decides about *points* instead of boxes: what covers the point just above the floor, in a valley
of it? Few boxes can, and one takes the point with the fewest, as in an exact cover. The page
``docs/theory/placement-search.md`` derives every rule.

`skyline_search` finds the least pool, or a placement within a capacity, with a bound where all is
seen. `exclude` and `reduced` find a few residences that do not fit into some capacity: a bound that
can be checked. The search says that something does not fit, and is fast. It is then asked about
fewer and fewer residences, as one looks for an irreducible infeasible subset of the rows of a
linear program, by deletion: what does not fit without a residence either is left without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import count

import numpy as np

from offcert.core.compiled import FloatArray, IntArray
from offcert.core.result import Bound
from offcert.formulations.placement.skyline_branch import FEWEST, HEAVIEST, LOWEST, WEIGHTED
from offcert.formulations.placement.skyline_kernel import FOUND, GOING_ON, NONE, advance
from offcert.formulations.placement.skyline_state import NODES, Sections, begin, boxes_of, new_state
from offcert.proofs.placement_certificate import searched
from offcert.questions.placement.problem import Placement, PlacementOutcome, PlacementProblem

# Nodes of the first attempts, and the factor by which each round of later ones is longer.
# Arbitrary.
_FIRST, _GROWTH = 2000, 1.4
# Points are chosen by these rules in turn; each with every priority below. Arbitrary.
_RULES = (LOWEST, FEWEST, WEIGHTED, HEAVIEST)
_PRIORITIES = 4
# Seconds between two looks at the clock, and nodes before the first look. Arbitrary.
_LOOK, _FIRST_LOOK = 0.1, 20
# Parts of what is open: least pools are sought so far below the best one. Most attempts are close
# to it, since far below nothing is found; every sixth is at the bound, to exclude that. Arbitrary.
_PARTS = (8, 16, 4, 8, 32, 1)
# Priorities after the first round: powers of length, powers of size, and how much their logarithms
# vary; and the number of rules for points. Arbitrary.
_LENGTH, _SIZE, _SPREAD = (0.5, 1.0, 2.0), (0.1, 0.3, 0.6, 1.0), (0.02, 0.1, 0.3)
_LATER = 3
# How often the last placement is the guide instead, by how many units its addresses vary then, how
# often only in a stretch of sections, and the fewest sections of a stretch. Arbitrary.
_GUIDED, _SHIFTS, _STRETCH, _SHORTEST = 0.4, (3.0, 10.0, 30.0), 0.6, 5


class Answer(IntEnum):
    """The answer for a capacity."""

    NONE = NONE
    FOUND = FOUND
    OPEN = GOING_ON


class Skyline:
    """Attempts at placing boxes within capacities; where one fails is learned for the next.

    `addresses` (units) are those of the last placement that was found, and `nodes` have been looked
    at in all.
    """

    def __init__(self, sections: Sections, seed: int = 0) -> None:
        self.sections = sections
        self.addresses: IntArray = np.zeros(len(sections), np.int64)
        self.nodes = 0
        self._found = False
        self._boxes = boxes_of(sections)
        self._state = new_state(sections)
        self._random = np.random.default_rng(seed)
        self._attempts = count()
        self._nodes_a_second = _FIRST_LOOK / _LOOK

    def attempt(self, capacity: int, until: float) -> Answer:
        """Try once to place all boxes within a capacity, in units.

        Later attempts are longer, so that each capacity is decided in the end. It stops at `until`,
        in seconds of the monotonic clock.
        """
        number = next(self._attempts)
        turn, rule = divmod(number, len(_RULES))
        limit = int(_FIRST * _GROWTH ** (number // (len(_RULES) * _PRIORITIES)))
        if turn >= _PRIORITIES:
            rule = number % _LATER
        self._prioritise(turn)
        answer = self.search(capacity, until, limit, _RULES[rule])
        # Failures of long ago count less.
        weight = self._state.weight
        weight[:] = 1 + (weight - 1) / max(1.0, float(weight.max(initial=1.0)) / len(weight))
        return answer

    def search(
        self, capacity: int, until: float, nodes: float = float("inf"), rule: int = LOWEST
    ) -> Answer:
        """Search for so many nodes, with the priorities that there are."""
        if self.sections.loads.max(initial=0) > capacity:
            return Answer.NONE
        begin(self._boxes, self._state, capacity)
        left = nodes
        while left > 0:
            started = time.monotonic()
            if started >= until:
                break
            step = int(min(left, max(1.0, self._nodes_a_second * min(_LOOK, until - started))))
            before = int(self._state.registers[NODES])
            found = advance(self._boxes, self._state, step, rule)
            done = int(self._state.registers[NODES]) - before
            self._nodes_a_second = max(1.0, done / max(time.monotonic() - started, 1e-3))
            self.nodes += done
            left -= done
            if found == FOUND:
                self.addresses = self._state.address.copy()
                self._found = True
                return Answer.FOUND
            if found == NONE:
                return Answer.NONE
            if found != GOING_ON:
                break
        return Answer.OPEN

    def _prioritise(self, turn: int) -> None:
        """Decide which boxes are tried first: by area, size, length, or by where it fails."""
        sections, state = self.sections, self._state
        size, length = sections.size.astype(float), sections.last - sections.first
        heavy = np.concatenate([[0.0], np.cumsum(state.weight)])
        priorities: tuple[FloatArray, ...] = (
            size * length,
            size + length / (sections.count + 1),
            length + size / (size.max(initial=1.0) + 1),
            size * (heavy[sections.last] - heavy[sections.first]),
        )
        if turn < _PRIORITIES:
            chosen = priorities[turn]
        elif self._found and self._random.random() < _GUIDED:
            chosen = self._guided()
        else:
            powers = self._random.choice(_LENGTH), self._random.choice(_SIZE)
            noise = self._random.normal(0, self._random.choice(_SPREAD), len(size))
            chosen = length ** powers[0] * size ** powers[1] * np.exp(noise)
        state.priority[:] = chosen

    def _guided(self) -> FloatArray:
        """Return priorities that are about the order of addresses in the last placement."""
        random, sections = self._random, self.sections
        shift = random.normal(0, random.choice(_SHIFTS), len(sections))
        if random.random() < _STRETCH:
            begin = random.integers(0, sections.count)
            end = begin + random.integers(_SHORTEST, max(_SHORTEST + 1, sections.count // 2))
            shift[(sections.first >= end) | (sections.last <= begin)] = 0
        priorities: FloatArray = -(self.addresses + shift)
        return priorities


def least_capacity(
    skyline: Skyline,
    lower: int,
    upper: int,
    until: float,
    found: Callable[[IntArray], None],
) -> tuple[int, int]:
    """Narrow down the least capacity, in units, from both sides; return what is known at the end.

    There is a placement within `upper`, and none within less than `lower`. The search stops at
    `until`, in seconds of the monotonic clock. `found` is given the addresses of every better
    placement.
    """
    for turn in count():
        if lower >= upper or time.monotonic() >= until:
            break
        capacity = upper - 1 - (upper - 1 - lower) // _PARTS[turn % len(_PARTS)]
        answer = skyline.attempt(capacity, until)
        if answer is Answer.FOUND:
            upper = int((skyline.addresses + skyline.sections.size).max(initial=0))
            found(skyline.addresses)
        elif answer is Answer.NONE:
            lower = capacity + 1
    return lower, upper


# The name of its bounds.
SKYLINE = "skyline"


def skyline_search(
    problem: PlacementProblem,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    hint: Placement | None = None,
    bound: int = 0,
    found: Callable[[Placement], object] | None = None,
) -> PlacementOutcome:
    """Find the least pool, or any placement within the problem's capacity.

    Parameters
    ----------
    problem : PlacementProblem
        The problem; with a capacity, any placement within it ends the search.
    time_limit : float
        Seconds.
    seed : int
        Seed of the order in which boxes are tried.
    hint : Placement, optional
        A valid placement; only smaller pools are of interest.
    bound : int
        Bytes; a bound on the pool that is already known.
    found : callable, optional
        Given every better placement as soon as it is found.

    Returns
    -------
    PlacementOutcome
        Its bound, if it is better than the load and `bound`, is what the search has excluded.
    """
    until = time.monotonic() + time_limit
    sections = Sections(problem)
    unit, least = sections.unit, max(problem.load, bound)
    if len(sections) == 0:
        return PlacementOutcome(Placement([0] * len(problem.residences)), (), True)
    best = hint

    def take(addresses: IntArray) -> None:
        nonlocal best
        best = sections.placement(addresses)
        if found is not None:
            found(best)

    lower = -(-least // unit)
    # All boxes, one above the other, are a placement, too.
    total = int(sections.size.sum())
    upper = total if hint is None else min(total, -(-hint.pool(problem) // unit))
    skyline = Skyline(sections, seed)
    if problem.capacity is not None:
        lower, complete = _within(skyline, lower, problem.capacity // unit, until, take)
    else:
        if hint is None:
            take(np.cumsum(sections.size) - sections.size)
        lower, upper = least_capacity(skyline, lower, upper, until, take)
        complete = lower == upper
    bounds: tuple[Bound, ...] = ()
    if lower * unit > least:
        bounds = (searched(SKYLINE, lower * unit, {"nodes": skyline.nodes}),)
    return PlacementOutcome(best, bounds, complete)


def _within(
    skyline: Skyline, lower: int, capacity: int, until: float, take: Callable[[IntArray], None]
) -> tuple[int, bool]:
    """Look for any placement within a capacity; return the bound, and whether all was decided."""
    if lower > capacity:
        return lower, True
    while time.monotonic() < until:
        answer = skyline.attempt(capacity, until)
        if answer is Answer.FOUND:
            take(skyline.addresses)
            return lower, True
        if answer is Answer.NONE:
            return capacity + 1, True
    return lower, False


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
    """Exclude capacities from `least` bytes on, as many as can be; None if none was excluded.

    If the problem has a capacity, that alone is asked for. Only capacities below the pool of the
    hint, a valid placement, are of interest. `found` is given every placement that is met with. The
    search stops at `until`, in seconds of the monotonic clock.
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

    What is left may exclude more: the number that divides all of its sizes may be larger. It stops
    at `until`, in seconds of the monotonic clock.
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
