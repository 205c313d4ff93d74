"""Verification of bounds that are computed from the problem: Prop. 3 and fractional optima."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from offcert.core.plan import Kind
from offcert.core.platform import Link
from offcert.core.problem import Problem, Transfers
from offcert.proofs.kinds import Computed, LargeTensors
from offcert.verify.common.absence import large_tensors as rounded_up
from offcert.verify.common.absence import least_memory, needs, whole_tensors
from offcert.verify.common.fluid_times import rests, starts
from offcert.verify.fractional.returned import with_returned_apart
from offcert.verify.limits import Allowance

Amounts = Callable[[Problem], Sequence[int]]
Time = Callable[[Problem, Sequence[int]], int]

NO_SCHEDULE = "no schedule exists, so there is no bound"


def prop3(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
    """Return None if this is the bound of Proposition 3, or what is wrong."""
    return _compared("prop3", problem, value)


def prop3_whole(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
    """Return None if this is the bound of Proposition 3 with whole tensors, or what is wrong."""
    pausing = problem.transfers is not Transfers.ATOMIC
    if pausing and problem.platform.link is not Link.SIMPLEX:
        # What leaves at all leaves and returns whole, one after the other on a simplex link only.
        return "with transfers that may pause it holds on a simplex link only"
    return _compared("prop3-subset-sum", problem, value)


def fractional(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
    """Return None if this is the fractional optimum, or what is wrong."""
    return _compared("fractional", problem, value)


def fractional_whole(
    problem: Problem, value: int, proof: Computed, allowance: Allowance
) -> str | None:
    """Return None if this is the fractional optimum with whole tensors, or what is wrong."""
    return _compared("fractional-subset-sum", problem, value)


def large_tensors(
    problem: Problem, value: int, proof: LargeTensors, allowance: Allowance
) -> str | None:
    """Return None if this is the fractional optimum with large tensors whole, or what is wrong."""
    return _with_large(problem, value, proof.smallest)


def large_tensors_returns(
    problem: Problem, value: int, proof: LargeTensors, allowance: Allowance
) -> str | None:
    """Return None if this is the same on what is left without forced returns, or what is wrong."""
    rest, ticks = with_returned_apart(problem)
    return _with_large(rest, value, proof.smallest, ticks)


def _with_large(problem: Problem, value: int, smallest: int, beside: int = 0) -> str | None:
    """Compare a value with the fractional optimum with large tensors whole, and some ticks more."""
    if least_memory(problem)[0] > problem.platform.memory:
        return NO_SCHEDULE
    amounts = rounded_up(problem, smallest)
    if amounts is None:
        return f"details.smallest {smallest} leaves too many sums of tensors to be told apart"
    return _difference(value, beside + fluid_time(problem, amounts))


def recompute(method: str, problem: Problem) -> int:
    """Return the value of a bound that is computed from the problem alone, in ticks.

    Parameters
    ----------
    method : str
        Its name in the registry.
    problem : Problem
        A feasible one.
    """
    time, amounts = _PARTS[method]
    return time(problem, amounts(problem))


def _compared(method: str, problem: Problem, value: int) -> str | None:
    if least_memory(problem)[0] > problem.platform.memory:
        return NO_SCHEDULE
    return _difference(value, recompute(method, problem))


def _difference(value: int, found: int) -> str | None:
    if value == found:
        return None
    return f"the document says {value}, but the computation gives {found}"


def _link_time(problem: Problem, amounts: Sequence[int]) -> int:
    """Return the time of what must move at the worst operation, or that of computing."""
    amount = Fraction(max(amounts))
    leaving = amount / problem.platform.rate(Kind.OFFLOAD)
    returning = amount / problem.platform.rate(Kind.PREFETCH)
    return max(sum(problem.trace.durations), math.ceil(leaving + returning))


def fluid_time(problem: Problem, amounts: Sequence[int]) -> int:
    """Return the longest of (earliest start + least rest) over the operations, in ticks.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    amounts : sequence of int
        Bytes that must be absent during each operation.
    """
    to_host = problem.platform.rate(Kind.OFFLOAD)
    to_device = problem.platform.rate(Kind.PREFETCH)
    # In ticks times the numerator of a rate, all times of its direction are whole.
    return max(
        math.ceil(Fraction(start, to_host.numerator) + Fraction(rest, to_device.numerator))
        for start, rest in zip(
            starts(problem, amounts, to_host), rests(problem, amounts, to_device), strict=True
        )
    )


_PARTS: dict[str, tuple[Time, Amounts]] = {
    "prop3": (_link_time, needs),
    "prop3-subset-sum": (_link_time, whole_tensors),
    "fractional": (fluid_time, needs),
    "fractional-subset-sum": (fluid_time, whole_tensors),
}
