"""Bounds and statuses as JSON, as all documents that claim something hold them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from offcert.core.documents import rational_text
from offcert.core.forms import OBJECT, TEXT, Integer, Member, Record
from offcert.core.result import Bound, Evidence

_BOUND = Record(Bound, method=TEXT, value=Integer(0), evidence=Member(Evidence), details=OBJECT)
# Returns the bound that a JSON object describes.
bound_from_json = _BOUND.read


def bounds_to_json(bounds: Sequence[Bound]) -> list[dict[str, Any]]:
    """Return bounds as a JSON value."""
    return list(map(_BOUND.write, bounds))


def exact_gap(objective: int | None, lower_bound: int) -> str | None:
    """Return ``(objective - bound) / objective`` as a rational; None without an objective."""
    if objective is None:
        return None
    return rational_text(Fraction(objective - lower_bound, max(objective, 1)))
