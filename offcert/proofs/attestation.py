"""When one solver's claim supports another's: two formulations on two different solvers."""

from __future__ import annotations

from collections.abc import Sequence

from offcert.core.result import Bound, Evidence

# Solvers that can attest, under one name each: HiGHS is the same inside SciPy and on its own.
SOLVERS = ("CP-SAT", "HiGHS", "CBC")
# Formulations that are solved by one of them.
FORMULATIONS = (
    "fluid-milp",
    "fluid-lp",
    "fluid-exact",
    "stage-milp",
    "time-indexed-cpsat",
    "time-indexed-milp",
    "disjunctive-milp",
    "interval-cpsat",
)


def witness(bounds: Sequence[Bound], index: int) -> Bound | None:
    """Return a bound that cross-attests bound number `index`, or None.

    It reaches at least the same value, with another formulation on another solver.
    """
    bound = bounds[index]
    if not _can_attest(bound):
        return None
    for other in bounds:
        if (
            _can_attest(other)
            and other.value >= bound.value
            and other.method != bound.method
            and other.details["solver"] != bound.details["solver"]
        ):
            return other
    return None


def _can_attest(bound: Bound) -> bool:
    return (
        bound.evidence is not Evidence.PROVED
        and bound.method in FORMULATIONS
        and bound.details.get("solver") in SOLVERS
    )
