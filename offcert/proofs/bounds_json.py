"""Bounds and statuses as JSON, as all documents that claim something hold them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from offcert.core.documents import Fields, rational_text
from offcert.core.errors import InputError
from offcert.core.messages import show
from offcert.core.result import Bound, Evidence


def bounds_to_json(bounds: Sequence[Bound]) -> list[dict[str, Any]]:
    """Return bounds as a JSON value."""
    return [
        {
            "method": bound.method,
            "value": bound.value,
            "evidence": str(bound.evidence),
            "details": dict(bound.details),
        }
        for bound in bounds
    ]


def bound_from_json(item: Fields) -> Bound:
    """Return the bound that a JSON object describes."""
    bound = Bound(
        item.get("method", str),
        item.integer("value", 0),
        member(Evidence, item.get("evidence", str), item.path("evidence")),
        item.get("details", dict),
    )
    item.finish()
    return bound


def member(kind: Any, value: str, place: str) -> Any:
    """Return the member of an enumeration that a text names."""
    if value not in tuple(kind):
        names = ", ".join(f'"{item}"' for item in kind)
        raise InputError(f"{place} must be one of {names}, not {show(value)}")
    return kind(value)


def exact_gap(objective: int | None, lower_bound: int) -> str | None:
    """Return ``(objective - bound) / objective`` as a rational; None without an objective."""
    if objective is None:
        return None
    return rational_text(Fraction(objective - lower_bound, max(objective, 1)))
