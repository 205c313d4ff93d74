"""Heads and tails with whole tensors: a lower bound for atomic transfers on any trace and link.

The time before an operation can start is at least what it takes to move its required bytes off the
device, tensor by tensor (its *head*); the time from its start to the end at least what it takes to
bring as much back (its *tail*). The fractional bound (``relaxations``) adds up the same two with
tensors that leave bit by bit; here memory is free only when all of a tensor has left, and no tensor
leaves twice. Each is a small search of its own (``alone``); which operation gives the best sum is
not known beforehand, so they compete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from offcert.core.trace import LARGEST_TOTAL
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.labels.common import Deadline, Race
from offcert.formulations.labels.ends.alone import SideSearch
from offcert.formulations.labels.ends.orders import Orders, good_orders
from offcert.formulations.labels.ends.side import back, front
from offcert.proofs.kinds.labels import Heads
from offcert.questions.schedule.problem import Problem

# Labels that a pivot may have at first. Arbitrary.
_FIRST_BUDGET = 2_000
# Shares of the time for a first look at every operation, and for all work on the bound. Arbitrary.
_FIRST_PASS = 0.3
_RACE = 0.7
# Operations that compete at first; the part of them that stays after a round, as a fraction; the
# factor by which their labels grow. Arbitrary.
_PIVOTS = 24
_KEPT = 1, 4
_GROWTH = 8
# Labels with which a pivot that is far behind will not catch up. Arbitrary.
_HOPELESS_BUDGET = 100_000


def quick_ends(
    problem: Problem, required: Sequence[int], pivot: int, max_labels: int = _FIRST_BUDGET
) -> Heads:
    """Return bounds on the ends of both sides of a pivot, by default in next to no time.

    Parameters are as for `side.front`; a search may store `max_labels`.
    """
    one, two = (SideSearch(side(problem, required, pivot)) for side in (front, back))
    for search in (one, two):
        search.improve(LARGEST_TOTAL, max_labels, lambda: None)
    return _proof(pivot, (one, two), two.bound, one.bound)


def _proof(pivot: int, sides: tuple[SideSearch, SideSearch], tail: int, head: int) -> Heads:
    one, two = sides
    return Heads(
        pivot=pivot,
        head=head,
        tail=tail,
        head_counted=one.counted,
        tail_counted=two.counted,
        head_unit=one.unit,
        tail_unit=two.unit,
    )


@dataclass(frozen=True)
class HeadsOutcome:
    """The outcome of the search."""

    lower_bound: int  # Ticks; no schedule is shorter.
    proof: Heads | None  # Head and tail that make the bound; None if nothing ever has to leave.
    labels: int  # Stored for this proof.
    # Sets of gaps that optimal heads and tails evict: promising ones for a plan.
    sets: tuple[tuple[int, ...], ...]
    # Orders of offloads and of prefetches of the same gaps, better and better.
    orders: tuple[Orders, ...] = ()


class _Pivot:
    def __init__(self, problem: Problem, required: list[int], pivot: int) -> None:
        self.pivot = pivot
        self.sides = (
            SideSearch(front(problem, required, pivot)),
            SideSearch(back(problem, required, pivot)),
        )

    @property
    def proven(self) -> int:
        return sum(side.bound for side in self.sides)

    @property
    def finished(self) -> bool:
        return all(side.exact for side in self.sides)

    def improve(self, upper: int, max_labels: int, pause: Callable[[], None]) -> None:
        for index in (1, 0):
            limit = upper - 1 - self.sides[1 - index].bound
            self.sides[index].improve(limit, max_labels, pause)

    def outcome(self, upper: int) -> HeadsOutcome:
        head, tail = self.sides
        bound = min(upper, self.proven)
        # No more than what is claimed need be established again.
        tail_bound = min(bound, tail.bound)
        return HeadsOutcome(
            bound,
            _proof(self.pivot, self.sides, tail_bound, bound - tail_bound),
            head.labels + tail.labels,
            tuple(side.way for side in self.sides if side.way is not None),
        )


def heads_bound(
    problem: Problem,
    *,
    upper_bound: int,
    time_limit: float,
    max_labels: int = 3_000_000,
    seed: int = 0,
    on_orders: Callable[[Orders], object] = lambda orders: None,
) -> HeadsOutcome:
    """Prove a lower bound on the makespan.

    Parameters
    ----------
    problem : Problem
        Feasible, atomic transfers; any trace and link.
    upper_bound : int
        Makespan, in ticks, of a known schedule: nothing above it is looked for.
    time_limit : float
        Seconds, after compilation and set-up.
    max_labels : int
        Of one search; about 90 bytes each.
    seed : int
        Seed of the random choices among orders.
    on_orders : callable
        Given every order of the outcome as soon as it is found.
    """
    # Every problem has a shorter schedule, and times up to here can be added in 64 bits.
    upper_bound = min(upper_bound, LARGEST_TOTAL)
    required = required_absent(problem, subset_sum=True)
    if max(required, default=0) == 0:
        return HeadsOutcome(problem.trace.compute_time, None, 0, ())
    now = time.monotonic()
    middle, end = now + _FIRST_PASS * time_limit, now + _RACE * time_limit
    pivots: list[_Pivot] = []
    for pivot in _candidates(required):
        # On long traces setting one up takes a while; the neediest is always there.
        if pivots and time.monotonic() > middle:
            break
        pivots.append(_Pivot(problem, required, pivot))

    deadline = Deadline()
    with deadline.within(end - time.monotonic()):
        most = min(_FIRST_BUDGET, max_labels)
        racing = _first_pass(pivots, upper_bound, most, middle, deadline.check)
        _race(racing, upper_bound, max_labels, deadline.check)
    best = max(pivots, key=lambda pivot: pivot.proven)
    orders = _orders(pivots, upper_bound, now + time_limit, seed, on_orders)
    return replace(best.outcome(upper_bound), orders=orders)


def _orders(
    pivots: list[_Pivot],
    upper: int,
    deadline: float,
    seed: int,
    tell: Callable[[Orders], object],
) -> tuple[Orders, ...]:
    """Return orders that promise less than `upper`, each less than the one before it."""
    found: list[Orders] = []
    bound = max(pivot.proven for pivot in pivots)
    # Tensors that cannot be absent during the pivot are in no order; prefer pivots with few of
    # these.
    best = max(pivots, key=lambda pivot: (len(pivot.sides[0].side.items), pivot.proven))
    begun = time.monotonic()
    for orders in good_orders(*best.sides, seed):
        if orders is not None and orders.end < upper:
            upper = orders.end
            found.append(orders)
            tell(orders)
        # The next attempt takes at least as long as this one.
        now = time.monotonic()
        if upper <= bound or now + (now - begun) > deadline:
            break
        begun = now
    return tuple(found)


def _candidates(required: list[int]) -> list[int]:
    """Return operations spread over those that need memory, the neediest first."""
    needy = [operation for operation, need in enumerate(required) if need > 0]
    step = max(1, len(needy) // _PIVOTS)
    most = max(needy, key=required.__getitem__)
    return list(dict.fromkeys([most, *needy[::step]]))


def _first_pass(
    pivots: list[_Pivot], upper: int, budget: int, end: float, pause: Callable[[], None]
) -> list[_Pivot]:
    """Search a little at every pivot, the most promising ones first; return which had a turn."""
    pivots = sorted(pivots, key=lambda pivot: -pivot.proven)
    for turns, pivot in enumerate(pivots, start=1):
        pivot.improve(upper, budget, pause)
        if pivot.proven >= upper or time.monotonic() > end:
            return pivots[:turns]
    return pivots


def _race(pivots: list[_Pivot], upper: int, max_labels: int, pause: Callable[[], None]) -> None:
    """Search with growing budgets, each time at the most promising quarter of the pivots."""
    race = Race(pivots, _FIRST_BUDGET, _GROWTH)
    first, best = pivots[0].pivot, race.proven

    def turn(place: int) -> bool:
        race.runners[place].improve(upper, min(race.budget, max_labels), pause)
        return race.proven >= upper

    while race.budget < max_labels and best < upper:
        # A pivot that is exact has had its say.
        race.runners = [pivot for pivot in race.runners if not pivot.finished]
        if not race.runners:
            return
        race.thin(_KEPT, key=lambda pivot: (-pivot.proven, abs(pivot.pivot - first)))
        if race.budget > _HOPELESS_BUDGET and race.proven < best - (upper - best):
            return
        race.grow()
        race.give_turns(turn)
        best = max(best, race.proven)
