"""`Bounded`: an objective's best value and lower bounds, with the evidence for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

from offcert.core.forms import OBJECT, TEXT, Integer, Member, Record
from offcert.core.messages import cut
from offcert.core.units import Units, format_size, format_time


class SolveStatus(StrEnum):
    """The state of knowledge when a method stops.

    ``OPTIMAL`` is claimed only when the integer objective equals the lower bound.
    """

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"


class Evidence(StrEnum):
    """Why a lower bound should be believed, strongest first (docs/theory/index.md)."""

    PROVED = "proved"
    CROSS_ATTESTED = "cross-attested"
    ATTESTED = "attested"


@dataclass(frozen=True)
class Bound:
    """A lower bound on the objective.

    Attributes
    ----------
    method : str
        The name under which the registry of bounds knows it.
    value : int
        Ticks, or bytes where memory is minimised; both are integers, so a fractional bound is
        rounded up.
    evidence : Evidence
        Its level.
    details : mapping
        What a verifier needs to check it again, and what is good to know; JSON values only.
    """

    method: str
    value: int
    evidence: Evidence
    details: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Bound {cut(self.method)} {self.value}, {self.evidence}>"


# A bound as documents have it.
BOUND = Record(Bound, method=TEXT, value=Integer(0), evidence=Member(Evidence), details=OBJECT)


# The name of what takes too long where memory is minimised: no operation, and no bytes.
COMPUTING = "the computing"
# The name of what takes too much memory where each run alone fits, but no execution does.
EXECUTIONS = "every execution"


@dataclass(frozen=True)
class Infeasibility:
    """Why no schedule exists: an operation that cannot run, and the bytes it lacks.

    Where memory is minimised, there is no schedule if the deadline is less than the computing time;
    then both numbers are ticks. Where computations may run again, every run may fit by itself, and
    yet no execution does: it is to keep what cannot be had again.

    Attributes
    ----------
    operation : int
        The one that needs most; -1 when what is resident at the start does not fit, and for the
        computing as a whole or every execution.
    name : str
        Its name.
    needed, lacking : int
        Bytes that it needs, and what is missing; ticks where memory is minimised.
    """

    operation: int
    name: str
    needed: int
    lacking: int

    def __str__(self) -> str:
        return self.said(Units("ns", "B"))

    @property
    def of_executions(self) -> bool:
        """Whether it is about executions as a whole, which takes a search to establish."""
        return (self.operation, self.name) == (-1, EXECUTIONS)

    def said(self, units: Units) -> str:
        """Return in words the operation that cannot run, and the amount it lacks."""
        name = cut(self.name, 100)
        if (self.operation, self.name) == (-1, COMPUTING):
            needed, lacking = (format_time(time, units) for time in (self.needed, self.lacking))
            return f"{name} takes {needed} however much memory there is, {lacking} too long"
        needed, lacking = (format_size(size, units) for size in (self.needed, self.lacking))
        if self.of_executions:
            return f"{name} takes {needed} or more at some moment, {lacking} more than there is"
        return f"{name} needs {needed} even when all else has left, {lacking} more than there is"


def relative_gap(objective: int | None, lower_bound: int) -> float:
    """Return ``(objective - lower bound) / objective``; infinite without an objective."""
    if objective is None:
        return math.inf
    return float(Fraction(objective - lower_bound, max(objective, 1)))


class Bounded:
    """An objective as far as it is known: the best answer, and lower bounds.

    All results, certificates and running searches are such; what follows from the two is here.

    Attributes
    ----------
    bounds : sequence of Bound
        Lower bounds on the value.
    """

    bounds: Sequence[Bound]

    @property
    def objective(self) -> int | None:
        """The value of the best answer known, in ticks or bytes; None without one."""
        raise NotImplementedError

    @property
    def lower_bound(self) -> int:
        """The best lower bound, in ticks or bytes; 0 if there is none."""
        return max((bound.value for bound in self.bounds), default=0)

    @property
    def proved_bound(self) -> int:
        """The best bound that rests on no solver's word, in ticks or bytes; 0 without one."""
        proved = (bound.value for bound in self.bounds if bound.evidence is Evidence.PROVED)
        return max(proved, default=0)

    @property
    def evidence(self) -> Evidence | None:
        """The strongest evidence claimed for the best lower bound; None without a bound."""
        levels = [bound.evidence for bound in self.bounds if bound.value == self.lower_bound]
        return min(levels, key=list(Evidence).index, default=None)

    @property
    def word(self) -> str:
        """The word that belongs behind a bound, gap or status that only solvers vouch for.

        As the end of a line: ``" (attested)"``; empty where the best bound is proved.
        """
        claimed = self.bounds and self.evidence is not Evidence.PROVED
        return f" ({self.evidence})" if claimed else ""

    @property
    def gap(self) -> float:
        """``(objective - lower bound) / objective``; infinite without an objective."""
        return relative_gap(self.objective, self.lower_bound)

    def status_by(self, infeasible: bool) -> SolveStatus:
        """Return the status that follows from objective, lower bound and infeasibility."""
        if infeasible:
            return SolveStatus.INFEASIBLE
        if self.objective is None:
            return SolveStatus.UNKNOWN
        same = self.objective == self.lower_bound
        return SolveStatus.OPTIMAL if same else SolveStatus.FEASIBLE
