"""Re-computation of proved bounds, in rationals, sharing no code with what found them.

Everything is derived again from the definition of the problem: what an operation needs, which
tensors may be absent meanwhile, and how fast a link can move them. Clarity counts here, not speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from offcert.certify.cover import cheapest_cover
from offcert.certify.fluid_proof import examine
from offcert.certify.heads_check import ends_fault, heads_fault
from offcert.certify.matched_check import matched_fault
from offcert.certify.outward_check import outward_fault
from offcert.certify.pivot_check import pivot_fault
from offcert.certify.pivot_outward_check import pivot_outward_fault
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.plan import Kind
from offcert.core.platform import Link
from offcert.core.problem import Problem, Transfers
from offcert.core.result import Bound
from offcert.core.trace import Tensor

# Bounds whose proof is a search, which may take long.
SEARCHED = ("pivot", "pivot-outward", "atomic-heads", "matched-heads", "outward")


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
    if bound.method == "outward":
        return _recheck_outward(bound, problem)
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
    needs = _whole_tensors(problem) if whole else _needs(problem)
    return examine(proof, bound.value, problem, needs, branching=branching)


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
        "prop3": lambda p: _prop3(p, _needs(p)),
        "prop3-subset-sum": lambda p: _prop3(p, _whole_tensors(p)),
        "fractional": lambda p: _fluid(p, _needs(p)),
        "fractional-subset-sum": lambda p: _fluid(p, _whole_tensors(p)),
    }
    if method not in known:
        return None
    if least_memory(problem)[0] > problem.platform.memory:
        return None
    return known[method](problem)


def least_memory(problem: Problem) -> tuple[int, int]:
    """Return the least memory with which anything can run, and the operation that decides it.

    The operation is -1 if what is resident at the start decides.
    """
    trace = problem.trace
    decisive = -1
    least = sum(tensor.size for tensor in trace.tensors if tensor.uses[0] < 0)
    for index, operation in enumerate(trace.operations):
        held = operation.workspace
        for tensor in trace.tensors:
            if tensor.uses[0] <= index <= tensor.uses[-1] and not _may_be_absent(tensor, index):
                held += tensor.size
        if held > least:
            least, decisive = held, index
    return least, decisive


def _may_be_absent(tensor: Tensor, operation: int) -> bool:
    uses = tensor.uses
    inside = uses[0] < operation < uses[-1] and operation not in uses
    return inside and tensor.evictable and tensor.size > 0


def _absentees(problem: Problem, operation: int) -> list[tuple[int, int, int]]:
    """Return (size, writer, next use) of each tensor that may be absent during `operation`."""
    return [
        (tensor.size, tensor.uses[0], min(use for use in tensor.uses if use > operation))
        for tensor in problem.trace.tensors
        if _may_be_absent(tensor, operation)
    ]


def _needs(problem: Problem) -> list[int]:
    """Return the bytes that must be absent during each operation."""
    needs = []
    for index, operation in enumerate(problem.trace.operations):
        held = operation.workspace + sum(
            tensor.size
            for tensor in problem.trace.tensors
            if tensor.uses[0] <= index <= tensor.uses[-1]
        )
        needs.append(max(held - problem.platform.memory, 0))
    return needs


def _whole_tensors(problem: Problem) -> list[int]:
    """Return the needs, raised to what whole tensors can make up."""
    return [
        cheapest_cover([size for size, _, _ in _absentees(problem, index)], need)
        for index, need in enumerate(_needs(problem))
    ]


def _prop3(problem: Problem, needs: list[int]) -> int:
    amount = Fraction(max(needs))
    leaving = amount / problem.platform.rate(Kind.OFFLOAD)
    returning = amount / problem.platform.rate(Kind.PREFETCH)
    return max(sum(problem.trace.durations), math.ceil(leaving + returning))


def _fluid(problem: Problem, needs: list[int]) -> int:
    """Return the longest of (earliest start + least rest) over the operations."""
    durations = problem.trace.durations
    to_host = problem.platform.rate(Kind.OFFLOAD)
    to_device = problem.platform.rate(Kind.PREFETCH)
    count = len(durations)
    absentees = [_absentees(problem, index) if needs[index] else [] for index in range(count)]
    # In ticks times the numerator of a rate, all times of its direction are whole.
    ends = {-1: 0}
    starts = []
    for index in range(count):
        ready = [(ends[writer], size) for size, writer, _ in absentees[index]]
        starts.append(max(ends[index - 1], _moved_by(ready, needs[index], to_host.denominator)))
        ends[index] = starts[index] + durations[index] * to_host.numerator
    rests = {count: 0}
    for index in reversed(range(count)):
        ready = [(rests[due], size) for size, _, due in absentees[index]]
        rests[index] = durations[index] * to_device.numerator + max(
            rests[index + 1], _moved_by(ready, needs[index], to_device.denominator)
        )
    return max(
        math.ceil(
            Fraction(starts[index], to_host.numerator) + Fraction(rests[index], to_device.numerator)
        )
        for index in range(count)
    )


def _moved_by(ready: list[tuple[int, int]], need: int, per_byte: int) -> int:
    """Return the first time at which `need` bytes can have passed the link."""
    # The link is last idle just before some tensor appears; from then on it works without a pause.
    # Trying every such moment and taking the latest finish needs no simulation.
    if need == 0:
        return 0
    finish, before = 0, 0
    for time, size in sorted(ready):
        if before < need:
            # Of several that appear at once, the first says most.
            finish = max(finish, time + (need - before) * per_byte)
        before += size
    return finish
