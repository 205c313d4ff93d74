"""Bounds on the bytes that a deadline takes at least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offcert.core.forms import OBJECT, TEXT, formed, integer
from offcert.core.later import Later
from offcert.proofs.kinds.computed import Computed
from offcert.proofs.proof import ALL, Proof, ProofKind
from offcert.questions.schedule.problem import Minimise

if TYPE_CHECKING:
    import offcert.verification.findings
    import offcert.verification.least_memory


@dataclass(frozen=True, kw_only=True)
class LeastMemoryCut(Proof):
    """Where executions are cut to see what has to be kept, and prices of what saves bytes.

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


PROOFS = (
    ProofKind(
        "least-memory-run",
        Computed,
        Later(lambda: offcert.verification.least_memory.single_run),
        "bytes of the run that needs most, or of what is there at the start",
        page="least-memory",
        transfers=ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    ),
    ProofKind(
        "least-memory-kept",
        Computed,
        Later(lambda: offcert.verification.least_memory.kept),
        "bytes below which what cannot be made again in time would have to stay, and does not fit",
        page="least-memory",
        transfers=ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    ),
    ProofKind(
        "least-memory-cut",
        LeastMemoryCut,
        Later(lambda: offcert.verification.least_memory.cut),
        "bytes that are there during one run, at prices for running again and for moving",
        page="least-memory",
        transfers=ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    ),
    ProofKind(
        "least-memory-by-time",
        MemoryByTime,
        Later(lambda: offcert.verification.findings.by_time),
        "the bytes within which a bound on time exceeds the deadline",
        page="least-memory",
        searched=True,
        transfers=ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    ),
)
