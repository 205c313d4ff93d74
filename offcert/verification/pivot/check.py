"""The pivot dynamic program, run again: both sides of a cut, and what they join to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.platform import Kind, Link
from offcert.core.threads import cores, in_threads
from offcert.proofs.kinds.labels import Pivot
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.ends.check import MOST_LABELS as MOST_OF_ENDS
from offcert.verification.ends.check import ends_fault, ends_within_reach
from offcert.verification.ends.sides import ticks_of
from offcert.verification.limits import Allowance, TooLargeError
from offcert.verification.pivot.side import Evictable, Found, Side, nothing_found

# Labels to be searched on each side, unless the caller wants less. Arbitrary.
MOST_LABELS = 16_000_000


def pivot(problem: Problem, value: int, proof: Pivot, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    most = allowance.labels(MOST_LABELS, searches=2), allowance.labels(MOST_OF_ENDS)
    return pivot_fault(problem, value, proof, *most)


def pivot_fault(
    problem: Problem,
    claimed: int,
    proof: Pivot,
    max_labels: int = MOST_LABELS,
    most_of_ends: int = MOST_OF_ENDS,
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or which part fails to show it.

    Parameters
    ----------
    problem : Problem
        Any; it is a fault if transfers are not atomic, the link is duplex, an evictable tensor has
        several gaps, or gaps are not nested.
    claimed : int
        The bound, in ticks.
    proof : Pivot
        The advice. A side whose limit is below its proved end is not searched.
    max_labels, most_of_ends : int
        How much to search at most on each side, and for each of the ends.

    Raises
    ------
    BeyondLimitsError
        If a search is too large.
    """
    trace = problem.trace
    limits = front_limit, back_limit = proof.front_limit, proof.back_limit
    if trace.least_memory > problem.platform.memory or claimed <= sum(trace.durations):
        return None
    ends = (0, 0)
    if proof.ends is not None:
        fault = ends_fault(problem, proof.pivot, proof.ends, most_of_ends, "details.ends")
        if fault is not None:
            return fault
        ends = proof.ends.times
    classes = classes_of(problem)
    if not classes:
        return "the program is for atomic transfers, simplex links and nested traces"
    if not 0 <= proof.pivot < len(trace):
        return f"details.pivot must name an operation, not {proof.pivot}"
    for name, limit in (("front", front_limit), ("back", back_limit)):
        if limit > 2 * claimed:
            # No shorter schedule has a side that long: it would only make the search endless.
            return f"details.{name}_limit must be at most {2 * claimed}, not {limit}"
    sides = front, back = [
        Side(problem, classes, proof.pivot, claimed - 1, limits[index], proof.once, index == 1)
        for index in range(2)
    ]

    def searched(index: int) -> Found:
        return sides[index].search(max_labels) if limits[index] >= ends[index] else nothing_found()

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
        return f"at details.pivot {proof.pivot} two sides are joined in {shortest}"
    return None


def within_reach(problem: Problem, claimed: int, proof: Pivot) -> bool:
    """Return whether `pivot_fault` can work with the numbers of such a claim at all."""
    pivot, classes = proof.pivot, classes_of(problem)
    if not classes or not 0 <= pivot < len(problem.trace):
        return claimed <= problem.trace.compute_time
    try:
        for backwards in (False, True):
            Side(problem, classes, pivot, claimed - 1, claimed, (), backwards).tables()
    except TooLargeError:
        return False
    return proof.ends is None or ends_within_reach(problem, pivot, proof.ends)


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


def classes_of(problem: Problem) -> list[list[Evictable]] | None:
    """Return equal tensors in order, outermost first; None if the method does not apply."""
    trace, platform = problem.trace, problem.platform
    if problem.transfers is not Transfers.ATOMIC or platform.link is not Link.SIMPLEX:
        return None
    tensors = []
    for index, gap in enumerate(trace.gaps):
        size, uses = trace.tensors[gap.tensor].size, trace.tensors[gap.tensor].uses
        leaving, returning = (
            ticks_of(problem, kind, size) for kind in (Kind.OFFLOAD, Kind.PREFETCH)
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
