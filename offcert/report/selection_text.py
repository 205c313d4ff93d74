"""Texts about selections: values for programs, a few lines for people."""

from __future__ import annotations

from typing import Any

from offcert.proofs.selection_certificate import SelectionCertificate
from offcert.report.findings import Text


def _summary(certificate: SelectionCertificate) -> dict[str, Any]:
    return {
        "name": certificate.name,
        "model": certificate.model,
        "stored": list(certificate.stored),
        "objective": certificate.objective,
        "lower_bound": certificate.lower_bound,
    }


def _describe(certificate: SelectionCertificate) -> str:
    stored = " ".join(map(str, certificate.stored)) or "nothing"
    bound = "the least there is"
    if certificate.lower_bound < certificate.objective:
        bound = f"all others at least {certificate.lower_bound}"
    return (
        f"{certificate.name}, model {certificate.model}\n"
        f"  stored         {stored}\n"
        f"  takes          {certificate.objective} bytes, {bound} (proved)"
    )


SELECTION: Text = Text(
    _summary,
    _describe,
    lambda verification: _summary(verification.certificate),
    lambda verification: f"VALID: {_describe(verification.certificate)}",
)
