"""When one solver's claim supports another's: two formulations on two different solvers."""

from __future__ import annotations

from collections.abc import Sequence

from offcert.core.result import Bound, Evidence
from offcert.proofs.claims import solver_of
from offcert.proofs.registry import kind_of


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
            and solver_of(other) != solver_of(bound)
        ):
            return other
    return None


def _can_attest(bound: Bound) -> bool:
    kind = kind_of(bound.method)
    attestable = kind is not None and solver_of(bound) in kind.families
    return attestable and bound.evidence is not Evidence.PROVED
