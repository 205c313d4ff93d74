"""Methods of a user's own, as `offcert compare` names them."""

import os
import time
from typing import Any

from offcert.core.strategy import Strategy
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate


def planned(problem: Problem) -> Plan:
    return sequential(problem)


def scheduled(problem: Problem) -> Schedule:
    return simulate(problem, sequential(problem))


def delayed(problem: Problem) -> Schedule:
    """A legal schedule with one tick of idle time at its end: it is measured as it is."""
    found = simulate(problem, sequential(problem))
    return Schedule(
        [*found.starts[:-1], found.starts[-1] + 1],
        [*found.ends[:-1], found.ends[-1] + 1],
        found.transfers,
    )


def illegal(problem: Problem) -> Schedule:
    """Everything stays, whatever the memory."""
    ends, time = [], 0
    for duration in problem.trace.durations:
        time += duration
        ends.append(time)
    starts = [end - duration for end, duration in zip(ends, problem.trace.durations, strict=True)]
    return Schedule(starts, ends, ())


def whatever(problem: Problem) -> Any:
    return [problem.name]


def nothing(problem: Problem) -> None:
    return None


def raises(problem: Problem) -> Plan:
    raise RuntimeError("no luck\nat all")


def dies(problem: Problem) -> Plan:
    os._exit(9)


def hangs(problem: Problem) -> Plan:
    time.sleep(600)
    return Plan()


def told(problem: Problem, seed: int, time_limit: float) -> Plan:
    assert (seed, time_limit > 0) == (3, True)
    return sequential(problem)


def everything_once(problem: Problem) -> Any:
    assert problem.computed is not None
    return Strategy.plain(problem.computed)
