"""`certify`: climbs the ladder of bounds while better schedules come down to meet them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from offcert.certify.descents import (
    descend_cover,
    descend_greedy,
    descend_local_search,
    descend_order_search,
    descend_sequential,
    descend_set_search,
)
from offcert.certify.effort import Effort
from offcert.certify.long_traces import has_early_gaps, is_fine, is_long
from offcert.certify.search import Progress, Search, keeper
from offcert.certify.searched_steps import (
    MANY_GAPS,
    NEAR,
    NEAR_OF_MANY,
    climb_heads,
    climb_joined,
    climb_matched,
    climb_outward,
    climb_pivot,
    climb_pivot_outward,
)
from offcert.certify.steps import (
    climb_combinatorial,
    climb_fluid,
    climb_fluid_exact,
    climb_interval,
    climb_stage,
    climb_sums,
    descend_dives,
)
from offcert.core.errors import MethodError
from offcert.core.options import require_search
from offcert.core.problem import Problem, Transfers
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.proofs.certificate import Certificate


@dataclass(frozen=True)
class _Rung:
    """One step of the ladder: a function, and the share of the remaining time it may take.

    What is `always` taken leaves a plan and a bound however little time there is. `at_least` are
    seconds that it may take if there are so many, `at_most` those after which it has had its turn:
    with much time, what closes most problems should not come late. What is for problems of which
    the outward search has left a certain part of the makespan open is skipped for others; so is
    what pays only where some part of it is open in any case, or where tensors may leave and return
    before others are written, so that the fractional bound is not what a fluid model says; so is
    what is for fine traces only, takes too long for the number of operations, or `needs` more
    seconds than it would get.
    """

    run: Callable[[Search, Effort], None]
    share: float
    atomic_only: bool = False
    relaxed_only: bool = False
    always: bool = False
    at_least: float = 0.0
    at_most: float = math.inf
    open_from: float = 0.0
    open_to: float = math.inf
    gap_from: float = 0.0
    early_gaps_only: bool = False
    most_operations: float = math.inf
    fine_only: bool = False
    needs: float = 0.0

    def suits(self, search: Search) -> bool:
        """Return whether it is for such a problem."""
        atomic = search.problem.transfers is Transfers.ATOMIC
        if self.relaxed_only if atomic else self.atomic_only:
            return False
        if search.gap < self.gap_from or len(search.problem.trace) > self.most_operations:
            return False
        if self.fine_only and not is_fine(search.problem):
            return False
        if self.early_gaps_only and not has_early_gaps(search.problem):
            return False
        return self.open_from <= search.workings.get("outward open", 1.0) <= self.open_to

    def seconds(self, left: float) -> float:
        """Return how long it may take if so many seconds are left."""
        return min(max(self.share * left, min(self.at_least, left)), self.at_most)


# If the outward search has left no more than that open, it goes on before the pivot program.
_VERY_NEAR = 0.0003
# The same with many tensors, of which it closes most.
_NEAR_MANY = 0.002

# Cheap and solver-free first. Each rung is skipped once bound and schedule meet.
_FIRST = (
    _Rung(descend_sequential, 1.0, always=True),
    _Rung(climb_combinatorial, 1.0, always=True),
    _Rung(descend_greedy, 1.0),
    _Rung(descend_cover, 1.0),
    _Rung(climb_fluid_exact, 0.6, relaxed_only=True),
    _Rung(descend_set_search, 0.03, at_most=0.5),
)
# What closes most small networks at once.
_AT_ONCE = _Rung(climb_pivot, 0.03, atomic_only=True, at_least=0.3, at_most=1.0)
# A short turn of what finds good schedules, for bounds to meet.
_SHORT = (
    _Rung(descend_order_search, 0.06, at_most=1.0),
    _Rung(descend_local_search, 0.03, at_most=0.5),
)
# More than that open, and it is not for want of better orders.
_MUCH_OPEN = 0.0005
# Long turns of what may still close a problem after each has had a short one.
_LONG = (
    _Rung(climb_sums, 1.0, atomic_only=True, gap_from=_MUCH_OPEN),
    _Rung(climb_joined, 0.4, atomic_only=True, at_most=10.0, fine_only=True),
    _Rung(climb_matched, 0.7, atomic_only=True, open_to=NEAR),
    _Rung(descend_order_search, 0.25),
    _Rung(climb_matched, 0.5, atomic_only=True),
    _Rung(climb_joined, 0.3, atomic_only=True, at_most=10.0),
    _Rung(descend_local_search, 0.25),
    _Rung(climb_pivot, 0.5, atomic_only=True),
    _Rung(climb_pivot_outward, 0.4, atomic_only=True),
    _Rung(climb_outward, 0.5, atomic_only=True),
    _Rung(climb_heads, 0.4, atomic_only=True),
    _Rung(descend_order_search, 0.25),
    _Rung(climb_pivot, 0.6, atomic_only=True),
    _Rung(climb_fluid, 0.2),
)
# Where sizes repeat, as in networks, the pivot program is quick.
_REPEATED_SIZES = (
    _AT_ONCE,
    _Rung(climb_outward, 0.45, atomic_only=True, at_most=2.5),
    _Rung(climb_outward, 0.6, atomic_only=True, open_to=_VERY_NEAR),
    _Rung(climb_pivot_outward, 0.6, atomic_only=True, at_most=5.0, open_from=NEAR),
    *_SHORT,
    _Rung(climb_heads, 0.07, atomic_only=True, at_most=1.5),
    _Rung(climb_pivot, 0.9, atomic_only=True, open_from=NEAR),
    _Rung(climb_pivot_outward, 0.6, atomic_only=True, at_most=4.0, open_to=NEAR),
    _Rung(climb_outward, 0.6, atomic_only=True, at_most=5.0, open_to=NEAR),
    _Rung(climb_pivot, 0.6, atomic_only=True, open_to=NEAR),
    _Rung(climb_outward, 0.6, atomic_only=True, open_to=NEAR),
    *_LONG,
)
# With many tensors it is not, but the outward search still is, unless next to no memory is free.
_MANY_TENSORS = (
    _AT_ONCE,
    *_SHORT,
    _Rung(climb_outward, 0.75, atomic_only=True, at_most=2.5),
    _Rung(climb_outward, 0.75, atomic_only=True, at_most=5.0, open_to=_NEAR_MANY),
    _Rung(climb_pivot_outward, 0.6, atomic_only=True, at_most=4.0),
    _Rung(climb_heads, 0.1, atomic_only=True, at_most=1.0),
    _Rung(climb_pivot, 0.9, atomic_only=True, open_from=NEAR_OF_MANY),
    _Rung(climb_pivot, 0.75, atomic_only=True, at_most=5.0),
    _Rung(climb_outward, 0.75, atomic_only=True, at_most=12.0),
    *_LONG,
)
# Where they do not, heads and tails are close to the optimum and make schedules that are. What is
# missing offloads in idle times after the turn: annealing finds most of it, dives some of the rest
# on chains of up to about 36 stages.
_DISTINCT_SIZES = (
    _Rung(climb_pivot, 0.02, atomic_only=True, at_least=0.5, at_most=1.0),
    _Rung(climb_heads, 0.06, atomic_only=True, at_most=1.5),
    _Rung(descend_local_search, 0.1, at_most=1.5),
    _Rung(climb_pivot, 0.15, atomic_only=True, at_most=2.0),
    _Rung(climb_heads, 0.25, atomic_only=True, at_most=6.0),
    _Rung(descend_local_search, 0.15),
    _Rung(descend_dives, 0.35, atomic_only=True),
    _Rung(climb_heads, 0.3, atomic_only=True),
    _Rung(climb_pivot, 0.15, atomic_only=True),
    _Rung(descend_local_search, 0.3),
    _Rung(climb_interval, 0.35, atomic_only=True),
    _Rung(climb_fluid, 0.1),
    _Rung(climb_pivot, 0.3, atomic_only=True),
)
# Operations of which linear programs are still solved, and their prices made exact, in seconds.
_MOST_FOR_LINEAR = 2000
# On long traces a good schedule is soon found and the fractional bound nearly met. What searches
# over labels, or has a variable for each tensor and operation, does not end there: it would take
# the time and gigabytes for nothing.
_LONG_TRACES = (
    _Rung(descend_sequential, 1.0, always=True),
    _Rung(climb_combinatorial, 1.0, always=True),
    _Rung(descend_greedy, 1.0),
    _Rung(descend_set_search, 0.1, at_most=3.0),
    _Rung(descend_order_search, 0.2, at_most=5.0),
    _Rung(descend_local_search, 0.2, at_most=10.0, gap_from=_MUCH_OPEN),
    _Rung(
        climb_fluid,
        0.6,
        gap_from=_MUCH_OPEN,
        early_gaps_only=True,
        most_operations=_MOST_FOR_LINEAR,
        needs=5.0,
    ),
    _Rung(descend_set_search, 0.3),
    _Rung(descend_order_search, 0.6),
    # Where tensors are read in both halves of the step there are no ordered schedules to anneal.
    _Rung(descend_local_search, 1.0),
)
_LAST = (
    _Rung(climb_stage, 0.3, atomic_only=True),
    _Rung(climb_interval, 1.0, atomic_only=True),
)


def _ladder(problem: Problem) -> tuple[_Rung, ...]:
    """Return the rungs in the order that suits the problem."""
    if is_long(problem):
        return _LONG_TRACES
    sizes = [problem.trace.gap_size(gap) for gap in range(len(problem.trace.gaps))]
    repeated = 4 * len(set(sizes)) <= 3 * len(sizes)
    if not repeated:
        return (*_FIRST, *_DISTINCT_SIZES, *_LAST)
    return (*_FIRST, *(_MANY_TENSORS if len(sizes) >= MANY_GAPS else _REPEATED_SIZES), *_LAST)


def certify(
    problem: Problem,
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    target_gap: float = 0.0,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    keep: Callable[[Certificate], None] | None = None,
) -> Certificate:
    """Find a schedule of `problem` and prove how far it is from the best one.

    Parameters
    ----------
    problem : Problem
        Any; an infeasible one gives a certificate that says so.
    time_limit : float
        Seconds. What is known then is returned; an interrupt (Ctrl-C) does the same.
    workers : int
        Threads for solvers that can use several.
    target_gap : float
        Stop when ``(objective - bound) / objective`` is at most this; 0 asks for the optimum.
    seed : int
        Of every random choice.
    progress : callable, optional
        Told of every step and improvement.
    keep : callable, optional
        Given a certificate of what is known before every step, and at improvements about every
        second: written to a file, it outlives a crash of this process. Its setting
        ``"unfinished"`` names the step that was running.

    Returns
    -------
    Certificate
        To be written, verified, plotted, executed.

    Raises
    ------
    InputError
        If an argument is of the wrong type or out of its range.
    """
    options = require_search(problem, time_limit, workers, target_gap, seed)
    time_limit, workers, target_gap, seed = options
    settings: dict[str, object] = {
        "time_limit": time_limit,
        "workers": workers,
        "target_gap": target_gap,
        "seed": seed,
    }
    keeping = None if keep is None else keeper("certify", settings, keep)
    search = Search(problem, time_limit, target_gap, progress, keeping)
    search.infeasibility = infeasibility(problem)
    try:
        for rung in _ladder(problem):
            if search.infeasibility is not None or (search.done and not rung.always):
                break
            if not rung.suits(search):
                continue
            seconds = rung.seconds(search.remaining)
            if seconds < rung.needs:
                continue
            # A method that does not apply to this network leaves its place to the next one.
            with suppress(MethodError), search.surviving():
                rung.run(search, Effort(seconds, workers, seed))
    except KeyboardInterrupt:
        settings["interrupted"] = True
    return search.certificate("certify", settings)
