"""A local search for addresses: smaller and smaller pools, by ejecting what is in the way.

Schedules of training steps fill the memory almost completely almost always: no order in which
residences are placed once and for all comes near the load. Here what is placed may be taken away
again. The idea, a residence that pushes out others and priorities that grow with each failure, is
that of ejection chains and of the breakout method (Morris, "The breakout method for escaping from
local minima", 1993).

Some residences are placed, without overlap and within the capacity; the others wait. A step takes
the waiting one of largest weight, places it where what is in its way weighs least, and lets that
wait. Whoever was ejected weighs more from then on, so that it is not always the same ones.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import FloatArray, IntArray, compiled, plain_inner
from offcert.heuristics.placement.in_order import greedy_by_area
from offcert.questions.placement.problem import Placement, PlacementProblem

# The address of a residence that waits, and the entries of `OpenPlacement.counts`. By definition.
WAITS = -1
PLACED, WAITING = 0, 1
# The part of its first weight by which a residence gets heavier when it is ejected. Arbitrary.
_GROWTH = 0.05


class BoxTable(NamedTuple):
    """The boxes to be placed: sizes, half-open stretches of time, and weights at first."""

    size: IntArray
    first: IntArray
    last: IntArray
    value: FloatArray


class OpenPlacement(NamedTuple):
    """A placement under way: the boxes with addresses, and those that wait for one."""

    # The first unit of each residence, and the first one above it; `WAITS` in both.
    address: IntArray
    top: IntArray
    # Residences that are placed, by their first and by their last units, and those that are not.
    by_address: IntArray
    by_top: IntArray
    waiting: IntArray
    counts: IntArray  # How many are placed, and how many wait.
    weight: FloatArray  # Cost of ejecting each residence.
    # Of `by_address` and `by_top`, those that meet the residence that a step is about.
    near_address: IntArray
    near_top: IntArray


def new_pool(boxes: BoxTable) -> OpenPlacement:
    """Return a pool in which nothing is placed."""
    count = len(boxes.size)
    return OpenPlacement(
        address=np.full(count, WAITS, np.int64),
        top=np.full(count, WAITS, np.int64),
        by_address=np.zeros(count, np.int64),
        by_top=np.zeros(count, np.int64),
        waiting=np.arange(count, dtype=np.int64),
        counts=np.array([0, count], np.int64),
        weight=boxes.value.copy(),
        near_address=np.zeros(count + 1, np.int64),
        near_top=np.zeros(count + 1, np.int64),
    )


@compiled
def fill(boxes: BoxTable, pool: OpenPlacement, addresses: IntArray, capacity: int) -> None:
    """Place residences at addresses, without overlap; what ends above the capacity waits."""
    pool.counts[PLACED] = pool.counts[WAITING] = 0
    for box in range(len(addresses)):
        if addresses[box] >= 0 and addresses[box] + boxes.size[box] <= capacity:
            _put(boxes, pool, box, addresses[box])
        else:
            _let_wait(pool, box)


@compiled
def eject(boxes: BoxTable, pool: OpenPlacement, capacity: int, steps: int, seed: int) -> int:
    """Take steps until nothing waits; return how many."""
    np.random.seed(seed)
    for step in range(steps):
        if pool.counts[WAITING] == 0:
            return step
        box = _heaviest(pool)
        near = _gather(boxes, pool, box)
        address = _cheapest(boxes, pool, box, near, capacity)
        _clear(boxes, pool, box, near, address)
        _put(boxes, pool, box, address)
    return steps


@plain_inner
def _heaviest(pool: OpenPlacement) -> int:
    """Take the heaviest residence out of those that wait."""
    waiting, chosen = pool.waiting, 0
    for place in range(pool.counts[WAITING]):
        if pool.weight[waiting[place]] > pool.weight[waiting[chosen]]:
            chosen = place
    box = waiting[chosen]
    pool.counts[WAITING] -= 1
    waiting[chosen] = waiting[pool.counts[WAITING]]
    return box


@plain_inner
def _gather(boxes: BoxTable, pool: OpenPlacement, box: int) -> int:
    """List the placed residences that a residence meets, in both orders; return how many.

    Which ones do is not to be foreseen, so there is no branch: what does not is overwritten.
    """
    first, last = boxes.first[box], boxes.last[box]
    near = 0
    for place in range(pool.counts[PLACED]):
        other = pool.by_address[place]
        pool.near_address[near] = other
        near += int(boxes.first[other] < last) & int(boxes.last[other] > first)
    near = 0
    for place in range(pool.counts[PLACED]):
        other = pool.by_top[place]
        pool.near_top[near] = other
        near += int(boxes.first[other] < last) & int(boxes.last[other] > first)
    return near


@plain_inner
def _cheapest(boxes: BoxTable, pool: OpenPlacement, box: int, near: int, capacity: int) -> int:
    """Return the address at which what is in the way weighs least.

    What must go changes only where a residence that it meets begins or ends, so it is enough to
    look at addresses directly above or below one, and at both ends. From one to the next, what is
    left behind and what comes in the way is added up.
    """
    size, highest = boxes.size[box], capacity - boxes.size[box]
    entered, left = 0, 0
    address, weight = 0, 0.0
    best, least, ties = 0, np.inf, 1
    while True:
        while left < near and pool.top[pool.near_top[left]] <= address:
            weight -= pool.weight[pool.near_top[left]]
            left += 1
        while entered < near and pool.address[pool.near_address[entered]] - size < address:
            weight += pool.weight[pool.near_address[entered]]
            entered += 1
        # Sums of the same weights in another order differ a little.
        slack = 1e-9 * (abs(weight) + 1.0)
        if weight < least - slack:
            best, least, ties = address, weight, 1
        elif weight <= least + slack:
            ties += 1
            if np.random.random() * ties < 1.0:
                best = address
        if address >= highest:
            return best
        following = highest
        if left < near:
            following = min(following, pool.top[pool.near_top[left]])
        # BoxTable that would be met from here on, and not only from the next address on.
        ahead = entered
        while ahead < near and pool.address[pool.near_address[ahead]] - size <= address:
            ahead += 1
        if ahead < near:
            following = min(following, pool.address[pool.near_address[ahead]] - size)
        address = following


@plain_inner
def _clear(boxes: BoxTable, pool: OpenPlacement, box: int, near: int, address: int) -> None:
    """Let all that is in the way of a residence wait, and weigh more."""
    above = address + boxes.size[box]
    for place in range(near):
        other = pool.near_address[place]
        if pool.address[other] >= above:
            return
        if pool.top[other] > address:
            _remove(pool.by_address, pool.counts[PLACED], other)
            _remove(pool.by_top, pool.counts[PLACED], other)
            pool.counts[PLACED] -= 1
            pool.weight[other] += _GROWTH * boxes.value[other]
            _let_wait(pool, other)


@plain_inner
def _let_wait(pool: OpenPlacement, box: int) -> None:
    pool.address[box] = pool.top[box] = WAITS
    pool.waiting[pool.counts[WAITING]] = box
    pool.counts[WAITING] += 1


@plain_inner
def _put(boxes: BoxTable, pool: OpenPlacement, box: int, address: int) -> None:
    pool.address[box], pool.top[box] = address, address + boxes.size[box]
    _insert(pool.by_address, pool.counts[PLACED], pool.address, box)
    _insert(pool.by_top, pool.counts[PLACED], pool.top, box)
    pool.counts[PLACED] += 1


@plain_inner
def _insert(order: IntArray, count: int, key: IntArray, box: int) -> None:
    place = count
    while place > 0 and key[order[place - 1]] > key[box]:
        order[place] = order[place - 1]
        place -= 1
    order[place] = box


@plain_inner
def _remove(order: IntArray, count: int, box: int) -> None:
    place = 0
    while order[place] != box:
        place += 1
    while place < count - 1:
        order[place] = order[place + 1]
        place += 1


# The excess of the next pool over the load, as a part of the best pool's excess. Arbitrary.
_NEXT = 0.85
# Seconds between two looks at the clock, the number of looks before a larger pool is tried, and the
# fewest and most steps between two looks. Arbitrary.
_LOOK, _PATIENCE = 0.1, 8
_FIRST_STEPS, _MOST_STEPS = 200, 50_000
# The power of a residence's area that is its weight at first. Arbitrary.
_POWER = 0.8
# The largest weight; beyond it all are divided, so that they stay exact enough. Arbitrary.
_HEAVY = 1e6


def ejection_search(
    problem: PlacementProblem,
    *,
    time_limit: float,
    seed: int = 0,
    hint: Placement | None = None,
    found: Callable[[Placement], object] | None = None,
) -> Placement:
    """Look for smaller pools, or for one within the problem's capacity; return the best placement.

    It begins with a valid placement, the hint, or places residences of large area first, and ends
    with a pool that equals the load, or the first within a capacity. Every better one is passed on.
    """
    until = time.monotonic() + time_limit
    best = greedy_by_area(problem) if hint is None else hint
    chosen = [index for index, size in enumerate(problem.sizes) if size > 0]
    if not chosen:
        return best
    unit = math.gcd(*(problem.sizes[index] for index in chosen))
    boxes = _boxes(problem, chosen, unit)
    pool = new_pool(boxes)
    addresses = np.array([best.addresses[index] // unit for index in chosen], np.int64)
    load = problem.load // unit
    enough = load if problem.capacity is None else max(load, problem.capacity // unit)
    least = int((addresses + boxes.size).max())
    capacity, failures, steps = _next(enough, least), 0, _FIRST_STEPS
    random = np.random.default_rng(seed)
    fill(boxes, pool, addresses, capacity)
    while least > enough and time.monotonic() < until:
        started = time.monotonic()
        eject(boxes, pool, capacity, steps, int(random.integers(2**31)))
        took = time.monotonic() - started
        if pool.counts[WAITING] == 0:
            addresses = pool.address.copy()
            least, failures = int((addresses + boxes.size).max()), 0
            best = _placement(problem, chosen, addresses, unit)
            if found is not None:
                found(best)
            capacity = _next(enough, least)
            pool.weight[:] = boxes.value
            fill(boxes, pool, addresses, capacity)
            continue
        _lighten(pool.weight)
        steps = int(min(_MOST_STEPS, max(_FIRST_STEPS, steps * _LOOK / max(took, 1e-4))))
        failures += 1
        if failures % _PATIENCE == 0:
            capacity = (capacity + least) // 2
    return best


def _next(enough: int, least: int) -> int:
    """Return the capacity to try when the best pool is `least`."""
    return enough + int((least - 1 - enough) * _NEXT)


def _boxes(problem: PlacementProblem, chosen: list[int], unit: int) -> BoxTable:
    """Return sizes in units, and stretches of time counted in moments at which something begins.

    Two residences meet if and only if they do so at such a moment.
    """
    rows = [problem.residences[index] for index in chosen]
    moments = sorted({each.start for each in rows})
    first = np.array([bisect_left(moments, each.start) for each in rows], np.int64)
    last = np.array([bisect_left(moments, each.end) for each in rows], np.int64)
    size: IntArray = np.array([problem.sizes[index] // unit for index in chosen], np.int64)
    value: FloatArray = (size.astype(np.float64) * (last - first)) ** _POWER
    return BoxTable(size, first, last, value / value.mean())


def _lighten(weight: FloatArray) -> None:
    """Divide weights that have grown too large."""
    if weight.max() > _HEAVY:
        weight /= 1e3


def _placement(
    problem: PlacementProblem, chosen: list[int], addresses: IntArray, unit: int
) -> Placement:
    found = [0] * len(problem.residences)
    for index, address in zip(chosen, addresses, strict=True):
        found[index] = int(address) * unit
    return Placement(found)
