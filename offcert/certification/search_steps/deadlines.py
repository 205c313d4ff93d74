"""Steps that minimise memory within a deadline: they minimise time at one limit after another.

A schedule in time is one for its limit, and a proof that there is none bounds the bytes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from offcert.certification.interrupts import held_interrupts
from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.bounds import climb_combinatorial
from offcert.certification.search_steps.joint import climb_joint, known_programs, offer_plan
from offcert.core.errors import PlanError
from offcert.core.execution import Execution
from offcert.core.result import Bound, Evidence
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.proofs.joint_document import read
from offcert.proofs.kinds.computed import MemoryByTime
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate

METHOD = "least-memory-by-time"
# Part of the peak below which another limit is not worth its time. Arbitrary.
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
    """Return the least difference in bytes for which another limit is tried."""
    return max(1, int(problem.trace.peak_memory * _FINE))


def add_by_time(search: Search, limit: int, bound: Bound) -> bool:
    """Add the bound in bytes that a bound on time within a limit proves; return if it is new."""
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

    Bytes, perhaps below 0; None if the bound does not depend on the limit, or is one by cases. With
    the same multipliers the bound falls in proportion to the limit. So at that limit, too, the
    linear program proves as much or more: as a function of the limit its optimum is convex.
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
    """Memory limits between which the least one for the deadline lies, as far as is known."""

    low: int  # The largest at which the deadline is proved not to be met
    high: int  # The least at which it is
    # The least and the largest in between at which neither was found.
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
        # Of a missed range, the part outside of the bounds known by now does not matter.
        if self.missed_from is not None and self.missed_to is not None:
            inside = self.low < self.missed_to and self.missed_from < self.high
            self.missed_from = max(self.missed_from, self.low + 1) if inside else None
            self.missed_to = min(self.missed_to, self.high - 1) if inside else None

    def next(self, above: bool) -> int:
        """Return the limit halfway between the one missed and the one found, or proved."""
        if self.missed_from is None or self.missed_to is None:
            return (self.low + self.high) // 2
        sides = [(self.low + self.missed_from) // 2, (self.missed_to + self.high) // 2]
        chosen, other = sides[above], sides[not above]
        known = {self.missed_from, self.missed_to}
        return chosen if self.holds(chosen) and chosen not in known else other

    def holds(self, limit: int) -> bool:
        """Return whether nothing is known of a limit."""
        return self.low < limit < self.high


# Bounds that are computed limit by limit, at most, and the share of the remaining time that each
# may take. Arbitrary.
_MOST_BOUNDED, _BOUNDING = 24, 0.4
# Searches that are made limit by limit, at most, and the share of the remaining time that each may
# take. Arbitrary.
_MOST_TRIED, _TRYING = 16, 0.25
# How far above the proved bound the first limit is searched, as a part of the range, and by which
# factor the distance grows after a limit at which nothing was found. Arbitrary.
_NEAR, _FARTHER = 1 / 64, 3


def descend_sinking(search: Search, effort: Effort) -> None:
    """Search for programs of segments and what leaves, under a limit that sinks."""
    problem = search.problem
    network = problem.computed
    if not asks_within_deadline(search) or problem.recompute is Recompute.NONE or network is None:
        return
    search.begin("joint search, sinking limit")
    with held_interrupts():
        from offcert.heuristics.joint.plans import ranges_of
        from offcert.heuristics.joint.sinking import SinkingSearch

    sinking = search.workings.search(
        "sinking",
        lambda: SinkingSearch(
            problem,
            workers=effort.workers,
            seed=effort.seed,
            ranges=ranges_of(problem),
            known=known_programs(search),
        ),
    )
    sinking.improve(effort.seconds, enough=search.goal, on_improvement=partial(offer_plan, search))


def climb_limits(search: Search, effort: Effort) -> None:
    """Prove at limit after limit that the deadline cannot be met there, without any plan.

    The first is hardly above what is proved: if nothing is proved there, nothing is at more. The
    multipliers of one limit say where the next is worth looking at.
    """
    if not asks_within_deadline(search):
        return
    search.begin("bounds at limits")
    problem, deadline = search.problem, search.problem.deadline
    assert deadline is not None
    low, high = search.proved_bound - 1, search.objective or problem.trace.peak_memory
    rest = max(0.0, search.remaining - effort.seconds)
    limit = low + fine(problem)
    for number in range(_MOST_BOUNDED):
        left = search.remaining - rest
        if search.done or left <= 0 or high - low <= fine(problem):
            return
        # All depends on the first.
        seconds = left if not number else _BOUNDING * left
        bound = _best_bound(timed(problem, limit), deadline, seconds)
        root = None if bound is None else limit_met_by(bound, limit, deadline)
        if bound is not None and bound.value > deadline:
            add_by_time(search, limit, bound)
            low = limit
        elif not number:
            return
        else:
            high = limit
        limit = (low + high) // 2 if root is None or not low < root < high else root


def _best_bound(problem: Problem, deadline: int, seconds: float) -> Bound | None:
    """Return a proved bound on the time, the first that is above a deadline or the best."""
    inner = Search(problem, seconds)
    inner.enough = deadline
    if problem.recompute is not Recompute.NONE:
        climb_joint(inner, Effort(seconds))
    elif infeasibility(problem) is None:
        climb_combinatorial(inner, Effort(seconds))
    return max(inner.bounds, key=lambda bound: bound.value, default=None)


def halve_limits(search: Search, effort: Effort) -> None:
    """Search limit after limit with the whole ladder for least time.

    The first limits are little above what is proved, each farther than the one before, until there
    is a schedule in time. Later ones are halfway between what is known and where neither a schedule
    nor a proof was found, on either side in turn.
    """
    if not asks_within_deadline(search) or search.objective is None:
        return
    search.begin("limit after limit")
    bracket = Bracket(search.proved_bound - 1, search.objective)
    rest = max(0.0, search.remaining - effort.seconds)
    near = max(1, int((bracket.high - bracket.low) * _NEAR))
    first = bracket.high
    for turn in range(_MOST_TRIED):
        left = search.remaining - rest
        if search.done or left <= 0:
            return
        limit = bracket.low + near
        if bracket.high < first or not bracket.holds(limit):
            limit = bracket.next(turn % 2 == 0)
        if not bracket.holds(limit) or (
            turn and bracket.high - bracket.low <= fine(search.problem)
        ):
            return
        if not _try(search, limit, effort, max(_TRYING * left, effort.seconds / _MOST_TRIED)):
            bracket.miss(limit)
            near *= _FARTHER
        bracket.narrow(search)


def _try(search: Search, limit: int, effort: Effort, seconds: float) -> bool:
    """Search for a schedule in time within a limit, or a proof that there is none.

    Return whether either was found.
    """
    problem = search.problem
    assert problem.deadline is not None
    within = timed(problem, limit)
    assert effort.climb is not None
    inner = Search(within, min(seconds, search.remaining))
    inner.enough = problem.deadline
    _begin_with_known(search, inner)
    met = False
    try:
        effort.climb(inner, effort.workers, effort.seed)
    finally:
        found = inner.best
        if isinstance(found, Schedule) and found.makespan <= problem.deadline:
            met = True
            _offer_squeezed(search, inner.execution, found, limit)
    if met:
        return True
    best = max(inner.bounds, key=lambda bound: bound.value, default=None)
    return best is not None and add_by_time(search, limit, best)


def _offer_squeezed(
    search: Search, execution: Execution | None, schedule: Schedule, limit: int
) -> None:
    """Offer the decisions of a schedule within the least limit at which they are in time."""
    problem, deadline = search.problem, search.problem.deadline
    assert deadline is not None
    executed = problem.plain() if execution is None else problem.executed(execution)
    plan = schedule.plan(executed.trace)
    low, high = search.proved_bound - 1, limit
    while high - low > fine(problem):
        middle = (low + high) // 2
        try:
            found = simulate(executed.with_memory(middle), plan)
        except PlanError:
            low = middle
            continue
        if found.makespan > deadline:
            low = middle
        else:
            schedule, high = found, middle
    search.offer_executed(execution, schedule, high)


def _begin_with_known(search: Search, inner: Search) -> None:
    """Offer the decisions of the best schedule, which take longer within less memory."""
    schedule, execution = search.schedule, search.execution
    if schedule is None:
        return
    problem = inner.problem if execution is None else inner.problem.executed(execution)
    with suppress(PlanError):
        again = simulate(problem, schedule.plan(problem.trace))
        inner.offer_executed(execution, again)
