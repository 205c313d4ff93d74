"""Proofs of bounds for several devices: the work on one resource that shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from offcert.core.documents import Fields, parse_rational, rational_text, show
from offcert.core.errors import InputError
from offcert.questions.devices.problem import JobKind

# How bounds for several devices are called in certificates.
DEVICE, RESOURCE, MODEL = "devices-alone", "devices-resource", "devices-cpsat"


class Resource(StrEnum):
    """A resource that does one thing at a time (the host: one a core).

    ``LINK``: both directions of a simplex link. ``OUT``, ``BACK``: a direction of a duplex link.
    ``ADDER``: who adds gradients up.
    """

    LINK = "link"
    OUT = "out"
    BACK = "back"
    ADDER = "adder"


@dataclass(frozen=True)
class ResourceProof:
    """A proof that some work on one resource takes so long, from its head to its tail.

    Attributes
    ----------
    resource : Resource
        Which.
    jobs : mapping
        For each kind of job that counts, the gradients whose jobs do.
    multipliers : mapping of int to Fraction
        For operations, how much a byte that must be absent meanwhile counts: any numbers that are
        not negative prove something. Empty: activations are not counted.
    after : int or None
        An operation: count the prefetches of what must be absent while it runs, all after it.
        At most one of this and the multipliers.
    """

    resource: Resource
    jobs: Mapping[JobKind, tuple[int, ...]]
    multipliers: Mapping[int, Fraction]
    after: int | None = None

    def write(self) -> dict[str, Any]:
        """Return the proof as a JSON value."""
        return {
            "resource": str(self.resource),
            "jobs": {str(kind): list(which) for kind, which in self.jobs.items()},
            "multipliers": [
                [operation, rational_text(value)]
                for operation, value in sorted(self.multipliers.items())
            ],
            "after": self.after,
        }

    @classmethod
    def read(cls, details: Mapping[str, Any], gradients: int, operations: int) -> ResourceProof:
        """Return the proof that a JSON value describes.

        Raises
        ------
        InputError
            If a field is missing, unknown or names something that does not exist.
        """
        fields = Fields(dict(details), "details")
        name = fields.get("resource", str)
        if name not in tuple(Resource):
            raise InputError(f"details.resource is not known: {show(name)}")
        jobs = {}
        given = fields.get("jobs", dict)
        for kind in given:
            if kind not in tuple(JobKind):
                raise InputError(f"details.jobs names {show(kind)}, which is no kind of job")
            which = Fields(given, "details.jobs").integers(kind, 0)
            if len(set(which)) < len(which) or any(each >= gradients for each in which):
                raise InputError(f"details.jobs.{kind} repeats a gradient or names one too many")
            jobs[JobKind(kind)] = which
        multipliers: dict[int, Fraction] = {}
        for row in fields.get("multipliers", list):
            operation, value = _multiplier(row)
            if operation in multipliers or not 0 <= operation < operations:
                raise InputError(f"details.multipliers names operation {operation} wrongly")
            multipliers[operation] = value
        after = fields.optional("after", (int, type(None)))
        if after is not None:
            after = fields.integer("after", 0)
            if after >= operations or multipliers:
                raise InputError("details.after names no operation, or is beside multipliers")
        fields.finish()
        return cls(Resource(name), jobs, multipliers, after)


def _multiplier(row: Any) -> tuple[int, Fraction]:
    if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], str):
        raise InputError(f"details.multipliers must hold pairs, not {show(row)}")
    if type(row[0]) is not int:
        raise InputError(f"details.multipliers must name operations, not {show(row[0])}")
    return row[0], parse_rational(row[1], "details.multipliers")
