"""Verification of addresses: documents of their own, and those that a certificate holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any

from offcert.core.messages import cut
from offcert.core.problem import Problem
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.core.schedule import Schedule
from offcert.proofs.placement.certificate import PlacementCertificate, placement_from_json
from offcert.proofs.placement.registry import PLACEMENT_PROOFS, placement_kind_of
from offcert.verify.findings import (
    LONGEST,
    BoundCheck,
    CheckedBound,
    Findings,
    rewriting_faults,
)
from offcert.verify.limits import UNLIMITED, Allowance, Limits
from offcert.verify.placement.overlap import Stay, placement_faults, stays
from offcert.verify.recheck import recheck_pool

_SHOWN = 10


@dataclass
class PlacementVerification(Findings):
    """The outcome of verifying a document about addresses.

    Attributes
    ----------
    certificate : PlacementCertificate
        What was verified.
    """

    certificate: PlacementCertificate = field(kw_only=True)

    def __repr__(self) -> str:
        summary = self.certificate.result.summary(self.certificate.problem.units)
        return f"<PlacementVerification {self.outcome}, {len(self.faults)} faults; {summary}>"

    @property
    def evidence(self) -> Evidence | None:
        """The strongest evidence among the bounds that attain the lower bound; None if invalid."""
        return self.certificate.result.evidence if self.valid else None


def verify_placement(
    document: Any, limits: Limits = UNLIMITED, *, allowance: Allowance | None = None
) -> PlacementVerification:
    """Verify a document about addresses, given as a JSON value.

    Parameters
    ----------
    document : object
        The JSON value, of the format ``offcert-placement``.
    limits : Limits
        What that may take.
    allowance : Allowance, optional
        What is left of limits that are running already.

    Returns
    -------
    PlacementVerification
        With every fault found, not only the first.

    Raises
    ------
    InputError
        If the value is no such document at all.
    """
    allowance = limits.begin() if allowance is None else allowance
    certificate = placement_from_json(document)
    verification = PlacementVerification(certificate=certificate)
    verification.faults += rewriting_faults(document, certificate.to_json())
    verification.bounds += check_addresses(verification, certificate, allowance)
    verification.faults = [cut(fault, LONGEST) for fault in verification.faults]
    return verification


def check_addresses(
    findings: Findings, certificate: PlacementCertificate, allowance: Allowance, place: str = ""
) -> list[CheckedBound]:
    """Check addresses, bounds on the pool and status; return what can be said for the bounds.

    Parameters
    ----------
    findings : Findings
        To which faults are added.
    certificate : PlacementCertificate
        What is claimed.
    allowance : Allowance
        What checking it may take.
    place : str
        What stands before the names of fields in faults.
    """
    problem, result = certificate.problem, certificate.result
    if result.placement is not None:
        findings.faults += [
            f"{place}addresses: {fault}" for fault in placement_faults(problem, result.placement)
        ]
    bounds = BoundCheck(
        result.bounds,
        result.pool,
        partial(_recheck, certificate, allowance),
        placement_kind_of,
        lambda method: method in PLACEMENT_PROOFS and PLACEMENT_PROOFS[method].searched,
        not findings.faults,
        f"{place}bounds",
    )
    checked = list(bounds.run(findings))
    expected = _status(certificate)
    if result.status is not expected:
        findings.faults.append(
            f"{place}status: the document says {result.status}, but what it holds is {expected}"
        )
    return checked


def _recheck(certificate: PlacementCertificate, allowance: Allowance, bound: Bound) -> str | None:
    return recheck_pool(bound, certificate.problem, allowance)


def _status(certificate: PlacementCertificate) -> SolveStatus:
    """Return what the pool, the bounds and the capacity amount to."""
    pool, least = certificate.result.pool, certificate.result.lower_bound
    capacity = certificate.problem.capacity
    if capacity is not None and least > capacity:
        return SolveStatus.INFEASIBLE
    if pool is None:
        return SolveStatus.UNKNOWN
    return SolveStatus.OPTIMAL if pool == least else SolveStatus.FEASIBLE


def check_of_schedule(
    findings: Findings,
    certificate: PlacementCertificate,
    problem: Problem,
    schedule: object,
    allowance: Allowance,
) -> list[CheckedBound]:
    """Check the addresses in the certificate of a schedule, and that they are of that schedule.

    The schedule must have been found to be valid.

    Parameters
    ----------
    findings : Findings
        To which faults are added.
    certificate : PlacementCertificate
        What its field ``placement`` claims.
    problem : Problem
        Of which the schedule is one.
    schedule : Schedule or other
        Of whole transfers, or nothing that can be placed.
    allowance : Allowance
        What checking it may take.
    """
    if not isinstance(schedule, Schedule):
        findings.faults.append("placement: there is no schedule of whole transfers to be placed")
        return []
    faults = _differences(certificate, stays(problem.trace, schedule))
    findings.faults += _first(faults, "residences that are not those of the schedule")
    if all(operation.duration for operation in problem.trace.operations):
        time = problem.units.time
    else:
        time = "tick"
    if (certificate.problem.units.time, certificate.problem.units.size) != (
        time,
        problem.units.size,
    ):
        findings.faults.append(f"placement.units: must be {time} and {problem.units.size}")
    return check_addresses(findings, certificate, allowance, "placement.")


def _differences(certificate: PlacementCertificate, expected: Sequence[Stay]) -> Iterator[str]:
    claimed = [
        Stay(of.kind, of.index, each.name, each.size, each.start, each.end)
        for of, each in zip(
            certificate.occupants or (), certificate.problem.residences, strict=True
        )
    ]
    for index, (found, right) in enumerate(zip_longest(claimed, expected)):
        if found != right:
            place = f"placement.residences[{index}]"
            yield f"{place}: the document has {_said(found)}, but the schedule {_said(right)}"


def _said(stay: Stay | None) -> str:
    if stay is None:
        return "none"
    name = cut(stay.name, 60)
    what = f"{stay.kind} {stay.index} ({name})"
    return f"{what}, {stay.size} bytes from {stay.start} to {stay.end}"


def _first(faults: Iterator[str], what: str) -> list[str]:
    found = list(faults)
    more = len(found) - _SHOWN
    return [*found[:_SHOWN], *([f"there are {more} more {what}"] if more > 0 else [])]
