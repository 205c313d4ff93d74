"""Verification of what a certificate claims about a box of uncertain times.

Both corners are made again from the problem, in rationals. The plan is followed in its fixed order
at the slowest, by code that no search uses, and every bound is established at the fastest.
"""

from __future__ import annotations

from offcert.core.errors import PlanError
from offcert.core.other_numbers import executed_on
from offcert.core.result import Evidence
from offcert.proofs.certificate import Certificate
from offcert.proofs.registry import CLAIMS, PROOFS
from offcert.proofs.robust import Robust
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.verify.execution import legality_faults
from offcert.verify.findings import BoundCheck, CheckedBound, Verification
from offcert.verify.limits import Allowance
from offcert.verify.replay import replay


def check_robust(
    findings: Verification[Certificate], claim: Robust, allowance: Allowance
) -> list[CheckedBound]:
    """Add what is wrong with a claim about a box; return what evidence its bounds have.

    Parameters
    ----------
    findings : Verification
        Of the certificate with the claim; nothing is wrong with its schedule.
    claim : Robust
        About the box.
    allowance : Allowance
        What may be spent.
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
    slowest = problem.corner(fastest=False)
    runs: Problem = slowest.plain()
    if execution is not None:
        assert problem.computed is not None
        assert slowest.computed is not None
        there = executed_on(execution, problem.computed, slowest.computed)
        faults = legality_faults(slowest, there)
        if faults:
            return faults[0]
        runs = slowest.executed(there)
    try:
        found = replay(runs, schedule.plan(certificate.executed.trace))
    except PlanError as error:
        return str(error)
    faults = check(runs, found)
    if faults:
        return faults[0]
    if found.makespan != objective:
        return f"the plan takes {found.makespan} ticks at the slowest corner, not {objective}"
    return None
