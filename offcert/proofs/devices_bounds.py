"""The registry of bounds for several devices, and the proof that some work on a resource is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from offcert.core.documents import Fields, parse_rational, rational_text, show
from offcert.core.errors import InputError
from offcert.core.forms import IntegerOrNull, Member, formed
from offcert.proofs.kinds.computed import Computed
from offcert.proofs.proof import Claimable, Proof, Provable
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


class _Jobs:
    rule = "an object: for each kind of job a list of integers of at least 0, all different"

    def read(self, fields: Fields, name: str) -> Mapping[JobKind, tuple[int, ...]]:
        jobs: dict[JobKind, tuple[int, ...]] = {}
        given, place = fields.get(name, dict), fields.path(name)
        for kind in given:
            if kind not in tuple(JobKind):
                raise InputError(f"{place} names {show(kind)}, which is no kind of job")
            which = Fields(given, place).integers(kind, 0)
            if len(set(which)) < len(which):
                raise InputError(f"{place}.{kind} repeats a gradient")
            jobs[JobKind(kind)] = which
        return jobs

    def write(self, value: Mapping[JobKind, tuple[int, ...]]) -> dict[str, Any]:
        return {str(kind): list(which) for kind, which in value.items()}


class _Multipliers:
    rule = "a list of pairs: an operation, each once, and a rational"

    def read(self, fields: Fields, name: str) -> Mapping[int, Fraction]:
        found: dict[int, Fraction] = {}
        place = fields.path(name)
        for row in fields.get(name, list):
            if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], str):
                raise InputError(f"{place} must hold pairs, not {show(row)}")
            if type(row[0]) is not int or row[0] in found or row[0] < 0:
                raise InputError(f"{place} must name operations, each once, not {show(row[0])}")
            found[row[0]] = parse_rational(row[1], place)
        return found

    def write(self, value: Mapping[int, Fraction]) -> list[list[Any]]:
        return [[operation, rational_text(each)] for operation, each in sorted(value.items())]


@dataclass(frozen=True)
class ResourceProof(Proof):
    """A proof that some work on one resource takes so long, from its head to its tail.

    Attributes
    ----------
    resource : Resource
        The resource.
    jobs : mapping
        For each kind of job that counts, the gradients whose jobs do.
    multipliers : mapping of int to Fraction
        For operations, how much a byte that must be absent meanwhile counts: any numbers that are
        not negative prove something. Empty: activations are not counted.
    after : int or None
        An operation: count the prefetches of what must be absent while it runs, all after it.
        At most one of this and the multipliers.
    """

    resource: Resource = formed(Member(Resource))
    jobs: Mapping[JobKind, tuple[int, ...]] = formed(_Jobs())
    multipliers: Mapping[int, Fraction] = formed(_Multipliers())
    after: int | None = formed(IntegerOrNull(0), None)

    def write(self) -> dict[str, Any]:
        """Return the details of a bound, as a JSON value; what is not counted is null."""
        return {**super().write(), "after": self.after}


_PROOFS = (
    Provable(
        DEVICE,
        Computed,
        "devices.bounds:alone",
        "the step of one device that has the link to itself",
        "several-gpus",
    ),
    Provable(
        RESOURCE,
        ResourceProof,
        "devices.bounds:resource",
        "work on one resource, from its head to its tail",
        "several-gpus",
    ),
)

DEVICES_PROOFS: dict[str, Provable] = {kind.method: kind for kind in _PROOFS}
DEVICES_CLAIMS: dict[str, Claimable] = {
    MODEL: Claimable(MODEL, ("CP-SAT",), "the least step of all devices", "several-gpus")
}
