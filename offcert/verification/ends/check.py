"""Bounds by what moves before a pivot and after it, established again from the problem's numbers.

Head and tail alone, `can_end`: neither side may end sooner than is claimed. If the two do not add
up to the bound, `MatchedCut` makes both sides move the same tensors, up to `spare` of them, with
more and more sizes told apart. What one level finds on one side, with the least end of the other
side for the same amounts, bounds the whole schedule for every key from which a joint end can be
reached; the next level keeps only labels whose coarser key is one of these. The claim is
established by the first level at which no two ends can be joined. All of this admits more than the
problem does, so wrong advice can only make the answer no. docs/theory/heads.md and matched.md have
the argument, with examples on paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from offcert.core.platform import Kind
from offcert.core.trace import Tensor, Trace
from offcert.proofs.kinds.labels import Ends, Heads
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.ends.join import joined
from offcert.verification.ends.kept import kept
from offcert.verification.ends.prospects import Tables
from offcert.verification.ends.search import (
    DONE,
    NEVER,
    REACHED,
    Keyed,
    all_ends,
    all_prospects,
    no_keys,
)
from offcert.verification.ends.sides import MOST_LEVELS, side_tables
from offcert.verification.limits import Allowance, BeyondLimitsError, TooLargeError

# Labels to be searched on each side, unless the caller wants less. Arbitrary.
MOST_LABELS = 10_000_000

Sizes = Sequence[int]
Movables = Mapping[int, tuple[int, int]]

_SIDES = {Kind.OFFLOAD: "before", Kind.PREFETCH: "after"}


def heads(problem: Problem, value: int, proof: Heads, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    labels = allowance.labels(MOST_LABELS)
    return heads_fault(problem, value, proof, labels, allowance.require_time)


def heads_joined(problem: Problem, value: int, proof: Heads, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter even with one gap a tensor, or why it is not shown."""
    return heads(with_joined_gaps(problem), value, proof, allowance)


def with_joined_gaps(problem: Problem) -> Problem:
    """Return the problem in which a tensor with gaps may be absent from the first to the last.

    Take any schedule of the problem, and leave out all prefetches of each tensor but the last. The
    tensor is then absent at least whenever it was before, the offload is as it was, the prefetch
    starts after it and ends before the last gap does, and nothing was added to the link. So this is
    a schedule of the problem returned, of the same length.
    """
    trace = problem.trace
    return replace(
        problem, network=Trace(trace.operations, [_joined(tensor) for tensor in trace.tensors])
    )


def _joined(tensor: Tensor) -> Tensor:
    pauses = [(one, two) for one, two in pairwise(tensor.uses) if two - one > 1]
    if not tensor.evictable or not pauses:
        return tensor
    leaves, returns = pauses[0][0], pauses[-1][1]
    uses = [use for use in tensor.uses if not leaves < use < returns]
    return replace(tensor, uses=tuple(uses))


def heads_fault(
    problem: Problem,
    claimed: int,
    proof: Heads,
    max_labels: int = MOST_LABELS,
    require_time: Callable[[], None] = lambda: None,
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or which part fails to show it.

    Parameters
    ----------
    problem : Problem
        Any trace and link; transfers other than atomic ones are a fault.
    claimed : int
        The bound, in ticks.
    proof : Heads
        The advice.
    max_labels : int
        How much to search at most, on each side of each level.
    require_time : callable
        Called before each search; raises if there is no time for it.

    Raises
    ------
    BeyondLimitsError
        If a search is too large.
    """
    trace = problem.trace
    if trace.least_memory > problem.platform.memory or claimed <= sum(trace.durations):
        return None
    head, tail = proof.times
    if min(head, tail) < 0:
        return f"details.head and details.tail must not be negative, as in {head}, {tail}"
    if proof.unit < 1:
        return f"details.unit must be at least 1, not {proof.unit}"
    if not proof.levels and head + tail < claimed:
        return f"details.head and details.tail make {head} and {tail} only, and no details.levels"
    fault = ends_fault(problem, proof.pivot, proof, max_labels)
    if fault is not None or head + tail >= claimed:
        return fault
    fault = _advice_fault(problem, proof)
    if fault is not None:
        return fault
    try:
        return MatchedCut(problem, claimed, proof).fault(max_labels, require_time)
    except TooLargeError:
        return "its numbers are too large for the search"


def ends_fault(
    problem: Problem, pivot: int, ends: Ends, max_labels: int = MOST_LABELS, place: str = "details"
) -> str | None:
    """Return None if no front and no back of a schedule is shorter than its end, or the fault.

    Parameters are those of `heads_fault`; `place` is where the numbers stand, for the message.
    """
    if problem.transfers is not Transfers.ATOMIC:
        return f"nothing of the kind holds with {problem.transfers} transfers"
    if not 0 <= pivot < len(problem.trace):
        count = len(problem.trace)
        return f"{place}.pivot must be below the number of operations, {count}, not {pivot}"
    sides = _both(problem, pivot, ends)
    if sides is None:
        return "its numbers are too large for the search"
    for name, side, time in zip(("head", "tail"), sides, ends.times, strict=True):
        end = can_end(side, time - 1, max_labels)
        if end == REACHED:
            return f"{place}.{name} is too much: as far as the search can tell, {time - 1} will do"
        if end != DONE:
            raise BeyondLimitsError(f"the search for {place}.{name} is too large")
    return None


def can_end(side: Tables, limit: int, max_labels: int) -> int:
    """Return whether a side can end by `limit`: `DONE` if not, `REACHED` if so, or `TOO_LARGE`."""
    if side.floor[0] > limit:
        return DONE
    ahead = all_prospects(side)
    levels = len(ahead[0]) - 1
    return all_ends(side, limit, levels, ahead, no_keys(levels), 0, limit, max_labels)[0]


def within_reach(problem: Problem, claimed: int, proof: Heads) -> bool:
    """Return whether `heads_fault` can work with the numbers of such a claim at all."""
    if not ends_within_reach(problem, proof.pivot, proof) or min(proof.times) < 0:
        return False
    if sum(proof.times) >= claimed:
        # Head and tail alone show it.
        return True
    if proof.unit < 1 or _advice_fault(problem, proof) is not None:
        return False
    try:
        cut = MatchedCut(problem, claimed, proof)
        for newest in _in_order(proof.levels):
            cut.sides(newest)
    except TooLargeError:
        return False
    return True


def ends_within_reach(problem: Problem, pivot: int, ends: Ends) -> bool:
    """Return whether `ends_fault` can work with such numbers at all."""
    return 0 <= pivot < len(problem.trace) and _both(problem, pivot, ends) is not None


def _both(problem: Problem, pivot: int, ends: Ends) -> list[Tables] | None:
    """Return both sides as arrays, or None if that is not possible."""
    try:
        return [
            side_tables(problem, pivot, kind, time, sizes, unit)
            for kind, time, sizes, unit in zip(
                Kind, ends.times, ends.counted, ends.units, strict=True
            )
        ]
    except TooLargeError:
        return None


class MatchedCut:
    """Both sides of a pivot, to be searched for what joins to less than `claimed` ticks.

    Raises
    ------
    TooLargeError
        If so many amounts would have to be told apart.
    """

    def __init__(self, problem: Problem, claimed: int, proof: Heads) -> None:
        self.problem = problem
        self.proof = proof
        self.longest = claimed - 1
        # How late the front may end, and the back.
        self.limits = claimed - 1 - proof.tail, claimed - 1 - proof.head
        self.movables = _movables(problem, proof.pivot, proof.free_below)
        self.most = _most(problem, self.movables)
        excess = self.least_excess(int(self.sides(())[0].need[-1]))
        if excess > MOST_LEVELS * proof.unit:
            raise TooLargeError
        # The least units at which more than the spare tensors may be early or late.
        self.amounts = -(-excess // proof.unit)

    def least_excess(self, need: int) -> int:
        """Return the bytes that a side with more than the spare tensors moves at least."""
        return need + sum(sorted(self.most.elements())[: self.proof.spare + 1])

    def sides(self, counted: Sizes) -> list[Tables]:
        """Return front and back as arrays, with some sizes told apart."""
        return [
            side_tables(
                self.problem,
                self.proof.pivot,
                kind,
                self.longest + 1,
                counted,
                self.proof.unit,
                movables,
                self.most,
            )
            for kind, movables in zip(Kind, self.movables, strict=True)
        ]

    def fault(self, max_labels: int, require_time: Callable[[], None]) -> str | None:
        """Return None if no front and back join in time, or which part of the details fails."""
        known, ratio, least = [no_keys(self.amounts)] * 2, 0, NEVER
        before: Sizes = ()
        levels = _in_order(self.proof.levels)
        for level, counted in enumerate(levels):
            tables = self.sides(counted)
            if level == 0:
                prospects = [all_prospects(side) for side in tables]
            else:
                ratio = 1
                for size in set(counted) - set(before):
                    ratio *= self.most[size] + 1
            found: list[Keyed] = []
            for index, (kind, side) in enumerate(zip(Kind, tables, strict=True)):
                require_time()
                limit, ahead, coarse = self.limits[index], prospects[index], known[index]
                status, labels = all_ends(
                    side, limit, self.amounts, ahead, coarse, ratio, self.longest, max_labels
                )
                if status != DONE:
                    return self._unfinished(status, kind, level)
                found.append(labels)
            least, others = joined(tables, found, self.proof.spare, self.longest)
            if least > self.longest:
                return None
            if level < len(levels) - 1:
                known = [
                    kept(side, labels, other, self.longest)
                    for side, labels, other in zip(tables, found, others, strict=True)
                ]
            before = counted
        return f"with all of details.levels two sides are joined in {least}"

    def _unfinished(self, status: int, kind: Kind, level: int) -> str:
        """Return why the search of one side found nothing."""
        if status == REACHED:
            move = "return before" if kind is Kind.OFFLOAD else "leave after"
            spare = self.proof.spare
            who = f"more tensors than details.spare {spare}" if spare else "a tensor"
            return (
                f"with details.free_below {self.proof.free_below}, {who} may {move} the start of "
                "the pivot, so that the two sides need not move the same"
            )
        raise BeyondLimitsError(
            f"the search {_SIDES[kind]} the pivot for details.levels[{level}] is too large"
        )


def _movables(problem: Problem, pivot: int, free_below: int) -> list[Movables]:
    """Return the tensors that may leave on either side, each with the uses around its one gap."""
    gaps = {}
    for index, tensor in enumerate(problem.trace.tensors):
        absences = [(one, two) for one, two in pairwise(tensor.uses) if two > one + 1]
        if tensor.evictable and tensor.size >= max(1, free_below) and len(absences) == 1:
            gaps[index] = absences[0]
    return [
        {index: gap for index, gap in gaps.items() if gap[0] < pivot},
        {index: gap for index, gap in gaps.items() if gap[1] > pivot},
    ]


def _most(problem: Problem, movables: Sequence[Movables]) -> Counter[int]:
    """Return how many tensors of each size may leave on one side, at most."""
    one, two = (Counter(problem.trace.tensors[index].size for index in side) for side in movables)
    return one | two


def _in_order(levels: Sequence[Sizes]) -> list[Sizes]:
    """Return the sizes of each level, those it has first in front.

    A code divided by the number of values that the new sizes' counts can have then is the code of
    the level before, and codes stay in order.
    """
    ordered: list[Sizes] = []
    for level in levels:
        before = ordered[-1] if ordered else ()
        ordered.append((*(size for size in level if size not in before), *before))
    return ordered


def _advice_fault(problem: Problem, proof: Heads) -> str | None:
    """Return the first field of the advice that makes no sense, with the reason, or None."""
    free_below, spare, levels = proof.free_below, proof.spare, proof.levels
    if free_below < 0:
        return f"details.free_below must not be negative, as {free_below} is"
    most = _most(problem, _movables(problem, proof.pivot, free_below))
    if not most:
        return f"details.free_below {free_below} leaves no tensor that has to move"
    if not 0 <= spare < most.total():
        return (
            f"details.spare must be below the number of such tensors, {most.total()}, not {spare}"
        )
    for index, level in enumerate(levels):
        place = f"details.levels[{index}]"
        if len(set(level)) < len(level):
            return f"{place} names a size twice"
        unknown = sorted(set(level) - set(most))
        if unknown:
            return f"{place} names the size {unknown[0]}, which no tensor has that has to move"
        if index > 0 and not set(level) > set(levels[index - 1]):
            return f"{place} must have all sizes of the one before, and more"
    return None
