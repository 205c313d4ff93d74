"""`Proof`: the part of a certificate by which a bound is established again without a solver.

`ProofKind` and `ClaimKind` are kinds of bounds on schedules, and say for which problems they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from offcert.core.documents import Fields
from offcert.core.forms import FORM, Record
from offcert.core.later import Later
from offcert.core.platform import Link
from offcert.core.result import Bound, Evidence
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A proof: the numbers that verification needs besides the problem and the bound's value.

    Subclasses are frozen dataclasses whose fields are made by `offcert.core.forms`: from these
    follow the reader, the writer, the limits and the documentation. A bound that can be computed
    from the problem alone has no fields.
    """

    @classmethod
    def record(cls) -> Record[Self]:
        """Return the reader and writer of such proofs."""
        return Record(cls, **{each.name: each.metadata[FORM] for each in fields(cls)})

    @classmethod
    def read(cls, details: Mapping[str, Any], place: str = "details") -> Self:
        """Return the proof that the details of a bound hold."""
        return cls.record().read(Fields(dict(details), place))

    def write(self) -> dict[str, Any]:
        """Return the details of a bound, as a JSON value."""
        return self.record().write(self)


@dataclass(frozen=True)
class Provable:
    """A kind of bound that can be established again without a solver."""

    method: str  # Its name in documents.
    proof: type[Proof]  # The dataclass of what a document holds for it.
    # Takes the problem, the bound's value, the proof and limits; returns what is wrong, or None.
    verifier: Later[Callable[..., str | None]]
    summary: str  # The bound in one line.
    page: str  # The page of the documentation, below ``docs/theory``.
    # Whether verification searches, which may take long; a part of what a search establishes is
    # established, too.
    searched: bool = False

    evidence = Evidence.PROVED

    def misfit(self, problem: Any) -> str | None:
        """Return why the argument does not hold for a problem, or None."""
        return None

    def bound(self, value: int, proof: Proof) -> Bound:
        """Return a proved bound of this kind, in ticks or bytes."""
        if type(proof) is not self.proof:
            raise TypeError(f"a proof of {self.method} is a {self.proof.__name__}, not {proof!r}")
        return Bound(self.method, value, Evidence.PROVED, proof.write())


@dataclass(frozen=True)
class Claimable:
    """A kind of bound that rests on the word of a solver."""

    method: str  # Its name in documents.
    # Solvers that may claim it, under one name for all that are the same inside.
    families: tuple[str, ...]
    summary: str  # The bound in one line.
    page: str  # The page of the documentation, below ``docs/theory``.
    # The model that is handed to the solvers, where several kinds hand over the same one.
    formulation: str = ""

    evidence = Evidence.ATTESTED

    def misfit(self, problem: Any) -> str | None:
        """Return why the claim is no bound for a problem, or None."""
        return None


ALL = frozenset(Transfers)
ATOMIC = frozenset({Transfers.ATOMIC})
WHOLE_OR_PAUSING = ALL - {Transfers.FRACTIONAL}
_BOTH = frozenset(Link)
SIMPLEX = frozenset({Link.SIMPLEX})
_UNIT = {Minimise.TIME: "time", Minimise.MEMORY: "memory"}


@dataclass(frozen=True)
class ProofKind(Provable):
    """A kind of bound on schedules that can be established again without a solver."""

    # For which problems the argument holds.
    transfers: frozenset[Transfers] = ATOMIC
    links: frozenset[Link] = _BOTH
    recompute: bool = False  # Whether the argument holds if computations may run again.
    minimise: Minimise = Minimise.TIME  # The objective that is bounded: time or memory.
    # Whether the bound is computed, not searched for: all of these are one method, ``bounds``, and
    # are known of every problem that an argument holds for.
    at_once: bool = False

    def misfit(self, problem: Problem) -> str | None:
        """Return why the argument does not hold for a problem, or None."""
        if problem.minimise is not self.minimise:
            return f"it bounds {_UNIT[self.minimise]}, and the problem minimises {problem.minimise}"
        if problem.recompute is not Recompute.NONE and not self.recompute:
            return "no proof is known for a bound of this kind where computations may run again"
        if problem.transfers not in self.transfers:
            return f"no proof is known for a bound of this kind with {problem.transfers} transfers"
        if problem.platform.link not in self.links:
            return f"no proof is known for a bound of this kind on a {problem.platform.link} link"
        return None


@dataclass(frozen=True)
class ClaimKind(Claimable):
    """A kind of bound on schedules that rests on the word of a solver."""

    # For which problems the claim is a bound: the transfers, runs again and offloading allowed.
    transfers: frozenset[Transfers] = ATOMIC
    recompute: frozenset[Recompute] = frozenset({Recompute.NONE})
    minimise: Minimise = Minimise.TIME  # The objective that is bounded: time or memory.
    offload: frozenset[bool] = frozenset({True, False})

    def misfit(self, problem: Problem) -> str | None:
        """Return why the claim is no bound for a problem, or None."""
        if problem.minimise is not self.minimise:
            return f"it bounds {_UNIT[self.minimise]}, and the problem minimises {problem.minimise}"
        if problem.recompute not in self.recompute:
            return f'such a claim is no bound where "{problem.recompute}" may run again'
        if problem.offload not in self.offload:
            return "such a claim is no bound where tensors may leave"
        fits = problem.transfers in self.transfers
        return None if fits else f"such a claim is no bound with {problem.transfers} transfers"
