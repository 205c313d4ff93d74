"""Tensors that may and bytes that must be absent during each operation, for verification.

Derived again from the definition of the problem, from the uses of the tensors alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import accumulate
from typing import NamedTuple

from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem
from offcert.verify.common.cover import Covers

# Units that the sums of large tensors are told apart in, at most. By definition: finders keep to
# it.
_MOST_UNITS = 1 << 26


def _for_the_last_problem(
    function: Callable[[Problem], tuple[int, ...]],
) -> Callable[[Problem], tuple[int, ...]]:
    """Keep the last answer: every bound of a certificate asks about the same problem."""
    last: list[tuple[Problem, tuple[int, ...]]] = []

    @wraps(function)
    def answer(problem: Problem) -> tuple[int, ...]:
        if not last or last[0][0] is not problem:
            last[:] = [(problem, function(problem))]
        return last[0][1]

    return answer


class Absence(NamedTuple):
    """Operations during which a tensor may be absent: those between two of its uses.

    Attributes
    ----------
    size : int
        Bytes of the tensor.
    writer : int
        The operation that writes it; -1 if it is there at the start.
    before, after : int
        The uses.
    """

    size: int
    writer: int
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

    Parameters
    ----------
    problem : Problem
        Any problem.
    smallest : int
        Bytes of a tensor that counts as large.

    Returns
    -------
    tuple of int or None
        None if there are more sums of large tensors than are told apart.
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
