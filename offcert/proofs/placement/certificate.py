"""`PlacementCertificate`: addresses, bounds on the pool, and where all came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offcert.core.documents import (
    Fields,
    canonical_digest,
    read_document,
    require_format,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.notebook import html
from offcert.core.placement import Occupant, Placement, PlacementProblem, PlacementResult, Residence
from offcert.core.placement_files import (
    placement_problem_digest,
    placement_problem_from_json,
    placement_problem_to_json,
)
from offcert.core.result import SolveStatus
from offcert.core.units import Units
from offcert.proofs.bounds_json import bound_from_json, bounds_to_json, exact_gap, member
from offcert.proofs.settings import Notes, Settings
from offcert.proofs.settings import from_json as settings_from_json
from offcert.proofs.settings import to_json as settings_to_json

PLACEMENT_FORMAT = "offcert-placement"
PLACEMENT_VERSION = 1


@dataclass(frozen=True)
class PlacementCertificate:
    """What is claimed about a placement problem, and the evidence for it.

    Attributes
    ----------
    problem : PlacementProblem
        Embedded whole.
    result : PlacementResult
        Status, addresses and bounds.
    method : str
        ``"place"`` or the name of the single method that ran.
    settings : Settings
        What it was asked.
    notes : Notes
        What it remarked beside the result.
    versions : mapping
        Of this program and of what it computed with.
    occupants : tuple of Occupant or None
        Where the residences are those of a schedule, and this is a part of its certificate: what
        each is of.
    """

    problem: PlacementProblem
    result: PlacementResult
    method: str
    settings: Settings = field(default_factory=Settings)
    notes: Notes = field(default_factory=Notes)
    versions: Mapping[str, str] = field(default_factory=dict)
    occupants: tuple[Occupant, ...] | None = None

    def __repr__(self) -> str:
        summary = self.result.summary(self.problem.units)
        return f"<PlacementCertificate {cut(self.problem.name)}: {summary}>"

    def _repr_html_(self) -> str:
        return html(self)

    def to_json(self) -> dict[str, Any]:
        """Return a document of its own as a JSON value (``offcert-placement``, version 1)."""
        placement = self.result.placement
        document: dict[str, Any] = {
            "format": PLACEMENT_FORMAT,
            "version": PLACEMENT_VERSION,
            "problem": placement_problem_to_json(self.problem),
            "problem_sha256": placement_problem_digest(self.problem),
            **_claims_to_json(self),
            "addresses": None if placement is None else list(placement.addresses),
        }
        document["digest"] = canonical_digest(document)
        return document

    def part_to_json(self) -> dict[str, Any]:
        """Return the field ``placement`` of the certificate of a schedule."""
        assert self.occupants is not None
        placement, units = self.result.placement, self.problem.units
        count = len(self.problem.residences)
        addresses = [None] * count if placement is None else placement.addresses
        rows = zip(self.occupants, self.problem.residences, addresses, strict=True)
        return {
            "capacity": self.problem.capacity,
            "alignment": self.problem.alignment,
            "units": {"time": units.time, "size": units.size},
            **_claims_to_json(self),
            "residences": [
                {
                    of.kind: of.index,
                    "name": each.name,
                    "size": each.size,
                    "start": each.start,
                    "end": each.end,
                    "address": address,
                }
                for of, each, address in rows
            ],
        }

    def write(self, path: str | Path) -> None:
        """Write the document to a file, through a temporary one."""
        write_json(path, self.to_json())


def read_placement(path: str | Path) -> PlacementCertificate:
    """Return the placement document in a file, without verifying what it claims.

    Raises
    ------
    InputError
        If the file cannot be read or is no such document.
    """
    return read_document(path, placement_from_json)


def placement_from_json(document: Any) -> PlacementCertificate:
    """Return what a document of its own says, without verifying it.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(document)
    require_format(fields, PLACEMENT_FORMAT, PLACEMENT_VERSION)
    problem = placement_problem_from_json(fields.get("problem", dict), "problem")
    addresses = None
    if fields.get("addresses", (list, type(None))) is not None:
        addresses = fields.integers("addresses")
        _require_one_each(addresses, len(problem.residences), "addresses")
    certificate = _claims_from_json(fields, problem, addresses)
    # What these say is derived; `verify` compares it with what it ought to be.
    for name in ("problem_sha256", "digest"):
        fields.get(name, str)
    fields.finish()
    return certificate


def placement_part_from_json(value: Any, name: str) -> PlacementCertificate:
    """Return what the field ``placement`` of a certificate says, without verifying it.

    Parameters
    ----------
    value : object
        The JSON value.
    name : str
        Of the certificate's problem.
    """
    fields = Fields(value, "placement")
    units = Fields(fields.get("units", dict), fields.path("units"))
    rows = [_row_from_json(item) for item in fields.each("residences")]
    limited = fields.get("capacity", (int, type(None))) is not None
    problem = PlacementProblem(
        name,
        [residence for _, residence, _ in rows],
        fields.integer("capacity", 0) if limited else None,
        fields.integer("alignment", 1),
        Units(units.get("time", str), units.get("size", str)),
    )
    units.finish()
    found = [address for *_, address in rows if address is not None]
    if found:
        _require_one_each(found, len(rows), "placement.residences[].address")
    # Without residences there is nothing to tell apart; then the status says it.
    none = not found and (bool(rows) or fields.get("objective", (int, type(None))) is None)
    occupants = tuple(occupant for occupant, *_ in rows)
    certificate = _claims_from_json(fields, problem, None if none else tuple(found), occupants)
    fields.finish()
    return certificate


def _row_from_json(item: Fields) -> tuple[Occupant, Residence, int | None]:
    kinds = [kind for kind in ("tensor", "workspace") if item.has(kind)]
    if len(kinds) != 1:
        raise InputError(f'{item.path("tensor")} or else "workspace" must say what it is of')
    occupant = Occupant(kinds[0], item.integer(kinds[0], 0))
    residence = Residence(
        item.get("name", str), item.integer("size", 0), item.integer("start"), item.integer("end")
    )
    address = None
    if item.get("address", (int, type(None))) is not None:
        address = item.integer("address")
    item.finish()
    return occupant, residence, address


def _require_one_each(addresses: object, count: int, field: str) -> None:
    assert isinstance(addresses, (list, tuple))
    if len(addresses) != count:
        raise InputError(f"{field} must be {count}, one a residence, not {len(addresses)}")


def _claims_to_json(certificate: PlacementCertificate) -> dict[str, Any]:
    result = certificate.result
    return {
        "status": str(result.status),
        "objective": result.pool,
        "lower_bound": result.lower_bound,
        "gap": exact_gap(result.pool, result.lower_bound),
        "bounds": bounds_to_json(result.bounds),
        "method": certificate.method,
        "settings": settings_to_json(certificate.settings, certificate.notes),
        "versions": dict(certificate.versions),
    }


def _claims_from_json(
    fields: Fields,
    problem: PlacementProblem,
    addresses: tuple[int, ...] | None,
    occupants: tuple[Occupant, ...] | None = None,
) -> PlacementCertificate:
    placement = None if addresses is None else Placement(addresses)
    result = PlacementResult(
        member(SolveStatus, fields.get("status", str), fields.path("status")),
        placement,
        # Derived, as the next two are; what the document says is compared with it.
        None if placement is None else placement.pool(problem),
        tuple(bound_from_json(item) for item in fields.each("bounds")),
    )
    fields.get("objective", (int, type(None)))
    fields.get("gap", (str, type(None)))
    fields.integer("lower_bound")
    settings, notes = settings_from_json(fields.get("settings", dict), fields.path("settings"))
    method, versions = fields.get("method", str), fields.get("versions", dict)
    return PlacementCertificate(problem, result, method, settings, notes, versions, occupants)
