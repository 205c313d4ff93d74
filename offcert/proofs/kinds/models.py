"""Bounds that rest on a solver's word: exact models."""

from __future__ import annotations

from offcert.proofs.kind import ALL, ClaimKind
from offcert.questions.schedule.problem import Minimise, Recompute

CLAIMS = (
    ClaimKind(
        "stage-milp",
        ("HiGHS", "CBC"),
        "who is absent during which operation, without times",
        page="models",
    ),
    ClaimKind(
        "time-indexed-cpsat", ("CP-SAT",), "starts on a grid of time, by clauses", page="models"
    ),
    ClaimKind(
        "time-indexed-milp",
        ("HiGHS", "CBC"),
        "starts on a grid of time, as a linear model",
        page="models",
    ),
    ClaimKind(
        "disjunctive-milp",
        ("HiGHS", "CBC"),
        "orders of transfers, as a linear model",
        page="models",
    ),
    ClaimKind("interval-cpsat", ("CP-SAT",), "interval variables", page="models"),
)

# Of recomputation alone.
RECOMPUTATION = (
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
