"""Proved bounds, established again: the registry says by whom.

Verifiers share no code with what finds bounds. They derive everything again from the definition of
the problem: what an operation needs, which tensors may be absent meanwhile, and how fast a link
moves them. Finders and verifiers state the same arguments twice, and that is on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from offcert.core.errors import InputError
from offcert.core.result import Bound, Evidence
from offcert.proofs.kinds.memory import MemoryByTime
from offcert.proofs.proof import Provable
from offcert.proofs.registry import PROOFS
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.verification.limits import UNLIMITED, Allowance


def recheck(
    bound: Bound,
    problem: Any,
    allowance: Allowance | None = None,
    proofs: Mapping[str, Provable] = PROOFS,
) -> str | None:
    """Establish a proved bound again; return None if it holds, or the fault of its proof.

    Parameters
    ----------
    bound : Bound
        Claimed with evidence ``proved``.
    problem : Problem, or that of another question
        The certificate's; a feasible one.
    allowance : Allowance, optional
        Seconds and memory that may be spent; by default only the verifiers' own limits count.
    proofs : mapping of str to Provable
        The registry of the question; by default that of schedules.

    Raises
    ------
    BeyondLimitsError
        If it takes more than is allowed.
    """
    kind = proofs.get(bound.method)
    if kind is None:
        return "no proof is known for a bound of this kind"
    misfit = kind.misfit(problem)
    if misfit is not None:
        return misfit
    try:
        proof = kind.proof.read(bound.details)
    except InputError as error:
        return str(error)
    allowance = UNLIMITED.begin() if allowance is None else allowance
    allowance.require_time()
    fault = kind.verifier.load()(problem, bound.value, proof, allowance)
    if fault is not None and kind.searched:
        return f"the search it names does not establish {bound.value}: {fault}"
    return fault


def by_time(problem: Problem, value: int, proof: MemoryByTime, allowance: Allowance) -> str | None:
    """Return None if within one byte less the deadline cannot be met, or the fault.

    The proof holds a bound on time, which is established again: docs/theory/least-memory.md.
    """
    if problem.deadline is None:
        return "it rests on a deadline, and the problem has none"
    if proof.limit < value - 1:
        return f"details.limit {proof.limit} says nothing about {value - 1} bytes"
    if proof.ticks <= problem.deadline:
        return f"details.ticks {proof.ticks} are within the deadline, {problem.deadline}"
    platform = replace(problem.platform, memory=proof.limit)
    timed = replace(problem, platform=platform, minimise=Minimise.TIME, deadline=None)
    bound = Bound(proof.method, proof.ticks, Evidence.PROVED, proof.details)
    fault = recheck(bound, timed, allowance)
    return None if fault is None else f"details: {fault}"
