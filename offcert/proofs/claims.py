"""Bounds as their finders state them: proved, claimed by a solver, or found but not verifiable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offcert.core.result import Bound, Evidence
from offcert.proofs.proof import Proof
from offcert.proofs.registry import OWN, PROOFS

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
