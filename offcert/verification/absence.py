"""Tensors that may be absent during each operation, and bytes that must be, for verification.

Both are derived again from the definition of the problem, from the uses of the tensors alone, and
so is the least that whole tensors can make up (`Covers`). No code is shared with what finds bounds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, wraps
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem

# Units up to which subset sums are told apart. By definition: the bounds depend on it.
FINEST = 1 << 24
# A multiplier and a mask of 32 bits: multiplied by an odd number, neighbouring sizes come to lie
# far apart. Given by Knuth's multiplicative hash, the golden ratio in 32 bits.
_MIXING, _WORD = 0x9E3779B1, 0xFFFFFFFF
# Sizes of which the pairs are looked at. Arbitrary.
_PAIRED = 64
# Sizes whose sums are listed one by one; fewest and most sizes of which all sums are looked at, and
# the units up to which. Arbitrary.
_LISTED = 14
_FEWEST, _MOST, _FAR = 24, 64, 1 << 20

Sizes = NDArray[np.int64]


def cheapest_cover(sizes: list[int], need: int) -> int:
    """Return the least subset sum of `sizes` that is at least `need`, or a lower bound on it.

    Sums are counted in units of the greatest common divisor, or, where they would need more than
    ``FINEST`` units, in coarser ones: then each size counts as its whole units only, so a subset of
    `n` sizes is taken for up to ``n * (unit - 1)`` less than it is, and the answer is no more than
    the truth.
    """
    return 0 if need == 0 else _cover(tuple(sorted(sizes)), need)


# Those who examine the two sides of a cut ask for the same covers again and again.
@lru_cache(maxsize=1 << 12)
def _cover(sizes: tuple[int, ...], need: int) -> int:
    covers = Covers(sizes)
    covers.present[:] = True
    return covers.cheapest(need)


class Covers:
    """The covers of a set that changes, among sizes that are known: each as `cheapest_cover`.

    The sizes are positive, their sum below 2**61; ``place`` says where in ``present`` each of them
    stands, and ``present`` whether the set has it: none at first, to be set by the caller. Sums are
    told apart up to `finest` units.
    """

    def __init__(self, sizes: Sequence[int], finest: int | None = None) -> None:
        self.finest = FINEST if finest is None else finest
        # Small and large come mixed, whatever order the sizes have.
        keys = [(size * _MIXING & _WORD, size, index) for index, size in enumerate(sizes)]
        order = [index for *_, index in sorted(keys)]
        self.place = [0] * len(sizes)
        for place, index in enumerate(order):
            self.place[index] = place
        self.present = np.zeros(len(sizes), dtype=np.bool_)
        self._sizes = np.array([sizes[index] for index in order], dtype=np.int64)
        self._sums: tuple[bytes, int] = (b"", 1)

    def cheapest(self, need: int) -> int:
        """Return the least sum of a subset that is at least `need`, as `cheapest_cover` does."""
        if need == 0:
            return 0
        sizes = self._sizes[self.present]
        total = int(sizes.sum())
        divisor = int(np.gcd.reduce(sizes))
        coarse = total > self.finest * divisor
        unit = -(-total // self.finest) if coarse else divisor
        slack = len(sizes) * (unit - 1) if coarse else 0
        least = max(0, -(-(need - slack) // unit))
        units = sizes // unit
        # Coarse sums from there up to the need count as the need, so one of these is enough.
        if not _reached(units, least, max(least, need // unit)):
            least = self._least_sum(units, least)
        return max(need, least * unit)

    def _least_sum(self, units: Sizes, amount: int) -> int:
        """Return the least sum of a subset that is at least `amount`."""
        if len(units) <= _LISTED:
            listed = units[:0].sum(keepdims=True)
            for size in units:
                listed = np.concatenate((listed, listed + size))
            return int(listed[listed >= amount].min())
        total = int(units.sum())
        if 2 * amount > total:
            # What the subset leaves out has the greatest sum of at most the rest.
            sums = self._all_sums(units) & ((1 << (total - amount + 1)) - 1)
            return total - (sums.bit_length() - 1)
        sums = self._all_sums(units) >> amount
        return amount + (sums & -sums).bit_length() - 1

    def _all_sums(self, units: Sizes) -> int:
        """Return all sums of subsets up to half of the total and one size more, as bits."""
        key = units.tobytes()
        if self._sums[0] != key:
            self._sums = key, _sums(Counter(units.tolist()))
        return self._sums[1]


def _sums(counted: Counter[int]) -> int:
    """Return which sums subsets have, up to half of the total and the largest size: bit k for k."""
    # A least sum that is enough would not be without its last member: no larger sum is asked for.
    width = counted.total() and sum(counted.elements()) // 2 + max(counted) + 1
    window = (1 << width) - 1
    sums, reach = 1, 0
    for units, copies in counted.items():
        batch = 1
        while copies and units:
            # Any number of equal sizes is a sum of batches of 1, 2, 4, … and a rest.
            batch = min(batch, copies)
            sums |= sums << (units * batch)
            reach += units * batch
            if reach > width:
                sums &= window
            copies -= batch
            batch *= 2
    return sums


def _reached(units: Sizes, least: int, most: int) -> bool:
    """Find a subset whose sum is in a range; False if simple ways find none.

    Whatever fits is taken, in the order given; then some that were taken are exchanged for some
    that were not, one for one or two for two; then the smallest make up what the others leave.
    """
    missing, taken, left = _take(units, most)
    if most - missing >= least:
        return True
    lacking = missing - (most - least), missing
    gone, kept = np.unique(taken), np.unique(left)
    return (
        _exchanged(gone, kept, *lacking)
        or _exchanged(_pairs(gone), _pairs(kept), *lacking)
        or _filled(units, least, most)
    )


def _take(units: Sizes, amount: int) -> tuple[int, Sizes, Sizes]:
    """Take whatever fits; return what is missing then, what was taken and what was left."""
    rest, taken, left = units, [units[:0]], [units[:0]]
    while len(rest):
        sums = np.cumsum(rest)
        fit = int(np.searchsorted(sums, amount, side="right"))
        if fit:
            amount -= int(sums[fit - 1])
            taken.append(rest[:fit])
        rest = rest[fit:]
        left.append(rest[rest > amount])
        rest = rest[rest <= amount]
    return amount, np.concatenate(taken), np.concatenate(left)


def _pairs(sizes: Sizes) -> Sizes:
    some = sizes[:: max(1, len(sizes) // _PAIRED)]
    first, second = np.triu_indices(len(some), 1)
    return np.unique(some[first] + some[second])


def _exchanged(gone: Sizes, kept: Sizes, least: int, most: int) -> bool:
    """Whether one of `kept` is larger than one of `gone` by `least` to `most`; both increase."""
    if not len(kept):
        return False
    found = np.searchsorted(kept, gone + least)
    inside = found < len(kept)
    return bool(np.any(kept[found[inside]] <= gone[inside] + most))


def _filled(units: Sizes, least: int, most: int) -> bool:
    """Whether some small units fill the rest that larger ones leave of the range."""
    if len(units) <= _FEWEST:
        return False
    distinct, first = np.unique(units, return_index=True)
    # So many that their sums leave no holes, and reach as far as what the others leave.
    count = max(_FEWEST, int(np.searchsorted(np.cumsum(distinct), _FAR)))
    few = np.sort(first[: min(count, _MOST)])
    half = int(units[few].sum()) // 2
    before = max(0, most - half)
    missing, *_ = _take(np.sort(np.delete(units, few))[::-1], before)
    missing += most - before
    sums = 1
    for size in units[few].tolist():
        sums |= sums << size
    inside = sums & ((1 << (missing + 1)) - 1)
    return inside.bit_length() - 1 >= missing - (most - least)


# Units that the sums of large tensors are told apart in, at most. By definition: finders keep to
# it.
_MOST_UNITS = 1 << 26


def _for_the_last_problem(
    function: Callable[[Problem], tuple[int, ...]],
) -> Callable[[Problem], tuple[int, ...]]:
    """Keep the answer for the last problem: all bounds of a certificate ask about the same."""
    last: list[tuple[Problem, tuple[int, ...]]] = []

    @wraps(function)
    def answer(problem: Problem) -> tuple[int, ...]:
        if not last or last[0][0] is not problem:
            last[:] = [(problem, function(problem))]
        return last[0][1]

    return answer


class Absence(NamedTuple):
    """Operations during which a tensor may be absent: those between two of its uses."""

    size: int  # Bytes of the tensor
    writer: int  # The operation that writes it; -1 if it is there at the start
    # The uses.
    before: int
    after: int


def absences(trace: Trace) -> list[Absence]:
    """Return the absences that are possible: between two uses of a tensor that may leave."""
    return [
        Absence(tensor.size, tensor.uses[0], before, after)
        for tensor in trace.tensors
        if tensor.evictable and tensor.size > 0
        for before, after in zip(tensor.uses, tensor.uses[1:], strict=False)
        if after > before + 1
    ]


def _over_operations(trace: Trace, rows: Iterator[tuple[int, int, int]]) -> list[int]:
    """Return, for each operation, the sum of the sizes in rows of (size, first, end)."""
    change = [0] * (len(trace.operations) + 1)
    for size, first, end in rows:
        change[max(first, 0)] += size
        change[end] -= size
    return list(accumulate(change[:-1]))


def _held(trace: Trace) -> list[int]:
    """Return the bytes on the device during each operation if nothing leaves."""
    live = _over_operations(trace, ((t.size, t.uses[0], t.uses[-1] + 1) for t in trace.tensors))
    return [
        held + operation.workspace for held, operation in zip(live, trace.operations, strict=True)
    ]


def least_memory(problem: Problem) -> tuple[int, int]:
    """Return the least memory with which anything can run, and the operation that decides it.

    The operation is -1 if what is resident at the start decides.
    """
    trace = problem.trace
    removable = _over_operations(
        trace, ((each.size, each.before + 1, each.after) for each in absences(trace))
    )
    decisive = -1
    least = sum(tensor.size for tensor in trace.tensors if tensor.uses[0] < 0)
    for index, (held, gone) in enumerate(zip(_held(trace), removable, strict=True)):
        if held - gone > least:
            least, decisive = held - gone, index
    return least, decisive


@_for_the_last_problem
def needs(problem: Problem) -> tuple[int, ...]:
    """Return the bytes that must be absent during each operation."""
    return tuple(max(held - problem.platform.memory, 0) for held in _held(problem.trace))


@_for_the_last_problem
def whole_tensors(problem: Problem) -> tuple[int, ...]:
    """Return the needs, raised to what whole tensors can make up."""
    known = absences(problem.trace)
    return _covered(known, Covers([each.size for each in known]), needs(problem))


def large_tensors(problem: Problem, smallest: int) -> tuple[int, ...] | None:
    """Return the needs, raised to what large tensors make up as wholes, and others byte by byte.

    Tensors are large from `smallest` bytes on. None if there are more sums of them than are told
    apart.
    """
    known = absences(problem.trace)
    large = [each for each in known if each.size >= smallest]
    sizes = [each.size for each in large]
    if sum(sizes) > _MOST_UNITS * math.gcd(*sizes):
        return None
    others = ((each.size, each.before + 1, each.after) for each in known if each.size < smallest)
    amounts = needs(problem)
    byte_by_byte = _over_operations(problem.trace, others)
    rest = [max(0, a - b) for a, b in zip(amounts, byte_by_byte, strict=True)]
    covered = _covered(large, Covers(sizes, _MOST_UNITS), rest)
    return tuple(map(max, amounts, covered))


def _covered(known: list[Absence], covers: Covers, amounts: Sequence[int]) -> tuple[int, ...]:
    """Return, for each operation, the cheapest cover among what may be absent then."""
    begin: list[list[int]] = [[] for _ in amounts]
    end: list[list[int]] = [[] for _ in amounts]
    for index, each in enumerate(known):
        begin[each.before + 1].append(covers.place[index])
        end[each.after].append(covers.place[index])
    found = []
    for operation, amount in enumerate(amounts):
        covers.present[begin[operation]] = True
        covers.present[end[operation]] = False
        found.append(covers.cheapest(amount))
    return tuple(found)
