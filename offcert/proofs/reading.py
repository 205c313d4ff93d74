"""Reading certificates, whatever they answer."""

from __future__ import annotations

from typing import Any

from offcert.core.named import named
from offcert.proofs.questions import QUESTIONS, SCHEDULE, Question


def question_of(document: Any) -> Question:
    """Return what a JSON value answers, by its format; a schedule's where that is not known."""
    known = isinstance(document, dict) and isinstance(document.get("format"), str)
    return QUESTIONS.get(document["format"], SCHEDULE) if known else SCHEDULE


def certificate_of(question: Question, document: Any) -> Any:
    """Return the certificate that a JSON value describes, without verifying what it claims.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    certificate: Any = named("proofs", question.certificate)
    return certificate.from_json(document)
