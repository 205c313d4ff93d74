"""Verification of pivot bounds; see `offcert.verify.pivot.check`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from fractions import Fraction

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.platform import Kind, Link
from offcert.core.threads import cores, in_threads
from offcert.proofs.kinds.labels import Pivot
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verify.heads.check import ends
from offcert.verify.limits import Allowance, BeyondLimitsError, TooLargeError
from offcert.verify.pivot.side import Evictable, Found, Side, nothing_found

# Labels to be searched on each side, unless the caller wants less. Arbitrary.
MOST_LABELS = 16_000_000


def confirm(
    problem: Problem,
    pivot: int,
    front_limit: int,
    back_limit: int,
    claimed: int,
    *,
    once: Collection[int] = (),
    max_labels: int = MOST_LABELS,
) -> bool:
    """Return whether no schedule of `problem` is shorter than `claimed` ticks.

    Parameters
    ----------
    problem : Problem
        Atomic transfers, simplex link, one gap per evictable tensor, nested gaps; false for others.
    pivot : int
        The operation at whose start schedules are cut; -1 if the bound needs no search.
    front_limit, back_limit : int
        How late the two sides may end, each in its own time, and still be searched.
    claimed : int
        The bound, in ticks.
    once : collection of int
        Gaps whose tensors must not leave twice.
    max_labels : int
        How much to search at most.

    Returns
    -------
    bool
        False if the bound is wrong, the advice is insufficient, or the search is too large.
    """
    limits = (front_limit, back_limit)
    try:
        return pivot_fault(problem, pivot, limits, claimed, once, max_labels) is None
    except BeyondLimitsError:
        return False


def pivot_fault(
    problem: Problem,
    pivot: int,
    limits: tuple[int, int],
    claimed: int,
    once: Collection[int] = (),
    max_labels: int = MOST_LABELS,
    ends: tuple[int, int] = (0, 0),
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or which part fails to show it.

    Parameters are those of `confirm`. `ends` are times before which no front and no back of a
    schedule ends, established elsewhere; a side whose limit is below its time is not searched.

    Raises
    ------
    BeyondLimitsError
        If the search is too large.
    """
    trace = problem.trace
    front_limit, back_limit = limits
    if trace.least_memory > problem.platform.memory or claimed <= sum(trace.durations):
        return None
    classes = classes_of(problem)
    if not classes:
        return "the program is for atomic transfers, simplex links and nested traces"
    if not 0 <= pivot < len(trace):
        return f"details.pivot must name an operation, not {pivot}"
    for name, limit in (("front", front_limit), ("back", back_limit)):
        if limit > 2 * claimed:
            # No shorter schedule has a side that long: it would only make the search endless.
            return f"details.{name}_limit must be at most {2 * claimed}, not {limit}"
    front = Side(problem, classes, pivot, claimed - 1, front_limit, once, backwards=False)
    back = Side(problem, classes, pivot, claimed - 1, back_limit, once, backwards=True)

    def searched(index: int) -> Found:
        side, limit = (front, back)[index], limits[index]
        return side.search(max_labels) if limit >= ends[index] else nothing_found()

    try:
        one, two = in_threads(searched, range(2), cores())
    except TooLargeError:
        return "its numbers are too large for the search"
    # If one side of a shorter schedule ended after its limit, the other would end before it can.
    if front_limit + max(two.earliest, ends[1]) < claimed - 1:
        return f"details.front_limit is too small: a front of more than {front_limit} may do"
    if back_limit + max(one.earliest, ends[0]) < claimed - 1:
        return f"details.back_limit is too small: a back of more than {back_limit} may do"
    shortest = min(_lengths(front, one, back, two), default=claimed)
    if shortest < claimed:
        return f"at details.pivot {pivot} two sides are joined in {shortest}"
    return None


def within_reach(problem: Problem, pivot: int, claimed: int) -> bool:
    """Return whether `confirm` can work with the numbers of such a claim at all."""
    classes = classes_of(problem)
    if not classes or not 0 <= pivot < len(problem.trace):
        return claimed <= problem.trace.compute_time
    try:
        for backwards in (False, True):
            Side(problem, classes, pivot, claimed - 1, claimed, (), backwards).tables()
    except TooLargeError:
        return False
    return True


def _lengths(front: Side, one: Found, back: Side, two: Found) -> Iterator[int]:
    """Yield the length of every combination of a front and a back with the same tensors out."""
    ends = front.ends(one.labels), back.ends(two.labels)
    for row, other in _pairs(one.labels, two.labels):
        if not one.labels[row, 2] & two.labels[other, 2]:
            yield int(ends[0][row] + ends[1][other])
    for side, found, opposite, others in ((front, one, back, two), (back, two, front, one)):
        ends_there = opposite.ends(others.labels)
        for row, other in _pairs(found.straddles, others.labels):
            end, begin, of, returned, out = found.straddles[row].tolist()
            free, waited, gone, _ = others.labels[other].tolist()
            if returned & gone:
                continue
            ready = opposite.tensor(of, out).ready
            # If the operation ended before the link was free, the link decides.
            begins = max(free, waited + opposite.clock[ready + 1])
            link = begin + side.back_times[of] + begins
            yield int(max(end + ends_there[other], link))


def _pairs(one: IntArray, two: IntArray) -> Iterator[tuple[int, int]]:
    """Yield the rows of both that agree in the last column, what is out."""
    rows = np.flatnonzero(np.isin(one[:, -1], two[:, -1]))
    partners = defaultdict(list)
    for other in np.flatnonzero(np.isin(two[:, -1], one[:, -1])).tolist():
        partners[int(two[other, -1])].append(other)
    for row in rows.tolist():
        for other in partners[int(one[row, -1])]:
            yield row, other


def _whole_ticks(size: int, rate: Fraction) -> int:
    whole, rest = divmod(size * rate.denominator, rate.numerator)
    return whole + (1 if rest else 0)


def classes_of(problem: Problem) -> list[list[Evictable]] | None:
    """Return equal tensors in order, outermost first; None if the method does not apply."""
    trace, platform = problem.trace, problem.platform
    if problem.transfers is not Transfers.ATOMIC or platform.link is not Link.SIMPLEX:
        return None
    tensors = []
    for index, gap in enumerate(trace.gaps):
        size, uses = trace.tensors[gap.tensor].size, trace.tensors[gap.tensor].uses
        leaving, returning = (
            _whole_ticks(size, platform.rate(kind)) for kind in (Kind.OFFLOAD, Kind.PREFETCH)
        )
        tensors.append(Evictable(index, size, leaving, returning, uses[0], gap.before, gap.after))
    if len({gap.tensor for gap in trace.gaps}) < len(tensors):
        return None
    for one in tensors:
        for two in tensors:
            if one.before < two.before and one.after < two.after:
                return None
    classes: list[list[Evictable]] = []
    for tensor in sorted(tensors, key=lambda v: (v.before, -v.after, v.writer)):
        for members in classes:
            if members[0].size == tensor.size and members[-1].writer <= tensor.writer:
                members.append(tensor)
                break
        else:
            classes.append([tensor])
    return classes


def pivot(problem: Problem, value: int, proof: Pivot, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    times = (0, 0)
    if proof.ends is not None:
        fault = ends(problem, proof.pivot, proof.ends, allowance)
        if fault is not None:
            return fault
        times = proof.ends.times
    limits = proof.front_limit, proof.back_limit
    labels = allowance.labels(MOST_LABELS, searches=2)
    return pivot_fault(problem, proof.pivot, limits, value, proof.once, labels, times)
