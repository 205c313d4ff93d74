"""Reading certificates, whatever they answer."""

from __future__ import annotations

from typing import Any

from offcert.proofs.questions import QUESTIONS, SCHEDULE, Question


def question_of(document: Any) -> Question:
    """Return the question that a JSON value answers, by its format; if unknown, a schedule's."""
    known = isinstance(document, dict) and isinstance(document.get("format"), str)
    return QUESTIONS.get(document["format"], SCHEDULE) if known else SCHEDULE


def asked_by(problem: object) -> Question | None:
    """Return the question that a problem asks, by its class; None if it is no problem."""
    # By name: whoever asks for one question loads no other.
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(problem).__mro__}
    rows = QUESTIONS.values()
    return next((row for row in rows if row.problem and row.problem.name in names), None)


def certificate_of(question: Question, document: Any) -> Any:
    """Return the certificate that a JSON value describes, without verifying what it claims."""
    return question.certificate.load().from_json(document)
