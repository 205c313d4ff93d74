"""Texts about a plan on another problem: one JSON object for programs, a few lines for people."""

from __future__ import annotations

from typing import Any

from offcert.core.units import format_gap, format_size, format_time
from offcert.questions.schedule.problem import format_objective
from offcert.verify.elsewhere import Elsewhere


def elsewhere_summary(found: Elsewhere) -> dict[str, Any]:
    """Return the outcome of a plan on another problem as JSON values; times in ticks."""
    return {
        "legal": found.legal,
        "fault": found.fault,
        "problem": found.problem.name,
        "objective": found.objective,
        "makespan": None if found.schedule is None else found.schedule.makespan,
        "peak": found.peak,
        "lower_bound": found.lower_bound,
        "gap": found.gap if found.legal else None,
        "bounds": [{"method": b.method, "value": b.value} for b in found.bounds],
        "unverified": list(found.unverified),
    }


def describe_elsewhere(found: Elsewhere) -> str:
    """Return the outcome of a plan on another problem for people."""
    problem = found.problem
    if found.schedule is None or found.peak is None:
        return f"NOT LEGAL on {problem.name}\n  {found.fault}"
    ticks, units = found.schedule.makespan, problem.units
    slowdown = ticks / max(1, problem.trace.compute_time)
    limit = format_size(problem.platform.memory, units)
    lines = [
        f"LEGAL on {problem.name}",
        f"  step time    {format_time(ticks, units)} ({slowdown:.3f} times the compute time)",
        f"  peak         {format_size(found.peak, units)} of {limit}",
        f"  lower bound  {format_objective(found.lower_bound, problem)} on that problem (proved)",
        f"  gap          {format_gap(found.gap)} to that bound",
    ]
    for bound in found.bounds:
        value = format_objective(bound.value, problem)
        lines.append(f"  bound {value:>14}  {bound.method}")
    lines += [f"  not computed within the limits: {reason}" for reason in found.unverified]
    return "\n".join(lines)
