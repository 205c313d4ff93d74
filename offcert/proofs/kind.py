"""`ProofKind` and `ClaimKind`: kinds of bounds on schedules, and for which problems they hold."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.platform import Link
from offcert.proofs.proof import Claimable, Provable
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers

ALL = frozenset(Transfers)
ATOMIC = frozenset({Transfers.ATOMIC})
WHOLE_OR_PAUSING = ALL - {Transfers.FRACTIONAL}
_BOTH = frozenset(Link)
SIMPLEX = frozenset({Link.SIMPLEX})
_UNIT = {Minimise.TIME: "time", Minimise.MEMORY: "memory"}


@dataclass(frozen=True)
class ProofKind(Provable):
    """A kind of bound on schedules that can be established again without a solver.

    Attributes
    ----------
    transfers, links : frozenset
        For which problems the argument holds.
    recompute : bool
        Whether the argument holds if computations may run again.
    minimise : Minimise
        The objective that is bounded: time or memory.
    at_once : bool
        Whether the bound is computed, not searched for: all of these are one method, ``bounds``,
        and are known of every problem that an argument holds for.
    """

    transfers: frozenset[Transfers] = ATOMIC
    links: frozenset[Link] = _BOTH
    recompute: bool = False
    minimise: Minimise = Minimise.TIME
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
    """A kind of bound on schedules that rests on the word of a solver.

    Attributes
    ----------
    transfers, recompute, offload : frozenset
        For which problems the claim is a bound.
    minimise : Minimise
        The objective that is bounded: time or memory.
    """

    transfers: frozenset[Transfers] = ATOMIC
    recompute: frozenset[Recompute] = frozenset({Recompute.NONE})
    minimise: Minimise = Minimise.TIME
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
