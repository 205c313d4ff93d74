"""Bounds on time that are computed from the problem, and on the bytes that a deadline takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offcert.core.forms import OBJECT, TEXT, formed, integer
from offcert.core.later import Later
from offcert.proofs.proof import ALL, SIMPLEX, WHOLE_OR_PAUSING, Proof, ProofKind
from offcert.questions.schedule.problem import Minimise

if TYPE_CHECKING:
    import offcert.verification.findings
    import offcert.verification.fractional
    import offcert.verification.least_memory
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


@dataclass(frozen=True, kw_only=True)
class LeastMemoryCut(Proof):
    """A cut of executions at one computation, and prices of the time that saves bytes there.

    Attributes
    ----------
    computation : int
        During whose first run bytes are counted.
    unit : int
        By which bytes are multiplied, so that prices are integers.
    computing_price, moving_price : int
        For a tick of running again and a tick of the link, in bytes times `unit`.
    """

    computation: int = integer(0)
    unit: int = integer(1)
    computing_price: int = integer(0)
    moving_price: int = integer(0)


@dataclass(frozen=True, kw_only=True)
class MemoryByTime(Proof):
    """A bound on time, at a limit at which it exceeds the deadline.

    Attributes
    ----------
    limit : int
        Bytes.
    method : str
        The name of the bound on time within that limit.
    ticks : int
        Its value.
    details : mapping
        Its own details.
    """

    limit: int = integer(0)
    method: str = formed(TEXT)
    ticks: int = integer(0)
    details: Mapping[str, Any] = formed(OBJECT)


MEMORY = tuple(
    ProofKind(
        method,
        proof,
        verifier,
        summary,
        page="least-memory",
        searched=proof is MemoryByTime,
        transfers=ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    )
    for method, proof, verifier, summary in (
        (
            "least-memory-run",
            Computed,
            Later(lambda: offcert.verification.least_memory.single_run),
            "bytes of the run that needs most, or of what is there at the start",
        ),
        (
            "least-memory-kept",
            Computed,
            Later(lambda: offcert.verification.least_memory.kept),
            "bytes below which what cannot be made again in time would have to stay, and does not "
            "fit",
        ),
        (
            "least-memory-cut",
            LeastMemoryCut,
            Later(lambda: offcert.verification.least_memory.cut),
            "bytes that are there during one run, at prices for running again and for moving",
        ),
        (
            "least-memory-by-time",
            MemoryByTime,
            Later(lambda: offcert.verification.findings.by_time),
            "the bytes within which a bound on time exceeds the deadline",
        ),
    )
)
