"""Verification of certificates for several devices."""

from __future__ import annotations

from typing import Any

from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.result import Bound, Evidence
from offcert.proofs.claims import solver_of
from offcert.proofs.devices_bounds import DEVICE, MODEL, RESOURCE, ResourceProof
from offcert.proofs.devices_certificate import DevicesCertificate
from offcert.questions.devices.check import check_devices
from offcert.verify.devices.bounds import resource_fault
from offcert.verify.findings import LONGEST, CheckedBound, Verification
from offcert.verify.limits import Allowance, BeyondLimitsError
from offcert.verify.recheck import recheck


def check_devices_certificate(
    verification: Verification[DevicesCertificate], document: Any, allowance: Allowance
) -> None:
    """Check the schedule event by event, and compute the bounds again.

    Parameters
    ----------
    verification : Verification
        To which what is found is added.
    document : object
        The JSON value that holds the certificate.
    allowance : Allowance
        What checking may take.
    """
    certificate = verification.certificate
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


def _alone(verification: Verification[DevicesCertificate], allowance: Allowance) -> int:
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


def _check_bound(
    verification: Verification[DevicesCertificate], index: int, bound: Bound, alone: int
) -> None:
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
    verification.bounds.append(
        CheckedBound(bound.method, bound.value, bound.evidence, cut(finding, LONGEST))
    )


def _fault(verification: Verification[DevicesCertificate], bound: Bound, alone: int) -> str | None:
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
