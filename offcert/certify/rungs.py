"""The rungs of the ladder, as data: which step runs when, for how long, and why.

``python benchmarks/ladder.py`` prints them, measures what each contributes, and fits their times.
"""

from __future__ import annotations

from dataclasses import replace

from offcert.certify.descents import (
    descend_cover,
    descend_greedy,
    descend_local_search,
    descend_order_search,
    descend_sequential,
    descend_set_search,
)
from offcert.certify.long_traces import is_long
from offcert.certify.rung import Rung
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
from offcert.core.problem import Problem

# If the outward search has left no more than that open, it goes on before the pivot program.
_VERY_NEAR = 0.0003
# The same with many tensors, of which it closes most.
_NEAR_MANY = 0.002
# With more than that open, what is missing is not a better order.
_MUCH_OPEN = 0.0005
# The longest trace, in operations, whose linear programs are still solved, and their multipliers
# made exact, in seconds.
_MOST_FOR_LINEAR = 2000

_FIRST = (
    Rung(descend_sequential, 1.0, "a plan that always works, at once", always=True),
    Rung(climb_combinatorial, 1.0, "bounds that need no search, at once", always=True),
    Rung(descend_greedy, 1.0, "often a good plan, at once"),
    Rung(descend_cover, 1.0, "at times a better plan than GREEDY's, at once"),
    Rung(
        climb_fluid_exact, 0.6, "exact where transfers may pause, or move parts", relaxed_only=True
    ),
    Rung(descend_set_search, 0.03, "a good plan for bounds to meet, in half a second", at_most=0.5),
)

_AT_ONCE = Rung(
    climb_pivot,
    0.03,
    "closes most small networks within a second",
    atomic_only=True,
    at_least=0.3,
    at_most=1.0,
)

_SHORT = (
    Rung(
        descend_order_search, 0.06, "a short turn, so that bounds meet a good schedule", at_most=1.0
    ),
    Rung(
        descend_local_search,
        0.03,
        "a short turn: it also finds schedules that are not ordered",
        at_most=0.5,
    ),
)

_LONG = (
    Rung(
        climb_sums,
        1.0,
        "quick, and of use only where whole tensors leave much open",
        atomic_only=True,
        gap_from=_MUCH_OPEN,
    ),
    Rung(
        climb_joined,
        0.4,
        "on fine traces, where tensors have several gaps, it bounds best",
        atomic_only=True,
        at_most=10.0,
        fine_only=True,
    ),
    Rung(
        climb_matched,
        0.7,
        "closes what the outward search has nearly closed",
        atomic_only=True,
        open_to=NEAR,
    ),
    Rung(descend_order_search, 0.25, "bounds have had a long turn; now schedules"),
    Rung(climb_matched, 0.5, "works on every link and trace, given time", atomic_only=True),
    Rung(
        climb_joined, 0.3, "the same for tensors with several gaps", atomic_only=True, at_most=10.0
    ),
    Rung(descend_local_search, 0.25, "what is left may be a schedule that is not ordered"),
    Rung(
        climb_pivot,
        0.5,
        "exact, given enough labels; the schedule it starts from is better now",
        atomic_only=True,
    ),
    Rung(
        climb_pivot_outward,
        0.4,
        "needs fewer labels than the pivot program where one side has most of them",
        atomic_only=True,
    ),
    Rung(climb_outward, 0.5, "goes on where it stopped", atomic_only=True),
    Rung(climb_heads, 0.4, "other orders than the first time, and finer bounds", atomic_only=True),
    Rung(descend_order_search, 0.25, "another random sequence"),
    Rung(climb_pivot, 0.6, "the rest of the labels that fit into memory", atomic_only=True),
    Rung(climb_fluid, 0.2, "says more than the fractional bound where tensors return early"),
)

_REPEATED_SIZES = (
    _AT_ONCE,
    Rung(
        climb_outward,
        0.45,
        "a first look, after which it is known how near it comes",
        atomic_only=True,
        at_most=2.5,
    ),
    Rung(
        climb_outward,
        0.6,
        "so near that it will close the problem itself",
        atomic_only=True,
        open_to=_VERY_NEAR,
    ),
    Rung(
        climb_pivot_outward,
        0.6,
        "far from closed outward: one side by labels closes many of these",
        atomic_only=True,
        at_most=5.0,
        open_from=NEAR,
    ),
    *_SHORT,
    Rung(
        climb_heads,
        0.07,
        "what is known of both ends makes the pivot programs shorter",
        atomic_only=True,
        at_most=1.5,
    ),
    Rung(
        climb_pivot,
        0.9,
        "far from closed outward: then this is what closes networks",
        atomic_only=True,
        open_from=NEAR,
    ),
    Rung(
        climb_pivot_outward,
        0.6,
        "near: a turn each for the three that may close it",
        atomic_only=True,
        at_most=4.0,
        open_to=NEAR,
    ),
    Rung(
        climb_outward,
        0.6,
        "near: a turn each for the three that may close it",
        atomic_only=True,
        at_most=5.0,
        open_to=NEAR,
    ),
    Rung(
        climb_pivot,
        0.6,
        "near: a turn each for the three that may close it",
        atomic_only=True,
        open_to=NEAR,
    ),
    Rung(
        climb_outward,
        0.6,
        "near, and neither of the others has closed it",
        atomic_only=True,
        open_to=NEAR,
    ),
    *_LONG,
)

_MANY_TENSORS = (
    replace(
        _AT_ONCE, reason="closes chains of like layers within a second, deep networks hardly ever"
    ),
    *_SHORT,
    Rung(
        climb_outward,
        0.75,
        "closes most networks with many tensors, unless next to no memory is free",
        atomic_only=True,
        at_most=2.5,
    ),
    Rung(
        climb_outward,
        0.75,
        "so near that it is likely to close the problem itself",
        atomic_only=True,
        at_most=5.0,
        open_to=_NEAR_MANY,
    ),
    Rung(
        climb_pivot_outward,
        0.6,
        "one side by labels, where both sides are too many",
        atomic_only=True,
        at_most=4.0,
    ),
    Rung(
        climb_heads,
        0.1,
        "what is known of both ends makes the pivot programs shorter",
        atomic_only=True,
        at_most=1.0,
    ),
    Rung(
        climb_pivot,
        0.9,
        "next to no memory is free: then few labels are left, and it ends",
        atomic_only=True,
        open_from=NEAR_OF_MANY,
    ),
    Rung(climb_pivot, 0.75, "a turn, as it closes some of these", atomic_only=True, at_most=5.0),
    Rung(climb_outward, 0.75, "goes on where it stopped", atomic_only=True, at_most=12.0),
    *_LONG,
)

_DISTINCT_SIZES = (
    Rung(
        climb_pivot,
        0.02,
        "closes short chains at once",
        atomic_only=True,
        at_least=0.5,
        at_most=1.0,
    ),
    Rung(
        climb_heads,
        0.06,
        "close to the optimum where sizes differ, and its orders make good schedules",
        atomic_only=True,
        at_most=1.5,
    ),
    Rung(
        descend_local_search, 0.1, "finds what offloads in idle times after the turn", at_most=1.5
    ),
    Rung(
        climb_pivot,
        0.15,
        "begins with what heads and tails have established",
        atomic_only=True,
        at_most=2.0,
    ),
    Rung(
        climb_heads,
        0.25,
        "finer bounds and better orders, given more time",
        atomic_only=True,
        at_most=6.0,
    ),
    Rung(descend_local_search, 0.15, "the bound is good by now; a schedule is missing"),
    Rung(
        descend_dives,
        0.35,
        "CP-SAT may find schedules that annealing misses, on chains of up to about 36 stages",
        atomic_only=True,
    ),
    Rung(climb_heads, 0.3, "other orders, finer bounds", atomic_only=True),
    Rung(climb_pivot, 0.15, "the schedule may be optimal now", atomic_only=True),
    Rung(descend_local_search, 0.3, "another random sequence"),
    Rung(climb_interval, 0.35, "exact: closes what is small enough for it", atomic_only=True),
    Rung(climb_fluid, 0.1, "says more than the fractional bound where tensors return early"),
    Rung(climb_pivot, 0.3, "the rest of the labels that fit into memory", atomic_only=True),
)

_LAST = (
    Rung(climb_stage, 0.3, "tells whole tensors apart where all else has failed", atomic_only=True),
    Rung(climb_interval, 1.0, "exact, for what is left of the time", atomic_only=True),
)

_LONG_TRACES = (
    Rung(descend_sequential, 1.0, "a plan that always works, at once", always=True),
    Rung(climb_combinatorial, 1.0, "many small tensors: these bounds are nearly met", always=True),
    Rung(descend_greedy, 1.0, "often a good plan, at once"),
    Rung(descend_set_search, 0.1, "soon finds a good schedule", at_most=3.0),
    Rung(descend_order_search, 0.2, "improves it where schedules can be ordered", at_most=5.0),
    Rung(
        descend_local_search,
        0.2,
        "much is open: the schedule need not be ordered",
        at_most=10.0,
        gap_from=_MUCH_OPEN,
    ),
    Rung(
        climb_fluid,
        0.6,
        "says more than the fractional bound where tensors return early",
        gap_from=_MUCH_OPEN,
        early_gaps_only=True,
        most_operations=_MOST_FOR_LINEAR,
        needs=5.0,
    ),
    Rung(descend_set_search, 0.3, "another random sequence"),
    Rung(descend_order_search, 0.6, "another random sequence"),
    Rung(
        descend_local_search,
        1.0,
        "where tensors are read in both halves of the step nothing else is left",
    ),
)

# Searches over labels, and models with a variable for each tensor and operation, do not end on long
# traces: they would take the time and gigabytes for nothing.
LADDERS: dict[str, tuple[Rung, ...]] = {
    "repeated sizes": (*_FIRST, *_REPEATED_SIZES, *_LAST),
    "many tensors": (*_FIRST, *_MANY_TENSORS, *_LAST),
    "distinct sizes": (*_FIRST, *_DISTINCT_SIZES, *_LAST),
    "long traces": _LONG_TRACES,
}


def ladder_for(problem: Problem) -> str:
    """Return the name of the ladder that suits a problem.

    Where sizes repeat, as in networks, searches over labels are quick. With many tensors the
    outward search still is. Where sizes differ, heads and tails are close to the optimum.
    """
    if is_long(problem):
        return "long traces"
    trace = problem.trace
    sizes = [trace.gap_size(gap) for gap in range(len(trace.gaps))]
    if 4 * len(set(sizes)) > 3 * len(sizes):
        return "distinct sizes"
    return "many tensors" if len(sizes) >= MANY_GAPS else "repeated sizes"
