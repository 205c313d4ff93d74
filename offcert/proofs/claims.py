"""Bounds as their finders state them: proved, claimed by a solver, or found but not verifiable.

One solver's claim supports another's if these are two formulations on two different solvers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from offcert.core.result import Bound, Evidence
from offcert.proofs.proof import Claimable, Proof
from offcert.proofs.registry import OWN, PROOFS, kind_of

# Who claims a bound that is not proved.
SOLVER = "solver"

# The same solver has several names: two formulations on one of them attest nothing together.
_FAMILIES = {
    "scipy": "HiGHS",
    "HiGHS_CMD": "HiGHS",
    "PULP_CBC_CMD": "CBC",
    "OR-Tools CP-SAT": "CP-SAT",
}


def family(solver: str) -> str:
    """Return the name under which all that are the same solver inside attest."""
    return _FAMILIES.get(solver, solver)


def proved(method: str, value: int, proof: Proof) -> Bound:
    """Return a bound that verification establishes again."""
    return PROOFS[method].bound(value, proof)


def claimed(method: str, value: int, solver: str, statistics: Mapping[str, Any]) -> Bound:
    """Return a bound that rests on a solver's word.

    Parameters
    ----------
    method : str
        Its name in the registry.
    value : int
        Ticks.
    solver : str
        Name of the solver that claims it.
    statistics : mapping
        JSON values that are good to know: sizes, settings, the solver's own words.
    """
    # A certificate says the same on every machine, so it holds nothing read from a clock.
    kept = {
        name: item
        for name, item in statistics.items()
        if "seconds" not in name and name != "time_limit"
    }
    return Bound(method, value, Evidence.ATTESTED, kept | {SOLVER: family(solver)})


def searched(method: str, value: int, proof: Proof | Mapping[str, Any]) -> Bound:
    """Return a bound that our own search found, and that is too much to search again."""
    details = proof.write() if isinstance(proof, Proof) else dict(proof)
    return Bound(method, value, Evidence.ATTESTED, details | {SOLVER: OWN})


def solver_of(bound: Bound) -> str | None:
    """Return whose claim a bound is; None if it does not say."""
    name = bound.details.get(SOLVER)
    return name if isinstance(name, str) else None


class BoundKind(Protocol):
    """A registry's row of a kind of bound."""

    @property
    def families(self) -> tuple[str, ...]:
        """Solvers whose word it may be."""


def witness(
    bounds: Sequence[Bound], index: int, kinds: Callable[[str], BoundKind | None] = kind_of
) -> Bound | None:
    """Return a bound that cross-attests bound number `index`, or None.

    It reaches at least the same value, with another formulation on another solver.

    Parameters
    ----------
    bounds : sequence of Bound
        All that there are.
    index : int
        The index of the one that is attested.
    kinds : callable
        Returns what the registry to which they belong knows of a name.
    """
    bound = bounds[index]
    if not _can_attest(bound, kinds):
        return None
    for other in bounds:
        if (
            _can_attest(other, kinds)
            and other.value >= bound.value
            and _formulation(other, kinds) != _formulation(bound, kinds)
            and solver_of(other) != solver_of(bound)
        ):
            return other
    return None


def cross_attested(
    bounds: Sequence[Bound], kinds: Callable[[str], BoundKind | None] = kind_of
) -> list[Bound]:
    """Return bounds, those that are attested with more evidence if another solver reaches them."""
    return [
        replace(bound, evidence=Evidence.CROSS_ATTESTED)
        if bound.evidence is Evidence.ATTESTED and witness(bounds, index, kinds) is not None
        else bound
        for index, bound in enumerate(bounds)
    ]


def _formulation(bound: Bound, kinds: Callable[[str], BoundKind | None]) -> str:
    kind = kinds(bound.method)
    return (kind.formulation if isinstance(kind, Claimable) else "") or bound.method


def _can_attest(bound: Bound, kinds: Callable[[str], BoundKind | None]) -> bool:
    kind = kinds(bound.method)
    attestable = kind is not None and solver_of(bound) in kind.families
    return attestable and bound.evidence is not Evidence.PROVED
