"""What the commands say of selections: values for programs, a few lines for people."""

from __future__ import annotations

from typing import Any

from offcert.report.findings import findings_summary
from offcert.verify.selection.document import SelectionVerification


def selection_verification_summary(verification: SelectionVerification) -> dict[str, Any]:
    """Return the outcome of a verification as JSON values."""
    certificate = verification.certificate
    return {
        **findings_summary(verification),
        "name": certificate.name,
        "model": certificate.model,
        "stored": list(certificate.stored),
        "objective": certificate.objective,
        "lower_bound": certificate.lower_bound,
    }


def describe_valid_selection(verification: SelectionVerification) -> str:
    """Return for people what was established of a selection's certificate."""
    certificate = verification.certificate
    stored = " ".join(map(str, certificate.stored)) or "nothing"
    bound = "the least there is"
    if certificate.lower_bound < certificate.objective:
        bound = f"all others at least {certificate.lower_bound}"
    return (
        f"VALID: {certificate.name}, model {certificate.model}\n"
        f"  stored         {stored}\n"
        f"  takes          {certificate.objective} bytes, {bound} (proved)"
    )
