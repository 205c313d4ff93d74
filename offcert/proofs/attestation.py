"""When one solver's claim supports another's: two formulations on two different solvers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from offcert.core.result import Bound, Evidence
from offcert.proofs.claims import solver_of
from offcert.proofs.registry import kind_of


class Kind(Protocol):
    """A registry's row of a kind of bound."""

    @property
    def families(self) -> tuple[str, ...]:
        """Solvers whose word it may be."""


def witness(
    bounds: Sequence[Bound], index: int, kinds: Callable[[str], Kind | None] = kind_of
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
            and other.method != bound.method
            and solver_of(other) != solver_of(bound)
        ):
            return other
    return None


def cross_attested(
    bounds: Sequence[Bound], kinds: Callable[[str], Kind | None] = kind_of
) -> list[Bound]:
    """Return bounds, those that are attested with more evidence if another solver reaches them."""
    return [
        replace(bound, evidence=Evidence.CROSS_ATTESTED)
        if bound.evidence is Evidence.ATTESTED and witness(bounds, index, kinds) is not None
        else bound
        for index, bound in enumerate(bounds)
    ]


def _can_attest(bound: Bound, kinds: Callable[[str], Kind | None]) -> bool:
    kind = kinds(bound.method)
    attestable = kind is not None and solver_of(bound) in kind.families
    return attestable and bound.evidence is not Evidence.PROVED
