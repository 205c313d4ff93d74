"""`PlacementCertificate`: addresses, bounds on the pool, and their origin.

The registry of bounds on pools is here, too: proved, or somebody's word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.forms import Integer, OrNull, integers, member
from offcert.core.later import Later
from offcert.core.notebook import html
from offcert.core.result import SolveStatus
from offcert.proofs.any_certificate import BOUNDS, AnyCertificate
from offcert.proofs.kinds.computed import Computed as Computed
from offcert.proofs.proof import Claimable, Proof, Provable
from offcert.proofs.questions import PLACEMENT
from offcert.proofs.registry import OWN
from offcert.proofs.registry import claimed as claimed
from offcert.proofs.registry import searched as searched
from offcert.questions.placement.files import POOL, RESIDENCE
from offcert.questions.placement.problem import (
    Occupant,
    Placement,
    PlacementProblem,
    PlacementResult,
    Residence,
)

if TYPE_CHECKING:
    import offcert.verification.placement_bounds


@dataclass(frozen=True, repr=False)
class PlacementCertificate(AnyCertificate[PlacementProblem]):
    """A claim about a placement problem, and the evidence for it.

    Attributes
    ----------
    problem : PlacementProblem
        Embedded whole.
    result : PlacementResult
        Status, addresses and bounds.
    occupants : tuple of Occupant or None
        Where the residences are those of a schedule, and this is a part of its certificate: what
        each is of.
    """

    question = PLACEMENT

    result: PlacementResult
    occupants: tuple[Occupant, ...] | None = None

    @property
    def pool(self) -> PlacementCertificate:
        """The certificate itself."""
        return self

    def summary(self) -> str:
        """Return status, pool, bound and gap in a line for people."""
        return self.result.summary(self.problem.units)

    def _repr_html_(self) -> str:
        return html(self)

    def _write_answer(self) -> dict[str, Any]:
        placement = self.result.placement
        return {"addresses": None if placement is None else list(placement.addresses)}

    @classmethod
    def _read_answer(cls, fields: Fields, problem: PlacementProblem) -> dict[str, Any]:
        addresses = None
        if fields.get("addresses", (list, type(None))) is not None:
            addresses = fields.integers("addresses")
            _require_one_each(addresses, len(problem.residences), "addresses")
        return {"result": _result(fields, problem, addresses)}

    def part_to_json(self) -> dict[str, Any]:
        """Return the field ``placement`` of the certificate of a schedule."""
        assert self.occupants is not None
        placement = self.result.placement
        count = len(self.problem.residences)
        addresses = [None] * count if placement is None else placement.addresses
        rows = zip(self.occupants, self.problem.residences, addresses, strict=True)
        return {
            **POOL.write(self.problem),
            **self._write_claims(),
            "residences": [
                {of.kind: of.index, **RESIDENCE.write(each), "address": address}
                for of, each, address in rows
            ],
        }

    @classmethod
    def part_from_json(cls, value: Any, name: str) -> PlacementCertificate:
        """Return the addresses in the field ``placement`` of a certificate, without verifying them.

        The name is that of the certificate's problem.
        """
        fields = Fields(value, "placement")
        rows = [_row_from_json(item) for item in fields.each("residences")]
        residences = [residence for _, residence, _ in rows]
        problem = PlacementProblem(name, residences, **POOL.values(fields))
        found = [address for *_, address in rows if address is not None]
        if found:
            _require_one_each(found, len(rows), "placement.residences[].address")
        # Without residences there is nothing to tell apart; then the status says it.
        none = not found and (bool(rows) or fields.get("objective", (int, type(None))) is None)
        result = _result(fields, problem, None if none else tuple(found))
        occupants = tuple(occupant for occupant, *_ in rows)
        certificate = cls._read_claims(fields, problem, {"result": result, "occupants": occupants})
        fields.finish()
        return certificate


def _result(
    fields: Fields, problem: PlacementProblem, addresses: tuple[int, ...] | None
) -> PlacementResult:
    placement = None if addresses is None else Placement(addresses)
    return PlacementResult(
        member(SolveStatus, fields.get("status", str), fields.path("status")),
        placement,
        # Derived; what the document says is compared with it.
        None if placement is None else placement.pool(problem),
        BOUNDS.read(fields, "bounds"),
    )


def _row_from_json(item: Fields) -> tuple[Occupant, Residence, int | None]:
    kinds = [kind for kind in ("tensor", "workspace") if item.has(kind)]
    if len(kinds) != 1:
        raise InputError(f'{item.path("tensor")} or else "workspace" must say what it is of')
    occupant = Occupant(kinds[0], item.integer(kinds[0], 0))
    residence = Residence(**RESIDENCE.values(item))
    address = OrNull(Integer(), int).read(item, "address")
    item.finish()
    return occupant, residence, address


def _require_one_each(addresses: object, count: int, field: str) -> None:
    assert isinstance(addresses, (list, tuple))
    if len(addresses) != count:
        raise InputError(f"{field} must be {count}, one a residence, not {len(addresses)}")


@dataclass(frozen=True, kw_only=True)
class InfeasibleSubset(Proof):
    """Residences that do not fit into any pool smaller than the bound.

    Attributes
    ----------
    residences : tuple of int
        Numbers of the residences.
    """

    residences: tuple[int, ...] = integers(0)


_PROOFS = (
    Provable(
        "load",
        Computed,
        Later(lambda: offcert.verification.placement_bounds.load),
        "the most bytes that are taken at a time",
        "placement",
    ),
    Provable(
        "infeasible-subset",
        InfeasibleSubset,
        Later(lambda: offcert.verification.placement_bounds.infeasible_subset),
        "the least pool of some of the residences, all ways of stacking them looked at",
        "placement-search",
        searched=True,
    ),
)

_CLAIMS: tuple[Claimable, ...] = (
    Claimable(
        "skyline",
        (OWN,),
        "the search over points has been through all smaller pools",
        "placement-search",
    ),
    Claimable(
        "no_overlap_cpsat",
        ("CP-SAT",),
        "the pool of rectangles that do not overlap",
        "placement-search",
    ),
)

PLACEMENT_PROOFS: dict[str, Provable] = {kind.method: kind for kind in _PROOFS}
PLACEMENT_CLAIMS: dict[str, Claimable] = {kind.method: kind for kind in _CLAIMS}


def placement_kind_of(method: str) -> Provable | Claimable | None:
    """Return the row of the registry for bounds with a name, or None if the name is unknown."""
    return PLACEMENT_PROOFS.get(method) or PLACEMENT_CLAIMS.get(method)
