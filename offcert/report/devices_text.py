"""Texts about several devices: values for programs, a few lines for people."""

from __future__ import annotations

from typing import Any

from offcert.core.units import format_gap, format_time
from offcert.proofs.devices_certificate import DevicesCertificate
from offcert.report.findings import Text, notes_lines, notes_summary
from offcert.verify.document import Verification


def devices_summary(certificate: DevicesCertificate) -> dict[str, Any]:
    """Return a certificate's claims as JSON values; times in ticks."""
    problem = certificate.problem
    return {
        "name": problem.name,
        "devices": problem.devices,
        "gradients": len(problem.gradients),
        "place": str(problem.accumulation.place),
        "status": str(certificate.status),
        "objective": certificate.objective,
        "lower_bound": certificate.lower_bound,
        "gap": None if certificate.objective is None else certificate.gap,
        "found_by": certificate.found_by,
        "bounds": [
            {"method": b.method, "value": b.value, "evidence": str(b.evidence)}
            for b in certificate.bounds
        ],
        **notes_summary(certificate.notes),
    }


def describe_devices(certificate: DevicesCertificate) -> str:
    """Return a certificate's claims for people."""
    problem, units = certificate.problem, certificate.problem.step.units
    computing = problem.step.trace.compute_time
    lines = [
        f"{problem.name}: {certificate.status}",
        f"  devices      {problem.devices}, gradients added up by the {problem.accumulation.place}",
        f"  computing    {format_time(computing, units)} on each",
    ]
    if certificate.objective is not None:
        time = format_time(certificate.objective, units, certificate.lower_bound)
        lines.append(f"  makespan     {time}")
    least = format_time(certificate.lower_bound, units, certificate.objective)
    lines.append(f"  lower bound  {least}{certificate.known.word}")
    if certificate.objective is not None:
        lines.append(f"  gap          {format_gap(certificate.gap)}{certificate.known.word}")
        lines.append(f"  found by     {certificate.found_by}")
    lines += notes_lines(certificate.notes)
    for bound in certificate.bounds:
        what = bound.details.get("resource")
        name = bound.method if what is None else f"{bound.method}, {what}"
        lines.append(f"  bound {format_time(bound.value, units):>14}  {name} ({bound.evidence})")
    return "\n".join(lines)


def _describe_valid(verification: Verification[DevicesCertificate]) -> str:
    units = verification.certificate.problem.step.units
    lines = [f"VALID: {verification.certificate.summary()} ({verification.evidence})"]
    for each in verification.bounds:
        value = format_time(each.value, units)
        lines.append(f"  bound {value:>14}  {each.method} ({each.evidence}): {each.finding}")
    return "\n".join(lines)


DEVICES: Text = Text(devices_summary, describe_devices, describe_valid=_describe_valid)
