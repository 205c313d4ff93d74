"""Verification of bounds on bytes that rest on a bound on time (docs/theory/least-memory.md)."""

from __future__ import annotations

from dataclasses import replace

from offcert.core.problem import Minimise, Problem
from offcert.core.result import Bound, Evidence
from offcert.proofs.kinds import MemoryByTime
from offcert.verify.limits import Allowance
from offcert.verify.recheck import recheck


def by_time(problem: Problem, value: int, proof: MemoryByTime, allowance: Allowance) -> str | None:
    """Return None if within one byte less the deadline cannot be met, or what is wrong."""
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
