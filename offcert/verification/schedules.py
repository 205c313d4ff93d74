"""Verification of a schedule's certificate: what runs, when it runs, and how good that is."""

from __future__ import annotations

from typing import Any

from offcert.core.errors import PlanError
from offcert.core.result import Evidence
from offcert.core.uncertainty import executed_on
from offcert.proofs.certificate import Certificate, Robust
from offcert.proofs.registry import CLAIMS, PROOFS
from offcert.questions.schedule.check import check
from offcert.questions.schedule.check_fluid import schedule_faults
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.schedule import Schedule
from offcert.verification.execution import least_need, legality_faults
from offcert.verification.findings import BoundCheck, CheckedBound, Verification
from offcert.verification.joint.verifier import nothing_fits
from offcert.verification.limits import Allowance, BeyondLimitsError
from offcert.verification.placement import check_of_schedule
from offcert.verification.replay import replay_latest


def check_robust(
    findings: Verification[Certificate], claim: Robust, allowance: Allowance
) -> list[CheckedBound]:
    """Add the faults of a claim about a box of times; return its bounds with their evidence.

    Nothing must be wrong with the certificate's schedule.
    """
    certificate = findings.certificate
    problem, schedule = certificate.problem, certificate.result.schedule
    if problem.uncertainty is None:
        findings.faults.append("robust: the problem's times are exact")
    elif problem.minimise is Minimise.MEMORY or not isinstance(schedule, Schedule):
        findings.faults.append("robust: it is for schedules of least time with whole transfers")
    if findings.faults:
        return []
    assert isinstance(schedule, Schedule)
    fault = _slowest_fault(certificate, schedule, claim.objective)
    if fault is not None:
        findings.faults.append(f"robust.objective: {fault}")
    unproved = [each.method for each in claim.bounds if each.evidence is not Evidence.PROVED]
    if unproved:
        findings.faults.append(f"robust.bounds: {unproved[0]} is claimed, and not proved")
    fastest = problem.corner(fastest=True)
    intact = not findings.faults
    bounds = BoundCheck(claim, fastest, PROOFS, CLAIMS, allowance, intact, place="robust.bounds")
    return list(bounds.run(findings))


def _slowest_fault(certificate: Certificate, schedule: Schedule, objective: int) -> str | None:
    """Return why a plan does not take so many ticks at the slowest corner, or None."""
    problem, execution = certificate.problem, certificate.result.execution
    corners = []
    for fastest in (False, True):
        there = problem.corner(fastest=fastest)
        runs: Problem = there.plain()
        if execution is not None:
            assert problem.computed is not None
            assert there.computed is not None
            executed = executed_on(execution, problem.computed, there.computed)
            faults = legality_faults(there, executed)
            if faults:
                return faults[0]
            runs = there.executed(executed)
        corners.append(runs)
    try:
        found = replay_latest(corners[0], corners[1], schedule.plan(certificate.executed.trace))
    except PlanError as error:
        return str(error)
    # Of links that slow down these are times that nothing exceeds, not those of a schedule.
    faults = [] if corners[0].platform.slows else check(corners[0], found)
    if faults:
        return faults[0]
    if found.makespan != objective:
        return f"the plan takes {found.makespan} ticks at the slowest corner, not {objective}"
    return None


def check_schedule(
    verification: Verification[Certificate], document: Any, allowance: Allowance
) -> None:
    """Check execution, schedule, bounds and addresses, each with code that no solver uses."""
    certificate = verification.certificate
    before = len(verification.faults)
    _check_execution(verification)
    _check_schedule(verification)
    sound = len(verification.faults) == before
    _check_infeasibility(verification, allowance)
    _check_bounds(verification, allowance)
    if certificate.placement is not None and sound:
        verification.placement_bounds += check_of_schedule(
            verification,
            certificate.placement,
            certificate.executed,
            certificate.result.schedule,
            allowance,
        )
    if certificate.robust is not None and sound:
        verification.robust_bounds += check_robust(verification, certificate.robust, allowance)
    _check_status(verification)


def _check_execution(verification: Verification[Certificate]) -> None:
    """Add a fault if the execution is no legal one of the problem's network."""
    certificate = verification.certificate
    execution, problem = certificate.result.execution, certificate.problem
    if problem.recompute is Recompute.NONE:
        if execution is not None:
            verification.faults.append("execution: the problem lets nothing run again")
        return
    if execution is None:
        if certificate.result.schedule is not None:
            verification.faults.append("execution: it is missing, and the problem leaves it open")
        return
    verification.faults += legality_faults(problem, execution)


def _check_schedule(verification: Verification[Certificate]) -> None:
    result = verification.certificate.result
    schedule = result.schedule
    if schedule is None:
        if result.objective is not None:
            verification.faults.append("objective: there is no schedule that attains it")
        return
    problem = verification.certificate.executed
    found = schedule_faults(problem, schedule)
    verification.faults += [f"schedule: {fault}" for fault in found]
    deadline = verification.certificate.problem.deadline
    if deadline is not None and schedule.makespan > deadline:
        verification.faults.append(
            f"schedule: it takes {schedule.makespan} ticks, and the deadline is {deadline}"
        )


def _scarcest(problem: Problem) -> tuple[int | None, int, int, str]:
    """Return the limit, the least need, the operation that has the need, and that operation's name.

    Limit and need are bytes. Where memory is minimised they are ticks, if there is a deadline:
    everything runs once, and with memory enough nothing has to wait.
    """
    if problem.minimise is Minimise.MEMORY:
        needed = sum(operation.duration for operation in problem.trace.operations)
        return problem.deadline, needed, -1, "the computing"
    return problem.platform.memory, *least_need(problem)


def _check_infeasibility(verification: Verification[Certificate], allowance: Allowance) -> None:
    result = verification.certificate.result
    claim = result.infeasibility
    problem = verification.certificate.problem
    limit, needed, operation, name = _scarcest(problem)
    if limit is None:
        if claim is not None:
            verification.faults.append("infeasibility: memory is the objective, not a limit")
        return
    if needed > limit and (claim is None or result.bounds):
        verification.faults.append(
            "infeasibility: no schedule exists, so the document must say so and hold no bounds"
        )
    if claim is None:
        return
    if claim.of_executions and needed <= limit:
        _check_no_execution(verification, allowance)
        return
    expected = (operation, name, needed, needed - limit)
    if expected[3] <= 0:
        what = "every operation fits into {} bytes"
        if problem.minimise is Minimise.MEMORY:
            what = "the computing ends by the deadline, {}"
        verification.faults.append(f"infeasibility: {what.format(limit)}")
    elif (claim.operation, claim.name, claim.needed, claim.lacking) != expected:
        verification.faults.append(
            f"infeasibility: operation {expected[0]} ({expected[1]}) needs {expected[2]} and "
            f"lacks {expected[3]}, which is not what the document says"
        )


def _check_no_execution(verification: Verification[Certificate], allowance: Allowance) -> None:
    """Check the claim that no execution fits although each run does."""
    result, problem = verification.certificate.result, verification.certificate.problem
    claim = result.infeasibility
    assert claim is not None
    if claim.lacking != claim.needed - problem.platform.memory:
        verification.faults.append(
            f"infeasibility: what needs {claim.needed} does not lack {claim.lacking}"
        )
    if result.bounds:
        verification.faults.append("infeasibility: a document that says so holds no bounds")
    if verification.faults:
        return
    try:
        fault = nothing_fits(problem, claim.needed - 1, allowance)
    except BeyondLimitsError as error:
        verification.unverified.append(f"infeasibility: not verified within the limits: {error}")
        return
    if fault is not None:
        verification.faults.append(f"infeasibility: {fault}")


def _check_bounds(verification: Verification[Certificate], allowance: Allowance) -> None:
    certificate = verification.certificate
    check = BoundCheck(
        certificate.result,
        certificate.problem,
        PROOFS,
        CLAIMS,
        allowance,
        intact=verification.valid,
    )
    verification.bounds += check.run(verification)


def _check_status(verification: Verification[Certificate]) -> None:
    result = verification.certificate.result
    expected = result.status_by(infeasible=result.infeasibility is not None)
    if result.status is not expected:
        verification.faults.append(
            f"status: the document says {result.status}, but what it holds is {expected}"
        )
    if result.infeasibility is not None and result.schedule is not None:
        verification.faults.append("infeasibility: the document also holds a schedule")
