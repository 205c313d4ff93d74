"""The registry of bounds: under which name each stands in a certificate, and what supports it.

Everything that treats kinds of bounds differently asks here: the search when it writes a bound,
verification when it reads one, attestation, the list of methods, tests and documentation. A new
kind of proof is a dataclass and a row in a file of `offcert.proofs.kinds`, and a verifier.
"""

from __future__ import annotations

from offcert.proofs.kinds import computed, labels, memory, multipliers
from offcert.proofs.proof import ALL, ClaimKind, ProofKind
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

_RECOMPUTATION = (
    *(
        ClaimKind(
            f"{name}{suffix}",
            families,
            f"{unit} of recomputation alone, {summary}",
            page="rematerialisation",
            transfers=ALL,
            recompute=again,
            minimise=minimise,
            offload=frozenset({False}),
        )
        for name, families, summary, again in (
            (
                "retention-cpsat",
                ("CP-SAT",),
                "by intervals over which copies are kept",
                frozenset({Recompute.ANY}),
            ),
            (
                "recompute-stages",
                ("HiGHS", "CBC"),
                "who runs again in which stage, in no order",
                frozenset({Recompute.ANY}),
            ),
        )
        for suffix, unit, minimise in (
            ("", "time", Minimise.TIME),
            ("-memory", "bytes", Minimise.MEMORY),
        )
    ),
)

_PROOFS = (*computed.PROOFS, *labels.PROOFS, *multipliers.JOINT, *memory.PROOFS)
_CLAIMS = (*multipliers.FLUID_CLAIMS, *_MODELS, *multipliers.JOINT_CLAIMS, *_RECOMPUTATION)

PROOFS: dict[str, ProofKind] = {kind.method: kind for kind in _PROOFS}
CLAIMS: dict[str, ClaimKind] = {kind.method: kind for kind in _CLAIMS}

# The solver named where a search of ours claims a bound, as verification could not search as much.
OWN = "offcert"


def kind_of(method: str) -> ProofKind | ClaimKind | None:
    """Return the row of the registry for bounds with a name, or None if the name is unknown."""
    return PROOFS.get(method) or CLAIMS.get(method)
