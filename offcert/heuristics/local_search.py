"""Our own local search: annealing with restarts, until the time is over or a bound is met."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from offcert.core.errors import MethodError, PlanError
from offcert.core.plan import Plan
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.core.simulate import Simulator
from offcert.heuristics.annealing import Annealer
from offcert.heuristics.cooling import length_of_round
from offcert.heuristics.restricted import no_limits, random_limits, restricted_plan
from offcert.heuristics.sequential import sequential

# A round is longer where more can be moved.
_STEPS_A_GAP = 300
_LONGEST_ROUND = 40_000
_ROUNDS = 12
# Temperatures, as shares of the makespan: at the start of a cooling without limits, and of the
# rounds, from and to, of a cooling within limits and after their release.
_HOTTEST = 0.03
_LIMITED = ((3e-3, 1e-3), (1e-3, 1e-4), (1e-4, 1e-5))
_RELEASED = ((1e-3, 1e-4), (1e-4, 1e-5))
# Every which cooling has no limits, and how many limits are tried to find one with a plan.
_FREE_EVERY = 8
_TOLERANCE = 0.003
_ATTEMPTS = 10


def local_search(
    problem: Problem,
    *,
    time_limit: float = 5.0,
    seed: int = 0,
    target: int = 0,
    start: Plan | None = None,
    max_restarts: int | None = None,
    patience: int | None = None,
    pass_interrupts: bool = False,
    on_improvement: Callable[[Schedule], object] | None = None,
) -> Plan:
    """Return the best plan that annealing over sets and orders finds.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    time_limit : float
        Seconds.
    seed : int
        Of the random numbers. Two runs with the same seed agree if `max_restarts`, not the time,
        ends them.
    target : int
        Stop when the makespan, in ticks, is at most this: a lower bound, for instance.
    start : Plan, optional
        Where to start; by default `sequential`.
    max_restarts : int, optional
        Stop after so many coolings.
    patience : int, optional
        Stop after so many coolings in a row that brought nothing.
    pass_interrupts : bool
        Whether an interrupt (Ctrl-C) is raised, for a caller who sees every improvement, instead of
        ending the search like a time-out.
    on_improvement : callable, optional
        Called with every better schedule.

    Raises
    ------
    MethodError
        If no plan exists at this memory limit.
    """
    deadline = time.monotonic() + time_limit
    first = sequential(problem) if start is None else start
    simulator = Simulator(problem)
    schedule = simulator.run(first)
    if on_improvement is not None:
        on_improvement(schedule)
    if not problem.trace.gaps or schedule.makespan <= target:
        return schedule.plan(problem.trace)
    annealer = Annealer(simulator, schedule.plan(problem.trace), seed)
    steps = min(_LONGEST_ROUND, _STEPS_A_GAP * len(problem.trace.gaps))
    steps = length_of_round(problem, steps)
    random = np.random.default_rng(seed)
    restarts = fruitless = 0
    try:
        while max_restarts is None or restarts < max_restarts:
            fruitless += 1
            for round_ in _cooling(annealer, random, restarts):
                if annealer.run(steps, *round_):
                    fruitless = 0
                    if on_improvement is not None:
                        on_improvement(simulator.run(annealer.best))
                if annealer.makespan <= target or time.monotonic() >= deadline:
                    return annealer.best
            restarts += 1
            if fruitless == patience:
                break
            if annealer.current > annealer.makespan * (1 + _TOLERANCE):
                annealer.restart(annealer.best)
    except KeyboardInterrupt:
        if pass_interrupts:
            raise
    return annealer.best


def _cooling(
    annealer: Annealer, random: np.random.Generator, number: int
) -> Iterator[tuple[float, float]]:
    """Yield the hottest and coldest temperature of each round, setting limits in between.

    The first cooling may wander; later ones start from the best plan, most of them within limits
    that keep them away from it.
    """
    makespan = annealer.makespan
    if number % _FREE_EVERY == 0 or not _limit(annealer, random):
        hot = makespan * (_HOTTEST if number % (3 * _FREE_EVERY) == 0 else _HOTTEST / 10)
        for round_ in range(_ROUNDS):
            yield hot * 1e-3 ** (round_ / _ROUNDS), hot * 1e-3 ** ((round_ + 1) / _ROUNDS)
        return
    yield from ((makespan * hot, makespan * cold) for hot, cold in _LIMITED)
    annealer.limits[:] = no_limits(annealer.simulator.trace)
    yield from ((makespan * hot, makespan * cold) for hot, cold in _RELEASED)


def _limit(annealer: Annealer, random: np.random.Generator) -> bool:
    """Restart from a plan within random limits; return whether there is one."""
    simulator = annealer.simulator
    base = annealer.plan
    schedule = simulator.run(base)
    for _ in range(_ATTEMPTS):
        limits = random_limits(simulator.problem, random, schedule)
        with suppress(MethodError, PlanError):
            annealer.restart(restricted_plan(simulator.problem, limits, base))
            annealer.limits[:] = limits
            return True
    return False
