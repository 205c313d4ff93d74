"""What `verify` says of every kind of document, as values for programs."""

from __future__ import annotations

from typing import Any

from offcert.verify.findings import CheckedBound, Findings


def findings_summary(found: Findings) -> dict[str, Any]:
    """Return whether a document is valid, and what is wrong or was left open, as JSON values."""
    return {
        "valid": found.valid,
        "outcome": str(found.outcome),
        "faults": found.faults,
        "unverified": found.unverified,
    }


def checked_bounds(bounds: list[CheckedBound]) -> list[dict[str, Any]]:
    """Return what was found of bounds as JSON values."""
    return [
        {
            "method": bound.method,
            "value": bound.value,
            "evidence": str(bound.evidence),
            "finding": bound.finding,
        }
        for bound in bounds
    ]
