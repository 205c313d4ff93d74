"""Feedback while training: one line a plan, and what the first step by it measured."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from offcert.core.result import relative_gap
from offcert.core.units import Units, format_gap, format_size
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.runtime.follow.offload import Offload
from offcert.runtime.plan.step_plan import StepPlan

LOG = logging.getLogger("offcert.training")
_BYTES = Units("ns", "B")


def plan_numbers(certificate: Certificate, plan: StepPlan) -> dict[str, float]:
    """Return the numbers that a plan promises: bytes, slowdown, and the gap that is proved.

    Parameters
    ----------
    certificate : Certificate
        A certificate with a schedule.
    plan : StepPlan
        The step plan made from it, which is followed.
    """
    problem, result = certificate.problem, certificate.result
    assert result.schedule is not None
    assert result.objective is not None
    return {
        "peak": plan.prediction.peak,
        "peak_without": problem.trace.peak_memory,
        "slowdown": result.schedule.makespan / max(1, problem.trace.compute_time),
        "proved_within": relative_gap(result.objective, result.proved_bound),
        "host": plan.host.pool,
        "search_seconds": result.runtime,
    }


def said_of_plan(
    certificate: Certificate, plan: StepPlan, *, streams: bool, folder: Path | None = None
) -> str:
    """Return in a line what a plan promises; parameters as for `plan_numbers`.

    Parameters
    ----------
    streams : bool
        Whether copies run beside the computing, as on a GPU.
    folder : Path, optional
        Where the plan was found, if it was not searched for.
    """
    of = plan_numbers(certificate, plan)
    sizes = (int(of[name]) for name in ("peak_without", "peak", "host"))
    before, after, host = (format_size(size, _BYTES) for size in sizes)
    what = "time" if certificate.problem.minimise is Minimise.TIME else "memory"
    parts = [
        f"peak {before} → {after}",
        f"predicted {of['slowdown']:.2f} ×",
        f"{what} proved within {format_gap(of['proved_within'])}",
        f"host {host}",
        f"found in {of['search_seconds']:.1f} s" if folder is None else f"found in {folder}",
    ]
    text = f"plan for {certificate.problem.name}: {', '.join(parts)}"
    if streams:
        return text
    return f"{text}; on the CPU copies are synchronous, and a step takes longer than predicted"


def tell_of_plans(
    followed: Offload, plans: Iterable[tuple[Any, StepPlan]], folder: Path | None = None
) -> None:
    """Log a line for every plan that is a certificate, and keep its numbers in `promises`.

    With a folder, they were found there.
    """
    for certificate, plan in plans:
        if isinstance(certificate, Certificate) and certificate.result.schedule is not None:
            LOG.info("%s", said_of_plan(certificate, plan, streams=followed.streams, folder=folder))
            followed.promise(plan, plan_numbers(certificate, plan))


def tell_of_waiting(problem: Problem) -> None:
    """Log that training waits for a search, since no plan for a step is there at once."""
    LOG.warning(
        "%s: no plan that only moves tensors keeps to the limits, so there is no makeshift: the "
        "training waits for a plan in which modules run again, and the step in which it begins may "
        "take more memory than the limit; with example= all that happens before the first step",
        problem.name,
    )
