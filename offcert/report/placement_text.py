"""Texts about addresses: values for programs, a few lines for people."""

from __future__ import annotations

from typing import Any

from offcert.core.result import SolveStatus
from offcert.core.units import Units, format_gap, format_size
from offcert.proofs.certificate import Certificate
from offcert.proofs.placement_certificate import PlacementCertificate
from offcert.proofs.split_certificate import SplitCertificate
from offcert.report.findings import Text, claimed_bounds, notes_summary
from offcert.verification.document import Verification
from offcert.verification.findings import CheckedBound


def placement_summary(placed: PlacementCertificate) -> dict[str, Any]:
    """Return claims about addresses as JSON values; sizes in the problem's units."""
    problem, result = placed.problem, placed.result
    summary: dict[str, Any] = {
        "name": problem.name,
        "residences": len(problem.residences),
        "load": problem.load,
        "capacity": problem.capacity,
        "alignment": problem.alignment,
        "status": str(result.status),
        "objective": result.pool,
        "lower_bound": result.lower_bound,
        "evidence": None if result.evidence is None else str(result.evidence),
        "proved_bound": result.proved_bound,
        "gap": None if result.pool is None else result.gap,
        "runtime": result.runtime,
        "bounds": claimed_bounds(result.bounds),
    }
    if placed.notes.shortened:
        summary["shortened"] = True
    return summary | notes_summary(placed.notes)


def describe_placement(placed: PlacementCertificate) -> str:
    """Return claims about addresses for people."""
    problem, result, units = placed.problem, placed.result, placed.problem.units
    within = "" if problem.capacity is None else f" within {exact_size(problem.capacity, units)}"
    lines = [
        f"{problem.name}{within}: {result.status}",
        f"  residences   {len(problem.residences)}",
        f"  load         {exact_size(problem.load, units)}",
    ]
    if placed.notes.shortened:
        lines.append("  schedule     shortened, with the same step time")
    if result.pool is not None:
        lines.append(f"  pool         {exact_size(result.pool, units)}")
    elif result.status is SolveStatus.UNKNOWN:
        lines.append("  no addresses within the capacity are known")
    lines.append(f"  lower bound  {exact_size(result.lower_bound, units)}{result.word}")
    if result.pool is not None:
        lines.append(f"  gap          {format_gap(result.gap)}{result.word}")
    for step, message in placed.notes.failed.items():
        lines.append(f"  {step} failed: {message}")
    lines.append(f"  found in     {result.runtime:.1f} s")
    for bound in result.bounds:
        value = format_size(bound.value, units)
        lines.append(f"  bound {value:>14}  {bound.method} ({bound.evidence})")
    return "\n".join(lines)


def placed_summary(certificate: Certificate) -> dict[str, Any]:
    """Return the claims about the addresses in a certificate as JSON values."""
    assert certificate.placement is not None
    limit = certificate.executed.platform.memory
    pool = certificate.placement.result.pool
    return {
        **placement_summary(certificate.placement),
        "memory": limit,
        "fits": pool is not None and pool <= limit,
    }


def describe_placed(certificate: Certificate) -> str:
    """Return the claims about the addresses in a certificate for people."""
    assert certificate.placement is not None
    return "\n".join([describe_placement(certificate.placement), *_limit_lines(certificate)])


def placed_step_summary(step: SplitCertificate) -> dict[str, Any]:
    """Return the claims about the addresses in the rounds of a step as JSON values."""
    placed = [each.certificate for each in step.rounds]
    rounds = [None if each.placement is None else placed_summary(each) for each in placed]
    pools = [None if each is None else each["objective"] for each in rounds]
    known = [pool for pool in pools if pool is not None]
    return {
        "name": step.problem.name,
        # Rounds run one after the other, in the same memory.
        "objective": max(known) if len(known) == len(pools) else None,
        "memory": step.problem.platform.memory,
        "fits": all(each is not None and each["fits"] for each in rounds),
        "rounds": rounds,
    }


def describe_placed_step(step: SplitCertificate) -> str:
    """Return the claims about the addresses in the rounds of a step for people."""
    lines = []
    for number, each in enumerate(step.rounds, 1):
        lines.append(f"round {number} of {len(step.rounds)}")
        placed = each.certificate.placement is not None
        lines.append(describe_placed(each.certificate) if placed else "  has not been placed")
    return "\n".join(lines)


def _limit_lines(certificate: Certificate) -> list[str]:
    """Return lines that compare the pool with the memory limit of the schedule."""
    assert certificate.placement is not None
    pool = certificate.placement.result.pool
    limit, units = certificate.executed.platform.memory, certificate.problem.units
    if pool is None:
        return []
    said = f"memory limit {exact_size(limit, units)}"
    over = exact_size(pool - limit, units)
    return [f"  {said}: {'the pool fits' if pool <= limit else f'the pool needs {over} more'}"]


def exact_size(size: int, units: Units) -> str:
    """Return a size for people, with its bytes: pools may differ in a few."""
    short = format_size(size, units)
    return short if units.size != "B" or size < 1024 else f"{short} ({size} B)"


def _describe_valid(verification: Verification[PlacementCertificate]) -> str:
    placed = verification.certificate
    lines = [f"VALID: {placed.result.status}"]
    return "\n".join([*lines, *_checked_lines(placed, verification.bounds)])


def valid_placement_lines(verification: Verification[Certificate]) -> list[str]:
    """Return for people what was found of the addresses in a valid certificate, if it has some."""
    placed = verification.certificate.placement
    if placed is None:
        return []
    found = _checked_lines(placed, verification.placement_bounds)
    return [
        f"  addresses {placed.result.status}",
        *(f"  {line}" for line in (*found, *_limit_lines(verification.certificate))),
    ]


def _checked_lines(placed: PlacementCertificate, bounds: list[CheckedBound]) -> list[str]:
    problem, result, units = placed.problem, placed.result, placed.problem.units
    pool = "none" if result.pool is None else exact_size(result.pool, units)
    least = exact_size(result.lower_bound, units)
    lines = []
    if result.status is not SolveStatus.INFEASIBLE:
        lines.append(f"  pool {pool}, lower bound {least} ({result.evidence or 'none'})")
    if result.placement is not None:
        lines.append(f"  {len(problem.residences)} residences, no two of which overlap")
    for bound in bounds:
        value = format_size(bound.value, units)
        lines.append(f"  bound {value:>14}  {bound.method}: {bound.evidence}, {bound.finding}")
    return lines


PLACEMENT: Text = Text(placement_summary, describe_placement, describe_valid=_describe_valid)
# Texts of `offcert place` about certificates to which it has added addresses.
OF_SCHEDULE: Text = Text(placed_summary, describe_placed)
OF_SPLIT: Text = Text(placed_step_summary, describe_placed_step)
