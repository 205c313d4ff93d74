"""Verification: everything in a certificate that can be computed again is computed again.

The schedule is examined by the checker, the problem's hash and the proved bounds are computed anew
with code that no solver uses, and the rest is protected by a digest of the whole document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from offcert.core.check import check
from offcert.core.check_fluid import check_fluid
from offcert.core.documents import canonical_digest, read_json
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.problem import Minimise, Recompute
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.core.schedule import Schedule
from offcert.proofs.attestation import witness
from offcert.proofs.certificate import Certificate, certificate_from_json
from offcert.proofs.claims import solver_of
from offcert.proofs.registry import PROOFS
from offcert.verify.execution.check import legality_faults
from offcert.verify.execution.need import least_need
from offcert.verify.limits import UNLIMITED, Allowance, BeyondLimitsError, Limits
from offcert.verify.recheck import recheck

# Characters of a fault or finding, and of a value in one: a hash is shown whole.
_LONGEST, _SHOWN = 300, 80


class Outcome(StrEnum):
    """What verification says of a certificate as a whole."""

    VALID = "valid"
    INVALID = "invalid"
    BEYOND_LIMITS = "not verified within the limits"


@dataclass(frozen=True)
class CheckedBound:
    """A bound and what verification can say for it."""

    method: str
    value: int
    evidence: Evidence
    finding: str


@dataclass
class Verification:
    """The outcome of verifying a certificate.

    Attributes
    ----------
    faults : list of str
        Every reason why the certificate is not valid, each with its place; empty if it is valid.
    bounds : list of CheckedBound
        What evidence each bound has.
    unverified : list of str
        What could not be established within the limits, each with its place.
    certificate : Certificate
        What was verified.
    """

    certificate: Certificate
    faults: list[str] = field(default_factory=list)
    bounds: list[CheckedBound] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        summary = self.certificate.result.summary(self.certificate.problem.units)
        return f"<Verification {self.outcome}, {len(self.faults)} faults; {summary}>"

    @property
    def outcome(self) -> Outcome:
        """``INVALID`` if anything is wrong, else whether everything could be established."""
        if self.faults:
            return Outcome.INVALID
        return Outcome.BEYOND_LIMITS if self.unverified else Outcome.VALID

    @property
    def valid(self) -> bool:
        """Whether nothing was found wrong, and nothing left unverified."""
        return self.outcome is Outcome.VALID

    @property
    def reason(self) -> str | None:
        """The first reason why it is not valid: a fault, or what the limits left open."""
        return next(iter((*self.faults, *self.unverified)), None)

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
    try:
        size = Path(path).stat().st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if size > limits.document:
        raise BeyondLimitsError(
            f"{path} has {size} bytes, but only {limits.document:g} may be read; it is not verified"
        )
    document = read_json(path)
    try:
        return verify(document, allowance=allowance)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


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
    verification = Verification(certificate_from_json(document))
    _compare_with_rewritten(verification, document)
    _check_execution(verification)
    _check_schedule(verification)
    _check_infeasibility(verification)
    # What was tampered with is not worth a search that may take long.
    intact = verification.valid
    for index, bound in enumerate(verification.certificate.result.bounds):
        _check_bound(verification, index, bound, intact, allowance)
    _check_status(verification)
    # Names in the document are of any length.
    verification.faults = [cut(fault, _LONGEST) for fault in verification.faults]
    return verification


def _compare_with_rewritten(verification: Verification, document: dict[str, Any]) -> None:
    # Writing what was read gives every derived field, such as the hash, its right value.
    rewritten = verification.certificate.to_json()
    content = {name: value for name, value in document.items() if name != "digest"}
    del rewritten["digest"]
    verification.faults += [
        f"{place}: the document says {cut(repr(found), _SHOWN)}, but it should be "
        f"{cut(repr(expected), _SHOWN)}"
        for place, found, expected in _differences(content, rewritten, "")
    ]
    if document["digest"] != canonical_digest(content):
        verification.faults.append("digest: the document was changed after it was written")


def _differences(found: Any, expected: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places at which two JSON values of the same shape differ."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        for name in found:
            yield from _differences(
                found[name], expected[name], f"{place}.{name}" if place else name
            )
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for index, pair in enumerate(zip(found, expected, strict=True)):
            yield from _differences(*pair, f"{place}[{index}]")
    elif type(found) is not type(expected) or found != expected:
        yield place, found, expected


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


def _check_infeasibility(verification: Verification) -> None:
    result = verification.certificate.result
    claim = result.infeasibility
    problem = verification.certificate.problem
    if problem.minimise is Minimise.MEMORY:
        if claim is not None:
            verification.faults.append("infeasibility: memory is the objective, not a limit")
        return
    needed, operation, name = least_need(problem)
    if needed > problem.platform.memory and (claim is None or result.bounds):
        verification.faults.append(
            "infeasibility: no schedule exists, so the document must say so and hold no bounds"
        )
    if claim is None:
        return
    expected = (operation, name, needed, needed - problem.platform.memory)
    if expected[3] <= 0:
        verification.faults.append(
            f"infeasibility: every operation fits into {problem.platform.memory} bytes"
        )
    elif (claim.operation, claim.name, claim.needed, claim.lacking) != expected:
        verification.faults.append(
            f"infeasibility: operation {expected[0]} ({expected[1]}) needs {expected[2]} and "
            f"lacks {expected[3]}, which is not what the document says"
        )


def _check_bound(
    verification: Verification, index: int, bound: Bound, intact: bool, allowance: Allowance
) -> None:
    place = f"bounds[{index}] ({cut(bound.method)})"
    objective = verification.certificate.result.objective
    if objective is not None and bound.value > objective:
        verification.faults.append(
            f"{place}: the bound {bound.value} exceeds the objective {objective}"
        )
    searched = bound.method in PROOFS and PROOFS[bound.method].searched
    if bound.evidence is Evidence.PROVED and searched and not intact:
        finding = "not computed again, because the document is not what it was"
    elif bound.evidence is Evidence.PROVED:
        finding = _establish(verification, place, bound, allowance)
    elif bound.evidence is Evidence.CROSS_ATTESTED:
        other = witness(verification.certificate.result.bounds, index)
        if other is None:
            finding = "no other formulation on another solver in the document reaches it"
            verification.faults.append(f"{place}: {finding}")
        else:
            finding = f"claimed by two solvers, the other with {other.method}; not checked again"
    else:
        finding = f"claimed by {solver_of(bound) or 'one solver'}; not checked again"
    checked = CheckedBound(bound.method, bound.value, bound.evidence, cut(finding, _LONGEST))
    verification.bounds.append(checked)


def _establish(verification: Verification, place: str, bound: Bound, allowance: Allowance) -> str:
    """Establish a proved bound again; return what was found."""
    try:
        fault = recheck(bound, verification.certificate.problem, allowance)
    except (BeyondLimitsError, MemoryError) as error:
        finding = f"not verified within the limits: {str(error) or 'the memory is used up'}"
        verification.unverified.append(f"{place}: {finding}")
        return finding
    if fault is not None:
        verification.faults.append(f"{place}: {fault}")
    return "computed again" if fault is None else fault


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
