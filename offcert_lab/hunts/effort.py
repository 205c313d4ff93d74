"""How hard a problem is to prove, counted instead of timed.

Seconds differ from run to run and from machine to machine, so a search guided by them finds another
problem every time. What is counted here is integers only: the labels that the pivot program stores
until bound and schedule meet, and what is still open if they do not meet within a fixed number. It
is the ladder's method that closes most chains of distinct sizes once quick bounds have not, and
labels are what its time goes into. CP-SAT's deterministic time is no substitute: it adds up
floating-point estimates that its authors tune from version to version.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from offcert.core.errors import MethodError, PlanError
from offcert.formulations.labels.ends.heads import heads_bound
from offcert.formulations.labels.pivot.bound import pivot_bound
from offcert.heuristics.evictions.rules import greedy_gaps, sequential
from offcert.heuristics.orders.annealing import Annealer
from offcert.heuristics.orders.ordered import OrderedSets, ordered_plan
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import Simulator, simulate

# Sets to try, for each gap of the trace. Arbitrary.
_TRIES = 200
# The threshold begins at one part in so many of the makespan. Arbitrary.
_TOLERANCE = 100
# Moves of the plan after that, for each gap. Arbitrary.
_STEPS = 800
# A temperature so low that the annealer accepts nothing that is longer by a tick: the exponential
# is exactly 0. Derived.
_FROZEN = 1e-6


def descended(problem: Problem) -> Plan:
    """Return a good ordered plan, or one that always works if there is none better.

    Parameters
    ----------
    problem : Problem
        Feasible, with at most one gap a tensor.

    Raises
    ------
    MethodError
        If a tensor has several gaps, or no plan exists at this memory limit.
    """
    plan = sequential(problem)
    least = problem.trace.compute_time
    if not problem.trace.gaps or Simulator(problem).run(plan).makespan == least:
        return plan
    found = best_set(problem)
    return plan if found is None else improved(problem, plan, [found])


def climbed(problem: Problem, plan: Plan) -> Plan:
    """Improve a plan by random moves of single transfers, none of them for the worse."""
    annealer = Annealer(Simulator(problem), plan, seed=0)
    annealer.run(_STEPS * len(problem.trace.gaps), _FROZEN, _FROZEN)
    return annealer.best


def improved(problem: Problem, plan: Plan, sets: Iterable[Iterable[int]]) -> Plan:
    """Return the best of a plan and of those that evict the given sets of gaps, in order."""
    simulator = Simulator(problem)
    best, value = plan, simulator.run(plan).makespan
    for gaps in sets:
        try:
            other = ordered_plan(problem, gaps)
            found = simulator.run(other).makespan
        except (MethodError, PlanError):
            continue
        if found < value:
            best, value = other, found
    return best


def best_set(problem: Problem) -> frozenset[int] | None:
    """Return the set of gaps with the best ordered schedule found, or None if none has any."""
    count = len(problem.trace.gaps)
    sets = OrderedSets(problem, "the descent")
    current, value = _first(problem, sets)
    if value is None:
        return None
    best = current, value
    rng = random.Random(count)
    tries = _TRIES * count
    for step in range(tries):
        if best[1] == problem.trace.compute_time:
            break
        other = _neighbour(rng, current, count)
        found = sets.makespan(other)
        slack = max(0, best[1] * (tries - 2 * step) // (tries * _TOLERANCE))
        if found is not None and found <= value + slack:
            current, value = other, found
            if value < best[1]:
                best = current, value
    return best[0]


def _first(problem: Problem, sets: OrderedSets) -> tuple[frozenset[int], int | None]:
    """Return GREEDY's set, or everything if it has none, with its makespan if it is possible."""
    try:
        chosen = frozenset(greedy_gaps(problem))
    except MethodError:
        chosen = frozenset(range(len(problem.trace.gaps)))
    return chosen, sets.makespan(chosen)


def _neighbour(rng: random.Random, chosen: frozenset[int], count: int) -> frozenset[int]:
    """Return the set with up to four gaps in or out."""
    changed = chosen
    for _ in range(rng.randint(1, 4)):
        changed ^= {rng.randrange(count)}
    return changed


@dataclass(frozen=True)
class ProofEffort:
    """The effort of proving an optimum, or how far the proof came."""

    # Stored by all pivots of the pivot program; 0 if bounds that are quick meet the schedule.
    labels: int
    value: int  # Makespan of the best schedule known in the end, in ticks.
    lower_bound: int  # In ticks.

    @property
    def gap(self) -> Fraction:
        """The open part of the makespan; 0 if the problem is solved."""
        return Fraction(self.value - self.lower_bound, max(1, self.value))

    @property
    def rank(self) -> tuple[Fraction, int]:
        """The larger, the harder: whatever stays open is harder than all that closes."""
        return self.gap, self.labels

    def to_json(self) -> dict[str, Any]:
        """Return the three numbers as a JSON value."""
        return {"labels": self.labels, "value": self.value, "lower_bound": self.lower_bound}


def effort(problem: Problem, labels: int) -> ProofEffort:
    """Measure a problem; the same numbers on every machine.

    Parameters
    ----------
    problem : Problem
        Feasible, atomic transfers, simplex link, one gap a tensor, gaps nested.
    labels : int
        After about so many labels the pivot program gives up; heads and tails, which come first as
        in the ladder, after a fortieth.

    Raises
    ------
    MethodError
        If the problem is of another kind.
    """
    plan = descended(problem)
    value = simulate(problem, plan).makespan
    if value == problem.trace.compute_time:
        return ProofEffort(0, value, value)
    heads = heads_bound(
        problem, upper_bound=value, time_limit=math.inf, max_labels=max(1, labels // 40)
    )
    plan = improved(problem, plan, heads.sets)
    if heads.lower_bound < simulate(problem, plan).makespan:
        plan = climbed(problem, plan)
    value = simulate(problem, plan).makespan
    if heads.lower_bound >= value:
        return ProofEffort(0, value, value)
    pivot = pivot_bound(problem, upper_bound=value, time_limit=math.inf, max_labels=labels)
    if pivot.schedule is not None:
        value = min(value, pivot.schedule.makespan)
    bound = max(heads.lower_bound, pivot.lower_bound)
    return ProofEffort(pivot.searched, value, bound)
