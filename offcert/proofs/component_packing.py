"""A bound on what recomputation on a graph can save: packings of sets that are too heavy.

Any connected set of vertices that weighs more than a limit holds a stored vertex if no component
may weigh more. If sets have multipliers so that no vertex is charged more than its bytes, what is
stored weighs at least as much as the multipliers together.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from offcert.core.documents import Fields, parse_rational, require_format
from offcert.core.errors import InputError

FORMAT, VERSION = "offcert-component-packing", 1


@dataclass(frozen=True, slots=True)
class HeavySet:
    """A connected set of inner vertices that are not all left out.

    Attributes
    ----------
    vertices : tuple of int
        Increasing.
    multiplier : Fraction
        Bytes, positive.
    """

    vertices: tuple[int, ...]
    multiplier: Fraction


@dataclass(frozen=True, slots=True)
class Packing:
    """Heavy sets that together charge no vertex more than its bytes."""

    sets: tuple[HeavySet, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """Either a vertex is stored, or it is not.

    Attributes
    ----------
    vertex : int
        An inner vertex, decided for the first time.
    stored, left_out : Case or Packing
        The rest of the proof in either case.
    """

    vertex: int
    stored: Case | Packing
    left_out: Case | Packing


@dataclass(frozen=True, slots=True)
class LimitProof:
    """How much has to be stored if no component has more bytes than a limit.

    Attributes
    ----------
    limit : int
        Bytes.
    cases : Case or Packing
        From which the amount follows.
    """

    limit: int
    cases: Case | Packing


@dataclass(frozen=True, slots=True)
class PackingBound:
    """No selection has fewer stored bytes and bytes of its largest component together.

    Attributes
    ----------
    value : int
        Bytes.
    limits : tuple of LimitProof
        Decreasing limits. Each says enough for the largest components from its limit down to where
        the next one begins.
    """

    value: int
    limits: tuple[LimitProof, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the bound as a JSON value."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "value": self.value,
            "limits": [
                {"limit": each.limit, "cases": _cases_to_json(each.cases)} for each in self.limits
            ],
        }


def packing_bound_from_json(document: Any) -> PackingBound:
    """Return the bound that a JSON value holds.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(document)
    require_format(fields, FORMAT, VERSION)
    value = fields.integer("value", 0)
    limits = []
    for item in fields.each("limits"):
        limits.append(LimitProof(item.integer("limit", 0), _cases_from_json(item, "cases")))
        item.finish()
    fields.finish()
    return PackingBound(value, tuple(limits))


def _cases_to_json(cases: Case | Packing) -> dict[str, Any]:
    if isinstance(cases, Case):
        return {
            "vertex": cases.vertex,
            "stored": _cases_to_json(cases.stored),
            "left_out": _cases_to_json(cases.left_out),
        }
    return {
        "sets": [
            {"vertices": list(each.vertices), "multiplier": str(each.multiplier)}
            for each in cases.sets
        ]
    }


def _cases_from_json(parent: Fields, name: str) -> Case | Packing:
    fields = Fields(parent.get(name, dict), parent.path(name))
    if "vertex" in parent.get(name, dict):
        try:
            case = Case(
                fields.integer("vertex", 0),
                _cases_from_json(fields, "stored"),
                _cases_from_json(fields, "left_out"),
            )
        except RecursionError:
            raise InputError("limits hold more cases inside of cases than can be read") from None
        fields.finish()
        return case
    sets = []
    for item in fields.each("sets"):
        multiplier = parse_rational(item.get("multiplier", str), item.path("multiplier"))
        sets.append(HeavySet(item.integers("vertices", 0), multiplier))
        item.finish()
    fields.finish()
    return Packing(tuple(sets))
