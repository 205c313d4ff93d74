"""Verification of addresses: documents of their own, and those that a certificate holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from offcert.core.messages import cut
from offcert.proofs.placement.certificate import PlacementCertificate
from offcert.proofs.placement.registry import PLACEMENT_CLAIMS, PLACEMENT_PROOFS
from offcert.questions.placement.check import placement_faults
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.verify.findings import BoundCheck, CheckedBound, Verification
from offcert.verify.limits import Allowance
from offcert.verify.placement.stays import Stay, stays

# Faults of one kind that are named; more are counted. Arbitrary.
_SHOWN = 10


def check_placement(
    verification: Verification[PlacementCertificate], document: Any, allowance: Allowance
) -> None:
    """Check a document about addresses of its own.

    Parameters
    ----------
    verification : Verification
        The findings; faults and bounds are added to them.
    document : object
        The JSON value that holds the certificate.
    allowance : Allowance
        Seconds and memory that checking may take.
    """
    verification.bounds += check_addresses(verification, verification.certificate, allowance)


def check_addresses(
    findings: Verification[Any],
    certificate: PlacementCertificate,
    allowance: Allowance,
    place: str = "",
) -> list[CheckedBound]:
    """Check addresses, bounds on the pool and status; return what can be said for the bounds.

    Parameters
    ----------
    findings : Verification
        To which faults are added.
    certificate : PlacementCertificate
        The addresses and bounds that are claimed.
    allowance : Allowance
        Seconds and memory that checking may take.
    place : str
        Text before the names of fields in faults.
    """
    problem, result = certificate.problem, certificate.result
    if result.placement is not None:
        findings.faults += [
            f"{place}addresses: {fault}" for fault in placement_faults(problem, result.placement)
        ]
    bounds = BoundCheck(
        result,
        problem,
        PLACEMENT_PROOFS,
        PLACEMENT_CLAIMS,
        allowance,
        not findings.faults,
        f"{place}bounds",
    )
    checked = list(bounds.run(findings))
    expected = result.status_within(problem)
    if result.status is not expected:
        findings.faults.append(
            f"{place}status: the document says {result.status}, but what it holds is {expected}"
        )
    return checked


def check_of_schedule(
    findings: Verification[Any],
    certificate: PlacementCertificate,
    problem: Problem,
    schedule: object,
    allowance: Allowance,
) -> list[CheckedBound]:
    """Check the addresses in the certificate of a schedule, and that they are of that schedule.

    The schedule must have been found to be valid.

    Parameters
    ----------
    findings : Verification
        To which faults are added.
    certificate : PlacementCertificate
        The addresses and bounds in its field ``placement``.
    problem : Problem
        Of which the schedule is one.
    schedule : Schedule or other
        Of whole transfers, or nothing that can be placed.
    allowance : Allowance
        Seconds and memory that checking may take.
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
