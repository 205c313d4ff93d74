"""The registry of bounds: the name of each kind in certificates, and the evidence for it.

Everything that treats kinds of bounds differently asks here: the search when it writes a bound,
verification when it reads one, attestation, the list of methods, tests and documentation. A new
kind of proof is a dataclass and a row in a file of `offcert.proofs.kinds`, and a verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from offcert.core.result import Bound, Evidence
from offcert.proofs.kinds import computed, labels, multipliers
from offcert.proofs.proof import ALL, Claimable, ClaimKind, Proof, ProofKind, Provable
from offcert.questions.schedule.problem import Minimise, Recompute, Transfers

# Bounds that rest on a solver's word: exact models of offloading, and of recomputation alone.
_MODELS = (
    ClaimKind(
        "stage-milp",
        ("HiGHS", "CBC"),
        "who is absent during which operation, without times",
        page="models",
    ),
    *(
        ClaimKind(
            f"{name}-{way}",
            families,
            f"starts on a grid of time{alone}, {said}",
            page="models",
            formulation="time-indexed",
            transfers=frozenset(transfers),
        )
        for name, alone, transfers in (
            ("time-indexed", "", {Transfers.ATOMIC}),
            ("pure", " and nothing else", {Transfers.ATOMIC, Transfers.INTERRUPTIBLE}),
        )
        for way, families, said in (
            ("cpsat", ("CP-SAT",), "by clauses"),
            ("milp", ("HiGHS", "CBC"), "as a linear model"),
        )
    ),
    ClaimKind("interval-cpsat", ("CP-SAT",), "interval variables", page="models"),
)

_RECOMPUTATION = tuple(
    ClaimKind(
        f"{name}{suffix}",
        families,
        f"{unit} of recomputation alone, {summary}",
        page="rematerialisation",
        transfers=ALL,
        recompute=frozenset({Recompute.ANY}),
        minimise=minimise,
        offload=frozenset({False}),
    )
    for name, families, summary in (
        ("retention-cpsat", ("CP-SAT",), "by intervals over which copies are kept"),
        ("recompute-stages", ("HiGHS", "CBC"), "who runs again in which stage, in no order"),
    )
    for suffix, unit, minimise in (
        ("", "time", Minimise.TIME),
        ("-memory", "bytes", Minimise.MEMORY),
    )
)

_PROOFS = (*computed.PROOFS, *labels.PROOFS, *multipliers.JOINT, *computed.MEMORY)
_CLAIMS = (*multipliers.FLUID_CLAIMS, *_MODELS, *multipliers.JOINT_CLAIMS, *_RECOMPUTATION)

PROOFS: dict[str, ProofKind] = {kind.method: kind for kind in _PROOFS}
CLAIMS: dict[str, ClaimKind] = {kind.method: kind for kind in _CLAIMS}

# The solver named where a search of ours claims a bound, as verification could not search as much.
OWN = "offcert"


def kind_of(method: str) -> ProofKind | ClaimKind | None:
    """Return the row of the registry for bounds with a name, or None if the name is unknown."""
    return PROOFS.get(method) or CLAIMS.get(method)


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
    """Return the one name for all solvers that are the same inside."""
    return _FAMILIES.get(solver, solver)


def proved(method: str, value: int, proof: Proof) -> Bound:
    """Return a bound that verification establishes again."""
    return PROOFS[method].bound(value, proof)


def claimed(method: str, value: int, solver: str, statistics: Mapping[str, Any]) -> Bound:
    """Return a bound, in ticks or bytes, that rests on a solver's word.

    The statistics are JSON values that are good to know: sizes, settings, the solver's own words.
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
    """Return the solver that claims a bound; None if it does not say."""
    name = bound.details.get(SOLVER)
    return name if isinstance(name, str) else None


# What a registry says of a name.
Kinds = Callable[[str], Provable | Claimable | None]


def witness(bounds: Sequence[Bound], index: int, kinds: Kinds = kind_of) -> Bound | None:
    """Return a bound that cross-attests bound number `index` of those that there are, or None.

    It reaches at least the same value, with another formulation on another solver. `kinds` returns
    what the registry to which they belong knows of a name.
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


def cross_attested(bounds: Sequence[Bound], kinds: Kinds = kind_of) -> list[Bound]:
    """Return bounds, those that are attested with more evidence if another solver reaches them."""
    return [
        replace(bound, evidence=Evidence.CROSS_ATTESTED)
        if bound.evidence is Evidence.ATTESTED and witness(bounds, index, kinds) is not None
        else bound
        for index, bound in enumerate(bounds)
    ]


def _formulation(bound: Bound, kinds: Kinds) -> str:
    kind = kinds(bound.method)
    return (kind.formulation if isinstance(kind, Claimable) else "") or bound.method


def _can_attest(bound: Bound, kinds: Kinds) -> bool:
    kind = kinds(bound.method)
    attestable = isinstance(kind, Claimable) and solver_of(bound) in kind.families
    return attestable and bound.evidence is not Evidence.PROVED
