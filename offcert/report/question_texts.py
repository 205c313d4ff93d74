"""Texts about several devices and split steps, for programs and for people."""

from __future__ import annotations

from collections import Counter
from typing import Any

from offcert.core.units import format_gap, format_size, format_time
from offcert.proofs.devices_certificate import DevicesCertificate
from offcert.proofs.split_certificate import SplitCertificate
from offcert.report.findings import Text, claimed_bounds, notes_lines, notes_summary
from offcert.verification.document import Verification


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
        "bounds": claimed_bounds(certificate.bounds),
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


def step_summary(certificate: SplitCertificate) -> dict[str, Any]:
    """Return the claims about a step as JSON values; times in ticks."""
    step = certificate.problem
    chosen = certificate.split
    return {
        "name": step.name,
        "batch": step.batch,
        "memory": step.platform.memory,
        "status": str(certificate.status),
        "sub_batch": None if chosen is None else step.sizes[chosen],
        "objective": certificate.objective,
        "lower_bound": certificate.lower_bound,
        "gap": None if certificate.objective is None else certificate.gap,
        "sub_batches": [
            {"size": size, "lower_bound": certificate.split_bound(number)}
            for number, size in enumerate(step.sizes)
        ],
        "alternatives": dict(_alternatives(certificate)),
        **notes_summary(certificate.notes),
    }


def describe_step(certificate: SplitCertificate) -> str:
    """Return the claims about a step for people."""
    step, units = certificate.problem, certificate.problem.units
    memory = format_size(step.platform.memory, units)
    lines = [f"{step.name}, batch {step.batch}, at {memory}: {certificate.status}"]
    if certificate.split is not None and certificate.objective is not None:
        lines.append(f"  sub-batch      {step.sizes[certificate.split]}")
        time = format_time(certificate.objective, units, certificate.lower_bound)
        lines.append(f"  step           {time}")
    if certificate.lower_bound is not None:
        least = format_time(certificate.lower_bound, units, certificate.objective)
        lines.append(f"  lower bound    {least} (proved)")
    if certificate.objective is not None:
        lines.append(f"  gap            {format_gap(certificate.gap)}")
    counts = ", ".join(f"{count} {name}" for name, count in _alternatives(certificate).items())
    if counts:
        lines.append(f"  alternatives   {counts}")
    for number, size in enumerate(step.sizes):
        bound = certificate.split_bound(number)
        said = "does not fit" if bound is None else f"at least {format_time(bound, units)}"
        lines.append(f"  sub-batch {size:>5}  {said}")
    return "\n".join([*lines, *notes_lines(certificate.notes)])


def _alternatives(certificate: SplitCertificate) -> Counter[str]:
    """Return how often each alternative was chosen, in the rounds of the split that was chosen."""
    counts: Counter[str] = Counter()
    if certificate.split is not None:
        rounds = certificate.problem.splits[certificate.split].rounds
        for each, answer in zip(rounds, certificate.rounds, strict=True):
            # A forged choice may be none from this menu.
            for (_, row), number in zip(each.menu.offers, answer.choice, strict=False):
                if number < len(row):
                    counts[row[number].name] += 1
    return Counter(dict(sorted(counts.items())))


def _describe_valid_step(verification: Verification[SplitCertificate]) -> str:
    certificate = verification.certificate
    units = certificate.problem.units
    lines = [f"VALID: {certificate.status}"]
    if certificate.lower_bound is not None:
        bound = format_time(certificate.lower_bound, units, certificate.objective)
        value = "none"
        if certificate.objective is not None:
            value = format_time(certificate.objective, units, certificate.lower_bound)
        lines.append(f"  step {value}, lower bound {bound} (proved)")
    return "\n".join([*lines, *describe_step(certificate).splitlines()[1:]])


SPLIT: Text = Text(
    step_summary,
    describe_step,
    lambda verification: step_summary(verification.certificate),
    _describe_valid_step,
)
