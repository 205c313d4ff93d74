"""Verification of certificates for several devices."""

from __future__ import annotations

from typing import Any

from offcert.core.result import Evidence
from offcert.proofs.devices_certificate import DEVICES_CLAIMS, DEVICES_PROOFS, DevicesCertificate
from offcert.questions.devices.schedule import check_devices
from offcert.verification.devices_bounds import SingleDeviceTimes
from offcert.verification.findings import BoundCheck, Verification, recheck
from offcert.verification.limits import Allowance, BeyondLimitsError


def check_devices_certificate(
    verification: Verification[DevicesCertificate], document: Any, allowance: Allowance
) -> None:
    """Check the schedule event by event, and compute the bounds again."""
    certificate = verification.certificate
    step = certificate.problem.step
    short = step.trace.least_memory > step.platform.memory
    if certificate.schedule is not None:
        found = check_devices(certificate.problem, certificate.schedule)
        verification.faults += [f"schedule: {fault}" for fault in found]
    elif short and certificate.bounds:
        verification.faults.append("bounds: no schedule exists, so there must be none")
    known = SingleDeviceTimes(certificate.problem, *_alone(verification, allowance))
    bounds = BoundCheck(
        certificate,
        known,
        DEVICES_PROOFS,
        DEVICES_CLAIMS,
        allowance,
        intact=not verification.faults,
        closed=True,
    )
    verification.bounds += bounds.run(verification)


def _alone(
    verification: Verification[DevicesCertificate], allowance: Allowance
) -> tuple[int, bool]:
    """Return the least ticks of one device alone, and whether a claim of more is left open.

    The least ticks are those of its operations, or more if that is proved.
    """
    certificate = verification.certificate
    step = certificate.problem.step.plain()
    computing = step.trace.compute_time
    bound = certificate.alone
    if bound is None:
        return computing, False
    if bound.evidence is not Evidence.PROVED:
        verification.faults.append(f"alone: it must be proved, not {bound.evidence}")
        return computing, False
    try:
        fault = recheck(bound, step, allowance)
    except (BeyondLimitsError, MemoryError) as error:
        verification.unverified.append(f"alone: not verified within the limits: {error}")
        return computing, True
    if fault is not None:
        verification.faults.append(f"alone: {fault}")
        return computing, False
    return max(computing, bound.value), False
