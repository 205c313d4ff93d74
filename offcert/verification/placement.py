"""Verification of addresses: documents of their own, and those that a certificate holds."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from offcert.core.messages import cut
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.proofs.placement_certificate import (
    PLACEMENT_CLAIMS,
    PLACEMENT_PROOFS,
    PlacementCertificate,
)
from offcert.questions.placement.problem import placement_faults
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.verification.findings import BoundCheck, CheckedBound, Verification
from offcert.verification.limits import Allowance

_Key = tuple[int, int, int]
_RELEASED, _RUNS, _TAKEN = range(3)


@dataclass(frozen=True, slots=True)
class Stay:
    """A stretch of time in which a tensor or a workspace has memory."""

    kind: str  # ``"tensor"`` or ``"workspace"``
    index: int  # The index of the tensor or the operation
    name: str  # As documents have it
    size: int  # Bytes
    # Ticks, each plus the number of operations of no duration that have begun before.
    start: int
    end: int


def stays(trace: Trace, schedule: Schedule) -> list[Stay]:
    """Return all stays of a schedule that the checker has found to be valid.

    They are ordered as in documents: tensors by number, the stays of each by time, then workspaces.
    """
    instants = sorted(
        (start, _RUNS, index)
        for index, (start, operation) in enumerate(
            zip(schedule.starts, trace.operations, strict=True)
        )
        if operation.duration == 0
    )

    def moment(key: _Key) -> int:
        return key[0] + bisect_left(instants, key)

    found = []
    for index, name, size, first, last in _of_tensors(trace, schedule):
        found.append(Stay("tensor", index, name, size, moment(first), moment(last)))
    for index, operation in enumerate(trace.operations):
        if operation.workspace > 0:
            first, last = _run(trace, schedule, index)
            name = f"workspace of {operation.name}"
            size = operation.workspace
            found.append(Stay("workspace", index, name, size, moment(first), moment(last)))
    return found


def _run(trace: Trace, schedule: Schedule, operation: int) -> tuple[_Key, _Key]:
    """Return when an operation begins and when it has ended; -1 is what was before the start."""
    if operation == -1:
        return (0, _RELEASED, 0), (0, _RELEASED, 0)
    start, end = schedule.starts[operation], schedule.ends[operation]
    if trace.operations[operation].duration == 0:
        return (start, _RUNS, operation), (start, _RUNS, operation + 1)
    return (start, _TAKEN, 0), (end, _RELEASED, 0)


def _of_tensors(trace: Trace, schedule: Schedule) -> Iterator[tuple[int, str, int, _Key, _Key]]:
    """Yield number, name and size of a tensor with the beginning and the end of a stay."""
    on_host: dict[int, int] = {}
    fetched: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for transfer in schedule.transfers:
        gap = trace.gaps[transfer.gap]
        if transfer.kind is Kind.OFFLOAD:
            on_host[gap.tensor] = transfer.end
        else:
            fetched[gap.tensor].append((gap.before, gap.after, transfer.start))
    for index, tensor in enumerate(trace.tensors):
        if tensor.size == 0:
            continue
        begin, _ = _run(trace, schedule, tensor.uses[0])
        number = 0
        for opened, _, returned in sorted(fetched[index]):
            _, used = _run(trace, schedule, opened)
            yield (
                index,
                _called(tensor.name, number),
                tensor.size,
                begin,
                max((on_host[index], _RELEASED, 0), used),
            )
            begin, number = (returned, _TAKEN, 0), number + 1
        _, end = _run(trace, schedule, tensor.uses[-1])
        yield index, _called(tensor.name, number), tensor.size, begin, end


def _called(name: str, number: int) -> str:
    return f"{name} (back {number})" if number else name


# Faults of one kind that are named; more are counted. Arbitrary.
_SHOWN = 10


def check_placement(
    verification: Verification[PlacementCertificate], document: Any, allowance: Allowance
) -> None:
    """Check a document about addresses of its own."""
    verification.bounds += check_addresses(verification, verification.certificate, allowance)


def check_addresses(
    findings: Verification[Any],
    certificate: PlacementCertificate,
    allowance: Allowance,
    place: str = "",
) -> list[CheckedBound]:
    """Check addresses, bounds on the pool and status; return what can be said for the bounds.

    Faults are added to the findings; `place` stands before the names of fields in them.
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

    Faults are added to the findings. The schedule, of `problem`, must have been found to be valid.
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
