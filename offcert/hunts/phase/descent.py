"""A schedule to measure against, found with integers only: the same on every machine.

Annealing compares random numbers with exponentials, which mathematical libraries round differently.
Here a worse set is accepted if it is worse by no more than a threshold, which falls to zero, and
what is found then is improved by moves that are never for the worse.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from offcert.core.errors import MethodError, PlanError
from offcert.core.plan import Plan
from offcert.core.problem import Problem
from offcert.core.simulate import Simulator
from offcert.heuristics.annealing import Annealer
from offcert.heuristics.greedy import greedy_gaps
from offcert.heuristics.ordered import ordered_plan
from offcert.heuristics.ordered_sets import OrderedSets
from offcert.heuristics.sequential import sequential

# Of sets to try, for each gap of the trace.
_TRIES = 200
# The threshold begins at one part in so many of the makespan.
_TOLERANCE = 100
# Moves of the plan, then, for each gap.
_STEPS = 800
# So cold that the annealer accepts nothing that is worse by a tick: the exponential is exactly 0.
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
    found = _best_set(problem)
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


def _best_set(problem: Problem) -> frozenset[int] | None:
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
