"""What a memory limit says of a deadline: the problem of least time there, and bounds on bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from offcert.certify.search import Search
from offcert.core.problem import Minimise, Problem
from offcert.core.result import Bound, Evidence
from offcert.proofs.claims import proved
from offcert.proofs.joint_document import read
from offcert.proofs.kinds import MemoryByTime

METHOD = "least-memory-by-time"
# The part of the peak that is worth another limit.
_FINE = Fraction(1, 2048)


def timed(problem: Problem, limit: int) -> Problem:
    """Return the problem of least time within a limit, for one of least memory within a time."""
    platform = replace(problem.platform, memory=limit)
    return replace(problem, platform=platform, minimise=Minimise.TIME, deadline=None)


def asks_within_deadline(search: Search) -> bool:
    """Return whether memory is to be least within a deadline."""
    problem = search.problem
    return problem.minimise is Minimise.MEMORY and problem.deadline is not None


def fine(problem: Problem) -> int:
    """Return the bytes that are worth another limit."""
    return max(1, int(problem.trace.peak_memory * _FINE))


def add_by_time(search: Search, limit: int, bound: Bound) -> bool:
    """Add what a bound on the time within a limit proves in bytes; return whether that is new."""
    deadline = search.problem.deadline
    assert deadline is not None
    if bound.evidence is not Evidence.PROVED or bound.value <= deadline:
        return False
    if limit + 1 <= search.proved_bound:
        return False
    proof = MemoryByTime(
        limit=limit, method=bound.method, ticks=bound.value, details=dict(bound.details)
    )
    search.add(proved(METHOD, limit + 1, proof))
    return True


def limit_met_by(bound: Bound, limit: int, deadline: int) -> int | None:
    """Return the limit at which the multipliers of a joint bound would just prove the deadline.

    With the same multipliers the bound falls in proportion to the limit. So at that limit, too, the
    linear program proves as much or more: as a function of the limit its optimum is convex.

    Parameters
    ----------
    bound : Bound
        On the time within the limit.
    limit : int
        Bytes.
    deadline : int
        Ticks.

    Returns
    -------
    int or None
        Bytes, perhaps below 0; None if the bound does not depend on the limit, or is one by cases.
    """
    if "proof" not in bound.details or "moments" not in bound.details:
        return None
    cases = read(str(bound.details["proof"]))
    if len(cases.multipliers) != 1:
        return None
    (weights,) = cases.multipliers
    price = sum(weights.rows.get("memory", {}).values())
    if not price or not limit:
        return None
    return limit + int((bound.value - deadline) * weights.over * limit / Fraction(price))


@dataclass
class Bracket:
    """Limits of which something is known.

    Attributes
    ----------
    low : int
        The largest at which the deadline is proved not to be met.
    high : int
        The least at which it is.
    missed_from, missed_to : int or None
        The least and the largest in between at which neither was found.
    """

    low: int
    high: int
    missed_from: int | None = None
    missed_to: int | None = None

    def miss(self, limit: int) -> None:
        """Note a limit at which neither a schedule nor a proof was found."""
        if self.missed_from is None or limit < self.missed_from:
            self.missed_from = limit
        if self.missed_to is None or limit > self.missed_to:
            self.missed_to = limit

    def narrow(self, search: Search) -> None:
        """Take over what a search knows by now."""
        self.low = max(self.low, search.proved_bound - 1)
        if search.objective is not None:
            self.high = min(self.high, search.objective)
        # What is beyond what is known by now was missed for nothing.
        if self.missed_from is not None and self.missed_to is not None:
            inside = self.low < self.missed_to and self.missed_from < self.high
            self.missed_from = max(self.missed_from, self.low + 1) if inside else None
            self.missed_to = min(self.missed_to, self.high - 1) if inside else None

    def next(self, above: bool) -> int:
        """Return the limit halfway between what was missed and what was found, or proved."""
        if self.missed_from is None or self.missed_to is None:
            return (self.low + self.high) // 2
        sides = [(self.low + self.missed_from) // 2, (self.missed_to + self.high) // 2]
        chosen, other = sides[above], sides[not above]
        known = {self.missed_from, self.missed_to}
        return chosen if self.holds(chosen) and chosen not in known else other

    def holds(self, limit: int) -> bool:
        """Return whether nothing is known of a limit."""
        return self.low < limit < self.high
