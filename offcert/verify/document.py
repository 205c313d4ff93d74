"""Verification: everything in a certificate that can be computed again is computed again.

The schedule is examined by the checker, the problem's hash and the proved bounds are computed anew
with code that no solver uses, and the rest is protected by a digest of the whole document.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offcert.core.check import check
from offcert.core.check_fluid import check_fluid
from offcert.core.documents import read_json
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.problem import Minimise, Problem, Recompute
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.core.schedule import Schedule
from offcert.proofs.certificate import Certificate, certificate_from_json
from offcert.proofs.registry import PROOFS, kind_of
from offcert.verify.execution import least_need, legality_faults
from offcert.verify.findings import (
    LONGEST,
    BoundCheck,
    CheckedBound,
    Findings,
    rewriting_faults,
)
from offcert.verify.findings import Outcome as Outcome
from offcert.verify.joint_labels.verifier import nothing_fits
from offcert.verify.limits import UNLIMITED, Allowance, BeyondLimitsError, Limits
from offcert.verify.placement.document import check_of_schedule
from offcert.verify.recheck import recheck


@dataclass
class Verification(Findings):
    """The outcome of verifying a certificate.

    Attributes
    ----------
    certificate : Certificate
        What was verified.
    placement_bounds : list of CheckedBound
        What evidence each bound on the pool has, if the certificate holds addresses.
    """

    certificate: Certificate = field(kw_only=True)
    placement_bounds: list[CheckedBound] = field(default_factory=list)

    def __repr__(self) -> str:
        summary = self.certificate.result.summary(self.certificate.problem.units)
        return f"<Verification {self.outcome}, {len(self.faults)} faults; {summary}>"

    @property
    def evidence(self) -> Evidence | None:
        """The strongest evidence among the bounds that attain the lower bound; None if invalid."""
        return self.certificate.result.evidence if self.valid else None


def verify_file(path: str | Path, limits: Limits = UNLIMITED) -> Verification:
    """Verify the certificate in a file.

    Raises
    ------
    InputError
        If the file cannot be read or is no certificate.
    BeyondLimitsError
        If the file is larger than the limits allow, so that it was not even read.
    """
    allowance = limits.begin()
    document = read_within(path, limits)
    try:
        return verify(document, allowance=allowance)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def read_within(path: str | Path, limits: Limits) -> Any:
    """Return the JSON value in a file that is no larger than the limits allow.

    Raises
    ------
    InputError
        If the file cannot be read.
    BeyondLimitsError
        If it is larger.
    """
    try:
        size = Path(path).stat().st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if size > limits.document:
        raise BeyondLimitsError(
            f"{path} has {size} bytes, but only {limits.document:g} may be read; it is not verified"
        )
    return read_json(path)


def verify(
    document: Any, limits: Limits = UNLIMITED, *, allowance: Allowance | None = None
) -> Verification:
    """Verify a certificate given as a JSON value.

    Parameters
    ----------
    document : object
        The JSON value.
    limits : Limits
        What that may take.
    allowance : Allowance, optional
        What is left of limits that are running already.

    Returns
    -------
    Verification
        With every fault found, not only the first.

    Raises
    ------
    InputError
        If the value is no certificate at all: a field is missing, unknown or of the wrong kind.
    """
    allowance = limits.begin() if allowance is None else allowance
    certificate = certificate_from_json(document)
    verification = Verification(certificate=certificate)
    verification.faults += rewriting_faults(document, certificate.to_json())
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
    _check_status(verification)
    # Names in the document are of any length.
    verification.faults = [cut(fault, LONGEST) for fault in verification.faults]
    return verification


def _check_execution(verification: Verification) -> None:
    """Whether what is scheduled does what the problem's network says."""
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


def _check_schedule(verification: Verification) -> None:
    result = verification.certificate.result
    schedule = result.schedule
    if schedule is None:
        if result.objective is not None:
            verification.faults.append("objective: there is no schedule that attains it")
        return
    problem = verification.certificate.executed
    if isinstance(schedule, Schedule):
        found = check(problem, schedule)
    else:
        found = check_fluid(problem, schedule)
    verification.faults += [f"schedule: {fault}" for fault in found]
    deadline = verification.certificate.problem.deadline
    if deadline is not None and schedule.makespan > deadline:
        verification.faults.append(
            f"schedule: it takes {schedule.makespan} ticks, and the deadline is {deadline}"
        )


def _scarcest(problem: Problem) -> tuple[int | None, int, int, str]:
    """Return what is limited, what is needed at least, by which operation, and its name.

    Where memory is minimised that is time, if there is a deadline: everything runs once, and with
    memory enough nothing has to wait.
    """
    if problem.minimise is Minimise.MEMORY:
        needed = sum(operation.duration for operation in problem.trace.operations)
        return problem.deadline, needed, -1, "the computing"
    return problem.platform.memory, *least_need(problem)


def _check_infeasibility(verification: Verification, allowance: Allowance) -> None:
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


def _check_no_execution(verification: Verification, allowance: Allowance) -> None:
    """Whether no execution fits although each run does."""
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


def _check_bounds(verification: Verification, allowance: Allowance) -> None:
    certificate = verification.certificate
    check = BoundCheck(
        certificate.result.bounds,
        certificate.result.objective,
        lambda bound: recheck(bound, certificate.problem, allowance),
        kind_of,
        lambda method: method in PROOFS and PROOFS[method].searched,
        verification.valid,
        misfit=lambda bound: _misfit(bound, certificate.problem),
    )
    verification.bounds += check.run(verification)


def _misfit(bound: Bound, problem: Problem) -> str | None:
    """Return why a solver's claim is no bound for a problem, whoever makes it, or None."""
    kind = kind_of(bound.method)
    return None if kind is None else kind.misfit(problem)


def _check_status(verification: Verification) -> None:
    result = verification.certificate.result
    if result.infeasibility is not None:
        expected = SolveStatus.INFEASIBLE
    elif result.objective is None:
        expected = SolveStatus.UNKNOWN
    elif result.objective == result.lower_bound:
        expected = SolveStatus.OPTIMAL
    else:
        expected = SolveStatus.FEASIBLE
    if result.status is not expected:
        verification.faults.append(
            f"status: the document says {result.status}, but what it holds is {expected}"
        )
    if result.infeasibility is not None and result.schedule is not None:
        verification.faults.append("infeasibility: the document also holds a schedule")
