"""Our own local search: annealing with restarts, until the time is over or a bound is met."""

from __future__ import annotations

import time
from collections.abc import Callable

from offcert.core.plan import Plan
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.core.simulate import Simulator
from offcert.heuristics.annealing import Annealer
from offcert.heuristics.sequential import sequential

_STEPS_A_ROUND = 20_000
_ROUNDS = 12


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
    restarts = fruitless = 0
    try:
        while max_restarts is None or restarts < max_restarts:
            # The first cooling may wander; later ones start from the best plan, less hot.
            fruitless += 1
            hot = annealer.makespan * (0.03 if restarts % 3 == 0 else 0.003)
            for round_ in range(_ROUNDS):
                high = hot * 1e-3 ** (round_ / _ROUNDS)
                low = hot * 1e-3 ** ((round_ + 1) / _ROUNDS)
                if annealer.run(_STEPS_A_ROUND, high, low):
                    fruitless = 0
                    if on_improvement is not None:
                        on_improvement(simulator.run(annealer.best))
                if annealer.makespan <= target or time.monotonic() >= deadline:
                    return annealer.best
            restarts += 1
            if fruitless == patience:
                break
            annealer.restart(annealer.best)
    except KeyboardInterrupt:
        if pass_interrupts:
            raise
    return annealer.best
