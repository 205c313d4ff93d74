"""Verification of certificates for several devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offcert.core.devices.check import check_devices
from offcert.core.documents import canonical_digest, read_json
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.result import Bound, Evidence
from offcert.proofs.claims import solver_of
from offcert.proofs.devices_bounds import DEVICE, MODEL, RESOURCE, ResourceProof
from offcert.proofs.devices_certificate import DevicesCertificate, devices_certificate_from_json
from offcert.verify.devices.bounds import resource_fault
from offcert.verify.limits import UNLIMITED, Allowance, BeyondLimitsError, Limits
from offcert.verify.recheck import recheck

# Characters of a fault, and of a value in one.
_LONGEST, _SHOWN = 300, 80


@dataclass
class DevicesVerification:
    """The outcome of verifying a certificate for several devices.

    Attributes
    ----------
    certificate : DevicesCertificate
        What was verified.
    faults : list of str
        Every reason why it is not valid; empty if it is.
    bounds : list of (Bound, str)
        Each bound, and what verification says of it.
    unverified : list of str
        What could not be established within the limits.
    """

    certificate: DevicesCertificate
    faults: list[str] = field(default_factory=list)
    bounds: list[tuple[Bound, str]] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Whether nothing was found wrong, and nothing left unverified."""
        return not self.faults and not self.unverified

    @property
    def evidence(self) -> Evidence | None:
        """The strongest evidence among the bounds that attain the lower bound."""
        best = self.certificate.lower_bound
        levels = [bound.evidence for bound, _ in self.bounds if bound.value == best]
        return min(levels, key=list(Evidence).index, default=None)


def verify_devices_file(path: str | Path, limits: Limits = UNLIMITED) -> DevicesVerification:
    """Verify the certificate in a file.

    Raises
    ------
    InputError
        If the file cannot be read or is no certificate for several devices.
    """
    document = read_json(path)
    try:
        return verify_devices(document, limits)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def verify_devices(document: Any, limits: Limits = UNLIMITED) -> DevicesVerification:
    """Verify a certificate given as a JSON value.

    The schedule is checked event by event, the bounds are computed again, and so is everything
    that the document derives.

    Raises
    ------
    InputError
        If the value is no certificate at all.
    """
    allowance = limits.begin()
    certificate = devices_certificate_from_json(document)
    verification = DevicesVerification(certificate)
    _compare_with_rewritten(verification, document)
    step = certificate.problem.step
    short = step.trace.least_memory > step.platform.memory
    if certificate.schedule is not None:
        found = check_devices(certificate.problem, certificate.schedule)
        verification.faults += [f"schedule: {fault}" for fault in found]
    elif short and certificate.bounds:
        verification.faults.append("bounds: no schedule exists, so there must be none")
    alone = _alone(verification, allowance)
    for index, bound in enumerate(certificate.bounds):
        _check_bound(verification, index, bound, alone)
    verification.faults = [cut(fault, _LONGEST) for fault in verification.faults]
    return verification


def _compare_with_rewritten(verification: DevicesVerification, document: dict[str, Any]) -> None:
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
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        for name in found:
            below = f"{place}.{name}" if place else name
            yield from _differences(found[name], expected[name], below)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for index, pair in enumerate(zip(found, expected, strict=True)):
            yield from _differences(*pair, f"{place}[{index}]")
    elif type(found) is not type(expected) or found != expected:
        yield place, found, expected


def _alone(verification: DevicesVerification, allowance: Allowance) -> int:
    """Return what one device alone takes at least: its operations, or more if that is proved."""
    certificate = verification.certificate
    step = certificate.problem.step.plain()
    computing = step.trace.compute_time
    bound = certificate.alone
    if bound is None:
        return computing
    if bound.evidence is not Evidence.PROVED:
        verification.faults.append(f"alone: it must be proved, not {bound.evidence}")
        return computing
    try:
        fault = recheck(bound, step, allowance)
    except (BeyondLimitsError, MemoryError) as error:
        verification.unverified.append(f"alone: not verified within the limits: {error}")
        return computing
    if fault is not None:
        verification.faults.append(f"alone: {fault}")
        return computing
    return max(computing, bound.value)


def _check_bound(verification: DevicesVerification, index: int, bound: Bound, alone: int) -> None:
    place = f"bounds[{index}] ({cut(bound.method)})"
    objective = verification.certificate.objective
    if objective is not None and bound.value > objective:
        verification.faults.append(f"{place}: {bound.value} exceeds the objective {objective}")
    if bound.evidence is Evidence.PROVED:
        fault = _fault(verification, bound, alone)
        finding = "computed again" if fault is None else fault
        if fault is not None:
            # What it rests on may be what took too long.
            rests = verification.unverified and not verification.faults
            (verification.unverified if rests else verification.faults).append(f"{place}: {fault}")
    elif bound.method == MODEL and bound.evidence is Evidence.ATTESTED:
        finding = f"claimed by {solver_of(bound) or 'one solver'}; not checked again"
    else:
        finding = f"no {bound.evidence} bound is known by this name"
        verification.faults.append(f"{place}: {finding}")
    verification.bounds.append((bound, cut(finding, _LONGEST)))


def _fault(verification: DevicesVerification, bound: Bound, alone: int) -> str | None:
    problem = verification.certificate.problem
    if bound.method == DEVICE:
        if bound.details:
            return "it has details, and needs none"
        return None if bound.value <= alone else f"one device is known to take {alone} only"
    if bound.method != RESOURCE:
        return "no proof is known for a bound of this name"
    try:
        proof = ResourceProof.read(bound.details, len(problem.gradients), len(problem.step.trace))
    except InputError as error:
        return str(error)
    return resource_fault(problem, alone, bound.value, proof)
