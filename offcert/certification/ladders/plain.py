"""The ladders where only transfers are open, as data.

``python benchmarks/ladder.py`` prints them, measures what each rung contributes, and fits times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from offcert.certification.registry import STEPS
from offcert.certification.rung import Rung, is_long
from offcert.certification.search_steps.labels import MANY_GAPS, NEAR, NEAR_OF_MANY
from offcert.questions.schedule.problem import Problem

# Part of the makespan: if the outward search has left no more open, it goes on before the pivot
# program. Measured with benchmarks/certify.py: 139 of 144 networks in 10 s.
_VERY_NEAR = 0.0003
# The same part for traces with many tensors, of which the outward search closes most. Measured; no
# record.
_NEAR_MANY = 0.002
# Part of the makespan: with more than that open, a better order of transfers would not close the
# gap. Assumed.
_MUCH_OPEN = 0.0005
# Gaps of the largest trace on which CP-SAT gets an early turn. Measured; no record.
_FEW_GAPS = 60
# Gaps of distinct sizes up to which matched heads do better than atomic ones on a duplex link: they
# close 16 that those leave open by 0.5 %, and leave more open of 36. Measured; no record.
_FEW_DISTINCT = 24
# Gaps of the largest traces that are searched to the end before all else, and after what closes
# networks at once; operations of the longest one that gets a long turn. Measured with
# benchmarks/small_problems.py.
_SMALLEST, _FEW_LABELS, _MOST_LABELLED = 8, 24, 64
# Operations of the longest trace whose linear programs are still solved, and their multipliers made
# exact, in seconds. Measured; no record.
_MOST_FOR_LINEAR = 2000
# Gaps of the largest trace for which searches over sets, orders and places are begun. Measured with
# benchmarks/deep_steps.py: with 20,528 none of them ended when its time was over.
_MOST_FOR_SEARCHES = 10_000


def _rung(method: str, share: float, reason: str, **limits: Any) -> Rung:
    return Rung(STEPS[method], share, reason, **limits)


def _searched(method: str, share: float, reason: str, **limits: Any) -> Rung:
    """Return a rung for traces on which searches keep to their time."""
    return _rung(method, share, reason, most_gaps=_MOST_FOR_SEARCHES, **limits)


_FIRST = (
    _rung("sequential", 1.0, "a plan that always works, at once", always=True),
    _rung("combinatorial-bounds", 1.0, "bounds that need no search, at once", always=True),
    _rung("greedy", 1.0, "often a good plan, at once", always=True),
    _rung("least-cover", 1.0, "at times a better plan than GREEDY's, at once", always=True),
    _rung(
        "fluid-exact",
        0.6,
        "exact where transfers may pause, or move parts",
        relaxed_only=True,
    ),
    _rung("set-search", 0.03, "a good plan for bounds to meet, in half a second", at_most=0.5),
    _rung(
        "joint-labels",
        0.05,
        "closes the smallest at once, with several gaps a tensor or on a duplex link",
        at_least=0.5,
        at_most=0.5,
        most_gaps=_SMALLEST,
        unnested_only=True,
    ),
)

_AT_ONCE = _rung(
    "pivot",
    0.03,
    "closes most small networks within a second",
    at_least=0.3,
    at_most=1.0,
)

_SMALL = _rung(
    "joint-labels",
    0.05,
    "closes most that are small, with several gaps a tensor or on a duplex link",
    at_least=0.5,
    at_most=0.5,
    most_gaps=_FEW_LABELS,
    unnested_only=True,
)

_SHORT = (
    _rung(
        "order-search",
        0.06,
        "a short turn, so that bounds meet a good schedule",
        at_most=1.0,
    ),
    _rung(
        "local-search",
        0.03,
        "a short turn: it also finds schedules that are not ordered",
        at_most=0.5,
    ),
)

_LONG = (
    _rung(
        "exact-sums",
        1.0,
        "quick, and of use only where whole tensors leave much open",
        gap_from=_MUCH_OPEN,
    ),
    _rung(
        "matched-heads-joined",
        0.4,
        "on fine traces, where tensors have several gaps, it bounds best",
        at_most=10.0,
        fine_only=True,
    ),
    _rung(
        "matched-heads",
        0.7,
        "closes what the outward search has nearly closed",
        open_to=NEAR,
    ),
    _rung("order-search", 0.25, "bounds have had a long turn; now schedules"),
    _rung("matched-heads", 0.5, "works on every link and trace, given time"),
    _rung("matched-heads-joined", 0.3, "the same for tensors with several gaps", at_most=10.0),
    _rung("local-search", 0.25, "what is left may be a schedule that is not ordered"),
    _rung(
        "pivot",
        0.5,
        "exact, given enough labels; the schedule it starts from is better now",
    ),
    _rung("outward", 0.5, "goes on where it stopped"),
    _rung("atomic-heads", 0.4, "other orders than the first time, and finer bounds"),
    _rung("order-search", 0.25, "another random sequence"),
    _rung("pivot", 0.6, "the rest of the labels that fit into memory"),
)

_REPEATED_SIZES = (
    _AT_ONCE,
    _SMALL,
    _rung(
        "outward",
        0.45,
        "a first look, after which it is known how near it comes",
        at_most=2.5,
    ),
    _rung(
        "outward",
        0.6,
        "so near that it will close the problem itself",
        open_to=_VERY_NEAR,
    ),
    *_SHORT,
    _rung(
        "atomic-heads",
        0.07,
        "what is known of both ends makes the pivot programs shorter",
        at_most=1.5,
    ),
    _rung(
        "pivot",
        0.9,
        "far from closed outward: then this is what closes networks",
        open_from=NEAR,
    ),
    _rung(
        "outward",
        0.6,
        "near: a turn each for the three that may close it",
        at_most=5.0,
        open_to=NEAR,
    ),
    _rung(
        "pivot",
        0.6,
        "near: a turn each for the three that may close it",
        open_to=NEAR,
    ),
    _rung(
        "outward",
        0.6,
        "near, and neither of the others has closed it",
        open_to=NEAR,
    ),
    *_LONG,
)

_MANY_TENSORS = (
    replace(
        _AT_ONCE, reason="closes chains of like layers within a second, deep networks hardly ever"
    ),
    *_SHORT,
    _rung(
        "outward",
        0.75,
        "closes most networks with many tensors, unless next to no memory is free",
        at_most=2.5,
    ),
    _rung(
        "outward",
        0.75,
        "so near that it is likely to close the problem itself",
        at_most=5.0,
        open_to=_NEAR_MANY,
    ),
    _rung(
        "atomic-heads",
        0.1,
        "what is known of both ends makes the pivot programs shorter",
        at_most=1.0,
    ),
    _rung(
        "pivot",
        0.9,
        "next to no memory is free: then few labels are left, and it ends",
        open_from=NEAR_OF_MANY,
    ),
    _rung("pivot", 0.75, "a turn, as it closes some of these", at_most=5.0),
    _rung("outward", 0.75, "goes on where it stopped", at_most=12.0),
    *_LONG,
)

_DISTINCT_SIZES = (
    _rung(
        "pivot",
        0.02,
        "closes short chains at once",
        at_least=0.5,
        at_most=1.0,
    ),
    _SMALL,
    _rung(
        "atomic-heads",
        0.06,
        "close to the optimum where sizes differ, and its orders make good schedules",
        at_most=1.5,
    ),
    _rung("local-search", 0.1, "finds what offloads in idle times after the turn", at_most=1.5),
    _rung(
        "pivot",
        0.15,
        "begins with what heads and tails have established",
        at_most=2.0,
    ),
    _rung(
        "atomic-heads",
        0.25,
        "finer bounds and better orders, given more time",
        at_most=6.0,
    ),
    _rung("local-search", 0.15, "the bound is good by now; a schedule is missing"),
    _rung(
        "interval-neighbourhoods",
        0.3,
        "CP-SAT finds schedules near the best one that annealing misses",
    ),
    _rung(
        "interval-dives",
        0.3,
        "the same far from the best one, on chains of up to about 36 stages",
    ),
    _rung("atomic-heads", 0.3, "other orders, finer bounds"),
    _rung("pivot", 0.15, "the schedule may be optimal now"),
    _rung("local-search", 0.3, "another random sequence"),
    _rung("interval-cpsat", 0.35, "exact: closes what is small enough for it"),
    _rung("pivot", 0.3, "the rest of the labels that fit into memory"),
)

# Ordered by what closed duplex networks by stages soonest, measured with benchmarks/certify.py
# --group 'duplex-*'.
_DUPLEX = (
    _AT_ONCE,
    _rung(
        "matched-heads",
        0.05,
        "closes many networks by stages at once, given a good schedule",
        at_least=0.5,
        at_most=1.0,
    ),
    _SMALL,
    *_SHORT,
    _rung(
        "matched-heads-joined",
        0.2,
        "closes fine traces of few gaps at once",
        at_most=2.0,
        fine_only=True,
    ),
    _rung(
        "atomic-heads", 0.1, "nearly meets the schedule where little memory is free", at_most=1.0
    ),
    _rung("outward", 0.3, "closes networks by stages within seconds, also of many sizes"),
    _rung("pivot", 0.7, "closes most networks by stages, given labels", at_most=30.0),
    _rung(
        "exact-sums",
        0.3,
        "quick, where whole tensors leave much open",
        at_most=2.0,
        gap_from=_MUCH_OPEN,
    ),
    _rung("matched-heads", 0.4, "a better schedule is a nearer target", at_most=3.0),
    _rung("pivot", 0.4, "the schedule it starts from is better now"),
    _rung(
        "interval-cpsat",
        0.3,
        "closes few stages within a second, and finds their schedules",
        at_least=1.0,
        at_most=3.0,
        most_gaps=_FEW_GAPS,
    ),
    _rung("order-search", 0.2, "another random sequence", at_most=2.0),
    _rung("matched-heads", 0.6, "closes most, given time"),
    _rung("matched-heads-joined", 0.3, "the same for tensors with several gaps", at_most=10.0),
    _rung("local-search", 0.25, "what is left may be a schedule that is not ordered"),
    _rung("atomic-heads", 0.4, "other orders than the first time, and finer bounds"),
    _rung("order-search", 0.25, "another random sequence"),
)

_LAST = (
    _rung(
        "joint-labels",
        0.3,
        "closes what is small and has several gaps a tensor, whose bound nothing else meets",
        at_most=30.0,
        most_operations=_MOST_LABELLED,
    ),
    _rung("stage-milp", 0.3, "tells whole tensors apart where all else has failed"),
    _rung("interval-cpsat", 1.0, "exact, for what is left of the time"),
)

_LONG_TRACES = (
    _rung("sequential", 1.0, "a plan that always works, at once", always=True),
    _rung(
        "combinatorial-bounds",
        1.0,
        "many small tensors: these bounds are nearly met",
        always=True,
    ),
    _rung("pieces", 0.7, "micro-batches one after the other, each planned alone"),
    _rung("greedy", 1.0, "often a good plan, at once"),
    _searched("set-search", 0.1, "soon finds a good schedule", at_most=3.0),
    _searched("order-search", 0.2, "improves it where schedules can be ordered", at_most=5.0),
    _searched(
        "local-search",
        0.2,
        "much is open: the schedule need not be ordered",
        at_most=10.0,
        gap_from=_MUCH_OPEN,
    ),
    _rung(
        "fluid-milp",
        0.6,
        "says more than the fractional bound where tensors return early",
        gap_from=_MUCH_OPEN,
        early_gaps_only=True,
        most_operations=_MOST_FOR_LINEAR,
        needs=5.0,
    ),
    _searched("set-search", 0.3, "another random sequence"),
    _searched("order-search", 0.6, "another random sequence"),
    _searched(
        "local-search",
        1.0,
        "where tensors are read in both halves of the step nothing else is left",
    ),
)

# Searches over labels, and models with a variable for each tensor and operation, do not end on long
# traces: they would take the time and gigabytes for nothing.
PLAIN_LADDERS: dict[str, tuple[Rung, ...]] = {
    "repeated sizes": (*_FIRST, *_REPEATED_SIZES, *_LAST),
    "many tensors": (*_FIRST, *_MANY_TENSORS, *_LAST),
    "distinct sizes": (*_FIRST, *_DISTINCT_SIZES, *_LAST),
    "duplex": (*_FIRST, *_DUPLEX, *_LAST),
    "long traces": _LONG_TRACES,
}


def plain_ladder_for(problem: Problem) -> str:
    """Return the name of the ladder that suits a problem.

    Where sizes repeat, as in networks, searches over labels are quick. With many tensors the
    outward search still is. Where sizes differ, heads and tails are close to the optimum. On a
    duplex link matched heads come first.
    """
    if is_long(problem):
        return "long traces"
    trace = problem.trace
    sizes = [trace.gap_size(gap) for gap in range(len(trace.gaps))]
    duplex = problem.platform.duplex
    if 4 * len(set(sizes)) > 3 * len(sizes) and not (duplex and len(sizes) <= _FEW_DISTINCT):
        return "distinct sizes"
    if duplex:
        return "duplex"
    return "many tensors" if len(sizes) >= MANY_GAPS else "repeated sizes"
