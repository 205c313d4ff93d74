"""What is certified of a box of uncertain times, for programs and for people."""

from __future__ import annotations

from typing import Any

from offcert.core.result import relative_gap
from offcert.core.units import format_time
from offcert.proofs.certificate import Certificate
from offcert.report.findings import checked_bounds
from offcert.verify.findings import CheckedBound


def robust_summary(
    certificate: Certificate, checked: list[CheckedBound] | None = None
) -> dict[str, Any]:
    """Return what holds in the whole box as JSON values, times in ticks; empty without a box."""
    claim = certificate.robust
    if claim is None:
        return {}
    return {
        "robust": {
            "objective": claim.objective,
            "lower_bound": claim.lower_bound,
            "gap": claim.gap,
            **({} if checked is None else {"bounds": checked_bounds(checked)}),
        }
    }


def band_text(certificate: Certificate) -> str:
    """Return for people from what to what a step may take anywhere in the box."""
    claim, units = certificate.robust, certificate.problem.units
    assert claim is not None
    return f"{format_time(claim.lower_bound, units)} to {format_time(claim.objective, units)}"


def robust_lines(certificate: Certificate) -> list[str]:
    """Return what holds in the whole box for people: no line without one."""
    claim = certificate.robust
    if claim is None:
        return []
    fast, slow = (
        certificate.problem.corner(fastest=fastest).trace.compute_time for fastest in (True, False)
    )
    return [
        f"  uncertain    {band_text(certificate)}, whatever the times in the box are",
        f"  robust gap   {100 * claim.gap:.4f} % (of computing alone: "
        f"{100 * relative_gap(slow, fast):.4f} %)",
    ]
