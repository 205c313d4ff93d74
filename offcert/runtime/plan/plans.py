"""Whatever `offload` takes as a plan, as step plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.questions.schedule.fluid_schedule import FluidSchedule
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import Schedule
from offcert.runtime.plan.step_plan import StepPlan, step_plan
from offcert.runtime.watch.signature import Signature, as_if_on, covers, difference, volume


class CertificateLike(Protocol):
    """The part of a certificate that training needs (`offcert.proofs.certificate.Certificate`)."""

    @property
    def problem(self) -> Problem:
        """The problem that was planned."""

    @property
    def result(self) -> Result:
        """The schedule, among other things."""


AnyPlan = CertificateLike | Plan | Schedule | FluidSchedule


def step_plans(
    plan: AnyPlan | Sequence[CertificateLike], problem: Problem | None, *, streams: bool = False
) -> list[StepPlan]:
    """Return the step plans of a plan or schedule for `problem`, or of certificates.

    `streams` tells whether the streams of a device move tensors.

    Raises
    ------
    InputError
        If there is no schedule, or none that training can follow.
    PlanError
        If a plan does not make sense, or exceeds its problem's memory.
    """
    return [step_plan(*pair, streams=streams) for pair in planned(plan, problem)]


def planned(
    plan: AnyPlan | Sequence[CertificateLike], problem: Problem | None
) -> Iterator[tuple[Problem, Plan | Schedule | FluidSchedule, Execution | None]]:
    """Yield problem, plan or schedule, and what is executed, if not everything just once.

    Raises
    ------
    InputError
        If there is no schedule, or the arguments do not go together.
    """
    if isinstance(plan, Plan | Schedule | FluidSchedule):
        if problem is None:
            raise InputError("problem must be given with a plan that is no certificate")
        yield problem, plan, None
        return
    if problem is not None:
        raise InputError("problem must not be given with a certificate, which brings its own")
    for certificate in plan if isinstance(plan, list | tuple) else [plan]:
        if not hasattr(certificate, "problem") or not hasattr(certificate, "result"):
            kind = type(certificate).__name__
            raise InputError(f"plan must be a certificate, a plan or a schedule, not {kind}")
        schedule = certificate.result.schedule
        if schedule is None:
            raise InputError(
                f"the certificate of {certificate.problem.name} holds no schedule: its status is "
                f"{certificate.result.status}"
            )
        limit = certificate.result.memory
        asked = certificate.problem
        yield (
            asked if limit is None else asked.with_memory(limit),
            schedule,
            certificate.result.execution,
        )


def plans_for(found: Sequence[StepPlan], call: Signature, here: str) -> list[StepPlan] | str:
    """Return the step plans for a first call like this one, or why there is none.

    They were captured with the same call, or else with the smallest one that covers it
    (`offcert.runtime.watch.signature.covers`).

    Parameters
    ----------
    found : sequence of StepPlan
        To choose from.
    call : Signature
        How the model is called.
    here : str
        The device that it is on, as `offcert.runtime.watch.parts.Parts` names it.
    """
    pairs = [(each.capture.calls[0], as_if_on(call, each.capture.device, here)) for each in found]
    same = [each for each, (known, asked) in zip(found, pairs, strict=True) if known == asked]
    if same:
        return same
    larger = [known for known, asked in pairs if covers(known, asked)]
    if larger:
        chosen = min(larger, key=volume)
        return [each for each in found if each.capture.calls[0] == chosen]
    # Only now: to say in what calls differ takes longer than to see that they do.
    reason = (difference(*pairs[0]) if pairs else None) or "none has been made yet"
    return f"there is no plan for this step: {reason}"
