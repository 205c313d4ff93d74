"""Tensors that leave more than once in an ordered schedule: which of their gaps those are.

A tensor that was offloaded leaves again for free, and has to come back again. In an ordered
schedule its first offload comes before every prefetch, so the gap in which it is away again is one
more item: an offload of no duration, and a prefetch like any other. Where all else that may be
absent is not enough, such gaps are needed for there to be an ordered schedule at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from offcert.core.problem import Problem
from offcert.core.trace import Trace


def leaving_again(trace: Trace, gaps: Iterable[int]) -> set[int]:
    """Return those of some gaps whose tensor has an earlier one among them."""
    first: dict[int, int] = {}
    found = set()
    for gap in sorted(gaps):
        if first.setdefault(trace.gaps[gap].tensor, gap) != gap:
            found.add(gap)
    return found


def later_gaps(trace: Trace, gaps: Iterable[int]) -> dict[int, int]:
    """Return the later gaps of the tensors of some gaps, and for each the gap that it follows.

    Parameters
    ----------
    trace : Trace
        Any.
    gaps : iterable of int
        At most one of each tensor.
    """
    chosen = {trace.gaps[gap].tensor: gap for gap in gaps}
    return {
        number: chosen[gap.tensor]
        for number, gap in enumerate(trace.gaps)
        if gap.tensor in chosen and chosen[gap.tensor] < number
    }


def lacking(problem: Problem) -> list[int]:
    """Return for each operation the bytes that do not fit if nothing ever leaves."""
    return [max(0, demand - problem.platform.memory) for demand in problem.trace.demand]


def needed_again(
    trace: Trace, required: Sequence[int], gaps: Iterable[int], later: Iterable[int]
) -> list[int]:
    """Return later gaps that have to be evicted even if all the others are; the least of them.

    Parameters
    ----------
    trace : Trace
        Any.
    required : sequence of int
        Bytes that must be absent, for each operation.
    gaps, later : iterable of int
        Gaps that are evicted, and others that may be.
    """
    missing = list(required)
    sizes = trace.gap_sizes
    for number in gaps:
        gap = trace.gaps[number]
        for operation in range(gap.before + 1, gap.after):
            missing[operation] -= sizes[number]
    over: dict[int, list[int]] = defaultdict(list)
    for number in later:
        gap = trace.gaps[number]
        for operation in range(gap.before + 1, gap.after):
            over[operation].append(number)
    needed: set[int] = set()
    for operation in sorted(over):
        rest = missing[operation] - sum(sizes[gap] for gap in over[operation] if gap in needed)
        others = sorted(set(over[operation]) - needed, key=lambda gap: (sizes[gap], gap))
        while rest > 0 and others:
            # The smallest that is enough alone, or else the largest.
            enough = next((gap for gap in others if sizes[gap] >= rest), others[-1])
            others.remove(enough)
            needed.add(enough)
            rest -= sizes[enough]
    return sorted(needed)
