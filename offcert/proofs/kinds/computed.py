"""Bounds that are computed from the problem, and what their proofs name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offcert.core.forms import integer
from offcert.core.later import Later
from offcert.proofs.proof import ALL, SIMPLEX, WHOLE_OR_PAUSING, Proof, ProofKind

if TYPE_CHECKING:
    import offcert.verification.fractional
    import offcert.verification.sums


@dataclass(frozen=True, kw_only=True)
class Computed(Proof):
    """Nothing: the bound is computed from the problem alone."""


@dataclass(frozen=True, kw_only=True)
class LargeTensors(Proof):
    """The fractional optimum with large tensors as wholes.

    Attributes
    ----------
    smallest : int
        Bytes of a tensor that counts as large.
    """

    smallest: int = integer(1)


@dataclass(frozen=True, kw_only=True)
class ExactSums(Proof):
    """Sums of bytes that may be absent where most has to be, looked at one by one.

    Attributes
    ----------
    pivot : int
        The operation.
    smallest : int
        Bytes of a tensor that counts as a whole.
    """

    pivot: int = integer(0)
    smallest: int = integer(1)


PROOFS = (
    ProofKind(
        "prop3",
        Computed,
        Later(lambda: offcert.verification.fractional.prop3),
        "computing time, or what must move at the worst operation, both ways",
        page="prop3",
        at_once=True,
        transfers=ALL,
    ),
    ProofKind(
        "prop3-subset-sum",
        Computed,
        Later(lambda: offcert.verification.fractional.prop3_whole),
        "as prop3, with what must move rounded up to what whole tensors make up",
        page="whole-tensors",
        at_once=True,
        transfers=WHOLE_OR_PAUSING,
    ),
    ProofKind(
        "fractional",
        Computed,
        Later(lambda: offcert.verification.fractional.fractional),
        "the optimum if any part of any tensor may move",
        page="fractional",
        at_once=True,
        transfers=ALL,
    ),
    ProofKind(
        "fractional-pieces",
        Computed,
        Later(lambda: offcert.verification.fractional.fractional_pieces),
        "the fractional optima of the pieces of a step between which nothing is away",
        page="pieces",
        at_once=True,
        transfers=ALL,
    ),
    ProofKind(
        "fractional-subset-sum",
        Computed,
        Later(lambda: offcert.verification.fractional.fractional_whole),
        "as fractional, with what must be absent rounded up to what whole tensors make up",
        page="whole-tensors",
        at_once=True,
    ),
    ProofKind(
        "fractional-large-tensors",
        LargeTensors,
        Later(lambda: offcert.verification.fractional.large_tensors),
        "as fractional, with large tensors as wholes and small ones in parts",
        page="large-tensors",
        at_once=True,
    ),
    ProofKind(
        "fractional-large-tensors-returns",
        LargeTensors,
        Later(lambda: offcert.verification.fractional.large_tensors_returns),
        "as fractional-large-tensors, where returns that stop the device are cut out",
        page="forced-returns",
        at_once=True,
        links=SIMPLEX,
    ),
    ProofKind(
        "exact-sums",
        ExactSums,
        Later(lambda: offcert.verification.sums.exact_sums),
        "every sum of whole tensors that may be absent where most has to be",
        page="exact-sums",
    ),
)
