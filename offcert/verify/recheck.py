"""Re-computation of proved bounds, in rationals, sharing no code with what found them.

Everything is derived again from the definition of the problem: what an operation needs, which
tensors may be absent meanwhile, and how fast a link can move them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.plan import Kind
from offcert.core.platform import Link
from offcert.core.problem import Problem, Transfers
from offcert.core.result import Bound
from offcert.verify.common.absence import (
    large_tensors,
    least_memory,
    needs,
    whole_tensors,
)
from offcert.verify.common.fluid_times import rests, starts
from offcert.verify.fluid.proof import examine
from offcert.verify.fractional.returned import with_returned_apart
from offcert.verify.heads.check import ends_fault, heads_fault
from offcert.verify.matched.check import matched_fault
from offcert.verify.matched.joined import with_joined_gaps
from offcert.verify.outward.check import outward_fault
from offcert.verify.pivot.check import pivot_fault
from offcert.verify.pivot_outward.check import pivot_outward_fault
from offcert.verify.sums.check import sums_fault

# Bounds whose proof is a search, which may take long.
SEARCHED = (
    "pivot",
    "pivot-outward",
    "atomic-heads",
    "matched-heads",
    "matched-heads-joined",
    "outward",
)


def recheck(bound: Bound, problem: Problem) -> str | None:
    """Compute a proved bound again; return None if it holds, or what is wrong with it.

    Parameters
    ----------
    bound : Bound
        Claimed with evidence ``proved``.
    problem : Problem
        The certificate's.
    """
    if bound.method == "pivot":
        return _recheck_pivot(bound, problem)
    if bound.method == "pivot-outward":
        return _recheck_pivot_outward(bound, problem)
    if bound.method in ("fluid-lp", "fluid-milp"):
        return _recheck_fluid(bound, problem)
    if bound.method == "atomic-heads":
        return _recheck_heads(bound, problem)
    if bound.method == "matched-heads":
        return _recheck_matched(bound, problem)
    if bound.method == "matched-heads-joined":
        if problem.transfers is not Transfers.ATOMIC:
            return f"no proof is known for a bound of this kind with {problem.transfers} transfers"
        return _recheck_matched(bound, with_joined_gaps(problem))
    if bound.method == "outward":
        return _recheck_outward(bound, problem)
    if bound.method == "fractional-large-tensors":
        return _recheck_large(bound, problem)
    if bound.method == "fractional-large-tensors-returns":
        return _recheck_returns(bound, problem)
    if bound.method == "exact-sums":
        return _recheck_sums(bound, problem)
    value = recompute(bound.method, problem)
    if value is None:
        return f"no proof is known for a bound of this kind with {problem.transfers} transfers"
    if value != bound.value:
        return f"the document says {bound.value}, but the computation gives {value}"
    if bound.details:
        return f"it needs no details, but has {sorted(bound.details)}"
    return None


def _recheck_pivot(bound: Bound, problem: Problem) -> str | None:
    fields = Fields(dict(bound.details), "details")
    try:
        pivot = fields.integer("pivot", -1)
        limits = fields.integer("front_limit"), fields.integer("back_limit")
        once = fields.integers("once", 0)
        # What heads and tails have established about the two sides, if that was needed.
        known = fields.optional("ends", dict)
        fields.finish()
        ends = None if known is None else _ends(Fields(known, "details.ends"))
    except InputError as error:
        return str(error)
    times = (0, 0)
    fault = None
    if ends is not None:
        times = ends[0]
        fault = ends_fault(problem, pivot, *ends, place="details.ends")
    fault = fault or pivot_fault(problem, pivot, limits, bound.value, once, ends=times)
    return fault and f"the search it names does not establish {bound.value}: {fault}"


def _recheck_pivot_outward(bound: Bound, problem: Problem) -> str | None:
    fields = Fields(dict(bound.details), "details")
    try:
        pivot, side = fields.integer("pivot", -1), fields.integer("side", 0)
        limit, free_below = fields.integer("limit"), fields.integers("free_below", 1)
        known = fields.get("ends", dict)
        fields.finish()
        ends = _ends(Fields(known, "details.ends"))
    except InputError as error:
        return str(error)
    fault = ends_fault(problem, pivot, *ends, place="details.ends")
    advice = side, limit, bound.value, free_below, ends[0]
    fault = fault or pivot_outward_fault(problem, pivot, *advice)
    return fault and f"the search it names does not establish {bound.value}: {fault}"


def _recheck_fluid(bound: Bound, problem: Problem) -> str | None:
    fields = Fields(dict(bound.details), "details")
    try:
        whole, proof = fields.get("whole", bool), fields.get("proof", str)
        fields.finish()
    except InputError as error:
        return str(error)
    branching = bound.method == "fluid-milp"
    if whole and problem.transfers is not Transfers.ATOMIC:
        return f"details.whole must be false with {problem.transfers} transfers"
    if branching and problem.transfers is Transfers.FRACTIONAL:
        return "no proof of this kind is known with fractional transfers"
    if least_memory(problem)[0] > problem.platform.memory:
        return "no schedule exists, so there is no bound"
    amounts = whole_tensors(problem) if whole else needs(problem)
    return examine(proof, bound.value, problem, amounts, branching=branching)


def _recheck_large(bound: Bound, problem: Problem) -> str | None:
    fields = Fields(dict(bound.details), "details")
    try:
        smallest = fields.integer("smallest", 1)
        fields.finish()
    except InputError as error:
        return str(error)
    if problem.transfers is not Transfers.ATOMIC:
        return f"no proof is known for a bound of this kind with {problem.transfers} transfers"
    if least_memory(problem)[0] > problem.platform.memory:
        return "no schedule exists, so there is no bound"
    amounts = large_tensors(problem, smallest)
    if amounts is None:
        return f"tensors of at least {smallest} bytes have too many sums to be told apart"
    value = _fluid(problem, amounts)
    if value != bound.value:
        return f"the document says {bound.value}, but the computation gives {value}"
    return None


def _recheck_returns(bound: Bound, problem: Problem) -> str | None:
    """Check the bound on what is left when the time of forced returns is cut out."""
    if problem.transfers is not Transfers.ATOMIC:
        return f"no proof is known for a bound of this kind with {problem.transfers} transfers"
    if problem.platform.link is not Link.SIMPLEX:
        return "on a duplex link something else may be moved while a tensor has to return"
    rest, ticks = with_returned_apart(problem)
    if ticks > bound.value:
        return f"forced returns take {ticks} ticks, more than the bound"
    return _recheck_large(replace(bound, value=bound.value - ticks), rest)


def _recheck_sums(bound: Bound, problem: Problem) -> str | None:
    fields = Fields(dict(bound.details), "details")
    try:
        pivot, smallest = fields.integer("pivot", 0), fields.integer("smallest", 1)
        fields.finish()
    except InputError as error:
        return str(error)
    if problem.transfers is not Transfers.ATOMIC:
        return f"no proof is known for a bound of this kind with {problem.transfers} transfers"
    if pivot >= len(problem.trace):
        return f"details.pivot must be an operation, not {pivot}"
    if least_memory(problem)[0] > problem.platform.memory:
        return "no schedule exists, so there is no bound"
    return sums_fault(problem, pivot, smallest, bound.value)


def _recheck_heads(bound: Bound, problem: Problem) -> str | None:
    fields = Fields(dict(bound.details), "details")
    try:
        pivot = fields.integer("pivot", 0)
        ends = _ends(fields)
    except InputError as error:
        return str(error)
    fault = heads_fault(problem, pivot, *ends, bound.value)
    return fault and f"the search it names does not establish {bound.value}: {fault}"


def _recheck_matched(bound: Bound, problem: Problem) -> str | None:
    fields = Fields(dict(bound.details), "details")
    try:
        pivot = fields.integer("pivot", 0)
        unit, free_below = fields.integer("unit", 1), fields.integer("free_below", 0)
        levels = fields.integer_lists("levels", 1)
        # Tensors that need not move alike, if there are any.
        spare = 0 if fields.optional("spare", int) is None else fields.integer("spare", 0)
        ends = _ends(fields)
    except InputError as error:
        return str(error)
    fault = matched_fault(
        problem,
        pivot,
        *ends,
        bound.value,
        unit=unit,
        free_below=free_below,
        levels=levels,
        spare=spare,
    )
    return fault and f"the search it names does not establish {bound.value}: {fault}"


def _recheck_outward(bound: Bound, problem: Problem) -> str | None:
    fields = Fields(dict(bound.details), "details")
    try:
        pivot = fields.integer("pivot", 0)
        free_below, windows = fields.integers("free_below", 1), fields.integers("windows", 1)
        splits = fields.get("splits", list)
        for index, split in enumerate(splits):
            if not isinstance(split, list):
                return f"details.splits[{index}] must be a list, not {split!r:.60}"
        fields.finish()
    except InputError as error:
        return str(error)
    fault = outward_fault(problem, pivot, bound.value, free_below, windows, splits)
    return fault and f"the search it names does not establish {bound.value}: {fault}"


def _ends(
    fields: Fields,
) -> tuple[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]], tuple[int, int]]:
    """Read head and tail, the sizes counted for each, and their units; the rest must be read."""
    times = fields.integer("head", 0), fields.integer("tail", 0)
    counted = fields.integers("head_counted", 1), fields.integers("tail_counted", 1)
    units = fields.integer("head_unit", 1), fields.integer("tail_unit", 1)
    fields.finish()
    return times, counted, units


def recompute(method: str, problem: Problem) -> int | None:
    """Return the value that a combinatorial bound must have, or None if it is not known here.

    Parameters
    ----------
    method : str
        The bound's name in the certificate.
    problem : Problem
        The certificate's; a feasible one.
    """
    if method.endswith("-subset-sum") and problem.transfers is not Transfers.ATOMIC:
        # What leaves at all leaves and returns whole, one after the other on a simplex link.
        one_by_one = problem.platform.link is Link.SIMPLEX
        whole = problem.transfers is Transfers.INTERRUPTIBLE and one_by_one
        if method != "prop3-subset-sum" or not whole:
            return None
    known: dict[str, Callable[[Problem], int]] = {
        "prop3": lambda p: _prop3(p, needs(p)),
        "prop3-subset-sum": lambda p: _prop3(p, whole_tensors(p)),
        "fractional": lambda p: _fluid(p, needs(p)),
        "fractional-subset-sum": lambda p: _fluid(p, whole_tensors(p)),
    }
    if method not in known:
        return None
    if least_memory(problem)[0] > problem.platform.memory:
        return None
    return known[method](problem)


def _prop3(problem: Problem, amounts: Sequence[int]) -> int:
    amount = Fraction(max(amounts))
    leaving = amount / problem.platform.rate(Kind.OFFLOAD)
    returning = amount / problem.platform.rate(Kind.PREFETCH)
    return max(sum(problem.trace.durations), math.ceil(leaving + returning))


def _fluid(problem: Problem, amounts: Sequence[int]) -> int:
    """Return the longest of (earliest start + least rest) over the operations."""
    to_host = problem.platform.rate(Kind.OFFLOAD)
    to_device = problem.platform.rate(Kind.PREFETCH)
    # In ticks times the numerator of a rate, all times of its direction are whole.
    return max(
        math.ceil(Fraction(start, to_host.numerator) + Fraction(rest, to_device.numerator))
        for start, rest in zip(
            starts(problem, amounts, to_host), rests(problem, amounts, to_device), strict=True
        )
    )
