"""Texts about certificates and their verification, whatever they answer.

Of a plan on another problem, too: one JSON object for programs, a few lines for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offcert.core.result import Bound, Evidence
from offcert.core.units import format_gap, format_size, format_time
from offcert.proofs.any_certificate import Notes
from offcert.questions.schedule.problem import format_objective
from offcert.report.execution import times_lines
from offcert.verification.document import Verification
from offcert.verification.findings import CheckedBound

if TYPE_CHECKING:
    # It loads NumPy, which texts do without.
    from offcert.verification.elsewhere import Elsewhere


def elsewhere_summary(found: Elsewhere) -> dict[str, Any]:
    """Return the outcome of a plan on another problem as JSON values; times in ticks."""
    return {
        "legal": found.legal,
        "fault": found.fault,
        "problem": found.problem.name,
        "objective": found.objective,
        "makespan": None if found.schedule is None else found.schedule.makespan,
        "peak": found.peak,
        "lower_bound": found.lower_bound,
        "gap": found.gap if found.legal else None,
        "bounds": [{"method": b.method, "value": b.value} for b in found.bounds],
        "unverified": list(found.unverified),
    }


def describe_elsewhere(found: Elsewhere) -> str:
    """Return the outcome of a plan on another problem for people."""
    problem = found.problem
    if found.schedule is None or found.peak is None:
        return f"NOT LEGAL on {problem.name}\n  {found.fault}"
    ticks, units = found.schedule.makespan, problem.units
    slowdown = ticks / max(1, problem.trace.compute_time)
    limit = format_size(problem.platform.memory, units)
    lines = [
        f"LEGAL on {problem.name}",
        f"  step time    {format_time(ticks, units)} ({slowdown:.3f} times the compute time)",
        f"  peak         {format_size(found.peak, units)} of {limit}",
        f"  lower bound  {format_objective(found.lower_bound, problem)} on that problem (proved)",
        f"  gap          {format_gap(found.gap)} to that bound",
        *times_lines(problem),
    ]
    for bound in found.bounds:
        value = format_objective(bound.value, problem)
        lines.append(f"  bound {value:>14}  {bound.method}")
    lines += [f"  not computed within the limits: {reason}" for reason in found.unverified]
    return "\n".join(lines)


def notes_summary(notes: Notes) -> dict[str, Any]:
    """Return the failures and interrupts of a search as JSON values; only those that were."""
    said: dict[str, Any] = {}
    if notes.no_plan is not None:
        said["no_plan"] = notes.no_plan
    if notes.failed:
        said["failed"] = dict(notes.failed)
    if notes.interrupted:
        said["interrupted"] = True
    return said


def notes_lines(notes: Notes) -> list[str]:
    """Return for people that a search was interrupted, why it found no plan, and what failed."""
    lines = ["  interrupted: this is the best that was known then"] if notes.interrupted else []
    lines += [] if notes.no_plan is None else [f"  {notes.no_plan}"]
    return [*lines, *(f"  {step} failed: {message}" for step, message in notes.failed.items())]


@dataclass(frozen=True)
class Text:
    """The functions that make texts about certificates which answer one question."""

    summary: Callable[[Any], dict[str, Any]]  # Returns what a certificate claims as JSON values.
    describe: Callable[[Any], str]  # Returns it for people.
    # Returns what a verification found as JSON values; by default what holds for all.
    checked: Callable[[Verification[Any]], dict[str, Any]] | None = None
    # Returns for people what was found of a certificate that is valid.
    describe_valid: Callable[[Verification[Any]], str] | None = None

    def said(self, certificate: Any) -> tuple[dict[str, Any], str]:
        """Return a certificate's claims, for programs and for people."""
        return self.summary(certificate), self.describe(certificate)

    def verified(self, verification: Verification[Any]) -> tuple[dict[str, Any], str]:
        """Return the findings of verification, for programs and for people."""
        checked = known_summary if self.checked is None else self.checked
        text = describe_not_valid(verification)
        if text is None:
            assert self.describe_valid is not None
            text = self.describe_valid(verification)
        return findings_summary(verification) | checked(verification), text


def findings_summary(found: Verification[Any]) -> dict[str, Any]:
    """Return whether a document is valid, with its faults and open bounds, as JSON values."""
    return {
        "valid": found.valid,
        "outcome": str(found.outcome),
        "faults": found.faults,
        "unverified": found.unverified,
    }


def known_summary(verification: Verification[Any]) -> dict[str, Any]:
    """Return status, objective, and the findings about bounds as JSON values."""
    known, evidence = verification.certificate.known, verification.evidence
    return {
        "status": str(verification.certificate.status),
        "objective": known.objective,
        "lower_bound": known.lower_bound,
        "evidence": None if evidence is None else str(evidence),
        "bounds": checked_bounds(verification.bounds),
    }


def claimed_bounds(bounds: Iterable[Bound | CheckedBound]) -> list[dict[str, Any]]:
    """Return bounds with the evidence that is claimed as JSON values."""
    return [
        {"method": each.method, "value": each.value, "evidence": str(each.evidence)}
        for each in bounds
    ]


def checked_bounds(bounds: list[CheckedBound]) -> list[dict[str, Any]]:
    """Return bounds with the findings about them as JSON values."""
    claims = zip(claimed_bounds(bounds), bounds, strict=True)
    return [claim | {"finding": bound.finding} for claim, bound in claims]


def best_first(bounds: Iterable[Bound]) -> list[Bound]:
    """Return bounds by decreasing value, of equal ones the best supported first."""
    ranks = list(Evidence)
    return sorted(bounds, key=lambda bound: (-bound.value, ranks.index(bound.evidence)))


def describe_not_valid(findings: Verification[Any]) -> str | None:
    """Return for people why something is not valid, or not verified; None if it is."""
    if findings.faults:
        return "\n".join(["INVALID", *(f"  {fault}" for fault in findings.faults)])
    return describe_unverified(findings.unverified) if findings.unverified else None


def describe_unverified(reasons: Sequence[str]) -> str:
    """Return for people what the limits did not allow to verify."""
    return "\n".join(["NOT VERIFIED within the limits", *(f"  {reason}" for reason in reasons)])
