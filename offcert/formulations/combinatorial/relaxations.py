"""Combinatorial lower bounds: Prop. 3, the fractional optimum, and both with subset-sum rounding.

All of them rest on one number per operation: the bytes that must be absent while it runs. They are
computed in exact integers and re-computed by `offcert.verification.findings` with other code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from offcert.core.network import Network, sources
from offcert.core.platform import Kind
from offcert.core.result import COMPUTING, Bound, Infeasibility
from offcert.proofs.kinds.computed import Computed
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers

# An amount that is never reached. By definition.
_NEVER = -1


class Availability:
    """Data that a link may move; items are added and taken away.

    A link that moves what is there in the order in which it became available, bit by bit, is idle
    last just before some item appears, and from then on works without a pause. So `amount` bytes
    take the largest ``ready + (amount - bytes before it) * unit`` over the items that it gets to. A
    tree over the items keeps, for each of its nodes, the bytes and the largest
    ``ready - bytes before it in the node * unit``: every call takes O(log n).

    Parameters
    ----------
    order : sequence of int
        All items, numbered from 0, in the order in which they become available.
    unit : int
        Time that a byte takes.
    """

    def __init__(self, order: Sequence[int], unit: int) -> None:
        self._unit = unit
        self._width = 1 << max(0, len(order) - 1).bit_length()
        self._leaf = [0] * len(order)
        for place, item in enumerate(order):
            self._leaf[item] = self._width + place
        self._bytes = [0] * (2 * self._width)
        # Without a largest value, where nothing is in a node.
        self._latest: list[int | None] = [None] * (2 * self._width)

    def put(self, item: int, ready: int, size: int) -> None:
        """Add an item that is available from `ready` on; not before those that it follows."""
        self._set(self._leaf[item], size, ready)

    def take_away(self, item: int) -> None:
        """Take an item away."""
        self._set(self._leaf[item], 0, None)

    def _set(self, node: int, size: int, latest: int | None) -> None:
        sums, latests, unit = self._bytes, self._latest, self._unit
        sums[node], latests[node] = size, latest
        node >>= 1
        while node:
            one, other = latests[2 * node], latests[2 * node + 1]
            if other is not None:
                other -= sums[2 * node] * unit
                one = other if one is None or other > one else one
            sums[node] = sums[2 * node] + sums[2 * node + 1]
            latests[node] = one
            node >>= 1

    def time_to_move(self, amount: int) -> int:
        """Return when `amount` bytes have been moved: at least 1, at most all that are there."""
        sums, latests, unit = self._bytes, self._latest, self._unit
        node, before, latest = 1, 0, 0
        while node < self._width:
            node *= 2
            if before + sums[node] < amount:
                known = latests[node]
                if known is not None:
                    latest = max(latest, known - before * unit)
                before += sums[node]
                node += 1
        known = latests[node]
        if known is not None:
            latest = max(latest, known - before * unit)
        return latest + amount * unit


# Units up to which subset sums are told apart. By definition: the bounds depend on it.
FINEST = 1 << 24
# Sizes whose sums are searched for an amount before all sums are listed. Arbitrary.
_FEW = 40


@dataclass(frozen=True)
class HeadsAndTails:
    """Times that no schedule can beat, one entry an operation, in ticks."""

    heads: tuple[Fraction, ...]  # Earliest start of each operation.
    # Least time from the start of each operation to the end of the step.
    tails: tuple[Fraction, ...]

    @property
    def bound(self) -> int:
        """The least makespan that all heads and tails allow, rounded up to whole ticks."""
        return max(math.ceil(h + t) for h, t in zip(self.heads, self.tails, strict=True))


def infeasibility(problem: Problem) -> Infeasibility | None:
    """Return the operation that lacks most memory even if all else has left, or None.

    The condition is exact: with unlimited time, everything that an operation does not use can
    leave before it starts, so a schedule exists if every operation fits in this sense. Where
    computations may run again it is sufficient: what a single one reads and writes does not fit.

    Where memory is minimised it is the computing as a whole that may lack ticks: with as much
    memory as all takes that runs once, nothing has to wait, so that no deadline but one below the
    computing time is missed.
    """
    if problem.minimise is Minimise.MEMORY:
        return _too_long(problem)
    if problem.recompute is not Recompute.NONE and problem.computed is not None:
        return _too_large(problem.computed, problem.platform.memory)
    trace = problem.trace
    memory = problem.platform.memory
    worst = Infeasibility(-1, "the start", trace.resident_at_start, 0)
    if trace.resident_at_start > memory:
        worst = Infeasibility(
            -1, "the start", trace.resident_at_start, trace.resident_at_start - memory
        )
    for index, needed in enumerate(trace.least_demand):
        if needed - memory > worst.lacking:
            name = trace.operations[index].name
            worst = Infeasibility(index, name, needed, needed - memory)
    return worst if worst.lacking > 0 else None


def _too_long(problem: Problem) -> Infeasibility | None:
    """Return by how many ticks the deadline is less than the computing time, or None."""
    needed, deadline = problem.trace.compute_time, problem.deadline
    if deadline is None or needed <= deadline:
        return None
    return Infeasibility(-1, COMPUTING, needed, needed - deadline)


def _too_large(network: Network, memory: int) -> Infeasibility | None:
    """Return the computation, or the start, that alone takes too much memory, or None."""
    at_start = network.size_of(sources(network))
    needed, negated = max((at_start, 1), *((own, -i) for i, own in enumerate(network.own_memory)))
    if needed <= memory:
        return None
    name = "the start" if negated > 0 else network.computations[-negated].name
    return Infeasibility(-negated, name, needed, needed - memory)


def required_absent(
    problem: Problem, subset_sum: bool = False, operations: Collection[int] | None = None
) -> list[int]:
    """Return, for each operation, the bytes that must be absent while it runs.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    subset_sum : bool
        Round up to a sum of sizes of tensors that may be absent then. Valid for atomic transfers,
        where a tensor is absent as a whole or not at all (NOTES, §1).
    operations : collection of int, optional
        Round at these only; by default at all.

    Returns
    -------
    list of int
        Bytes, at least 0.
    """
    trace = problem.trace
    need = [max(0, demand - problem.platform.memory) for demand in trace.demand]
    if subset_sum:
        for operation in range(len(trace)) if operations is None else operations:
            if need[operation]:
                gaps = zip(trace.gaps, trace.gap_sizes, strict=True)
                sizes = sorted(size for gap, size in gaps if gap.spans(operation))
                need[operation] = least_subset_sum(tuple(sizes), need[operation])
    return need


@lru_cache(maxsize=1 << 14)
def least_subset_sum(sizes: tuple[int, ...], amount: int) -> int:
    """Return a lower bound on the least sum of a subset of `sizes` that is at least `amount`.

    It is exact unless the sum of `sizes`, in units of their greatest common divisor, exceeds
    ``FINEST``. Then each size is rounded down to a coarser unit, which can only make the sum found
    smaller, and the answer is still at least `amount`.

    Parameters
    ----------
    sizes : tuple of int
        Positive.
    amount : int
        At most the sum of `sizes`.
    """
    if amount <= 0:
        return 0
    unit = math.gcd(*sizes)
    slack = 0
    if sum(sizes) > FINEST * unit:
        unit = -(-sum(sizes) // FINEST)
        slack = len(sizes) * (unit - 1)
    units = [size // unit for size in sizes]
    target = max(0, -(-(amount - slack) // unit))
    if not _is_sum(units, target):
        target = _least_sum(units, target)
    return max(amount, target * unit)


def _is_sum(units: Sequence[int], target: int) -> bool:
    """Whether some subset makes `target` exactly; False may also mean that none was found.

    Of many sizes nearly every amount is a sum, and a few of them show it: the others, the largest
    first, make up the amount but for about half of what the few have, and these make the rest.
    """
    distinct = sorted(set(units))
    few = distinct[:: max(1, len(distinct) // _FEW)]
    others = Counter(units) - Counter(few)
    rest, half = target, sum(few) // 2
    for size in sorted(others, reverse=True):
        copies = min(others[size], max(0, rest - half) // size) if size else 0
        rest -= copies * size
    return bool(subset_sums(few, rest) >> rest & 1)


def _least_sum(units: Sequence[int], target: int) -> int:
    """Return the least sum of a subset that is at least `target`.

    The subset that is left out has the greatest sum of at most the rest; of the two searches, the
    one among smaller sums is taken.
    """
    most, rest = target + max(units), sum(units) - target
    if rest <= most:
        return sum(units) - (subset_sums(units, rest).bit_length() - 1)
    # Without its last member, whatever is just enough would not be: so the answer is below `most`.
    above = subset_sums(units, most) >> target
    return target + (above & -above).bit_length() - 1


def subset_sums(units: Iterable[int], most: int | None = None) -> int:
    """Return the sums of subsets, at most `most` if it is given: bit k says whether one makes k."""
    limit = math.inf if most is None else most
    sums, total, window = 1, 0, -1 if most is None else (1 << (most + 1)) - 1
    for size, copies in Counter(units).items():
        # Any number of equal sizes is a sum of batches of 1, 2, 4, … and a rest.
        batch = 1
        while copies > 0 and size <= limit:
            batch = min(batch, copies)
            sums |= sums << (size * batch)
            total += size * batch
            if total > limit:
                sums &= window
            copies -= batch
            batch *= 2
    return sums


def heads_and_tails(problem: Problem, required: Sequence[int]) -> HeadsAndTails:
    """Return the earliest start and the least tail of each operation.

    Before an operation starts, ``required`` bytes of tensors that may be absent while it runs must
    have left, each byte once, one after the other over the link, and none before its writer has
    ended. So the operation cannot start before a link that serves only those tensors, in the order
    in which they become available and bit by bit, has moved that many bytes. After it has ended,
    the same bytes must return before the operations that close their gaps: the mirror image, at the
    rate of the other direction. The argument holds for every kind of transfer, any trace, both
    kinds of link, and for schedules in which prefetches precede later offloads.

    On nested traces (chains, networks) with fractional transfers the largest head plus tail is the
    optimum: the offloading paper's Theorem 2, with its Lemma 1 repaired as in NOTES, §1.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    required : sequence of int
        Bytes, from `required_absent`.
    """
    trace = problem.trace
    out, back = (problem.platform.rate(kind) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
    count = len(trace)
    gaps, sizes = trace.gaps, trace.gap_sizes
    entering, leaving = trace.gaps_entering, trace.gaps_leaving
    writers = [trace.tensors[gap.tensor].uses[0] for gap in gaps]
    # In parts of a tick that make every time whole: a byte takes `rate.denominator` of them.
    heads = [0] * count
    ends = [0] * (count + 1)  # the last entry is that of what is resident at the start
    link = Availability(sorted(range(len(gaps)), key=writers.__getitem__), out.denominator)
    for operation in range(count):
        for gap in leaving[operation]:
            link.take_away(gap)
        for gap in entering[operation]:
            link.put(gap, ends[writers[gap]], sizes[gap])
        earliest = ends[operation - 1]
        if required[operation]:
            earliest = max(earliest, link.time_to_move(required[operation]))
        heads[operation] = earliest
        ends[operation] = earliest + trace.durations[operation] * out.numerator
    tails = [0] * (count + 1)
    link = Availability(
        sorted(range(len(gaps)), key=lambda gap: -gaps[gap].after), back.denominator
    )
    for operation in reversed(range(count)):
        for gap in leaving[operation + 1] if operation + 1 < count else ():
            link.put(gap, tails[operation + 1], sizes[gap])
        for gap in entering[operation + 1] if operation + 1 < count else ():
            link.take_away(gap)
        rest = tails[operation + 1]
        if required[operation]:
            rest = max(rest, link.time_to_move(required[operation]))
        tails[operation] = rest + trace.durations[operation] * back.numerator
    return HeadsAndTails(
        tuple(Fraction(head, out.numerator) for head in heads),
        tuple(Fraction(tail, back.numerator) for tail in tails[:-1]),
    )


def whole_tensors_count(problem: Problem) -> bool:
    """Return whether Prop. 3 holds with amounts rounded up to sums of whole tensors.

    With atomic transfers it does, as less than whole tensors cannot be absent. With interruptible
    ones less can, but all of every tensor that leaves at all must leave and return sometime; a
    simplex link is busy with that for as long, a duplex one may do both at once.
    """
    if problem.transfers is Transfers.INTERRUPTIBLE:
        return not problem.platform.duplex
    return problem.transfers is Transfers.ATOMIC


def prop3_bound(problem: Problem, subset_sum: bool = False) -> Bound:
    """Return the bound of Prop. 3 of the offloading paper.

    The step lasts at least as long as all operations, and at least as long as the largest amount
    that must be absent takes to leave and come back: no byte of it can do both at once, and both
    must happen on either side of an operation, on a duplex link too.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    subset_sum : bool
        Round the amounts up to reachable subset sums first; see `whole_tensors_count`.
    """
    amount = max(required_absent(problem, subset_sum))
    move = math.ceil(sum(amount / problem.platform.rate(kind) for kind in Kind))
    name = "prop3-subset-sum" if subset_sum else "prop3"
    return proved(name, max(problem.trace.compute_time, move), Computed())


def fractional_bound(problem: Problem, subset_sum: bool = False) -> Bound:
    """Return the largest head plus tail: on nested traces, the fractional optimum.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    subset_sum : bool
        Round the amounts up to reachable subset sums first; only for atomic transfers.
    """
    times = heads_and_tails(problem, required_absent(problem, subset_sum))
    name = "fractional-subset-sum" if subset_sum else "fractional"
    return proved(name, times.bound, Computed())
