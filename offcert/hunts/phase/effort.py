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
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from offcert.core.problem import Problem
from offcert.core.simulate import simulate
from offcert.formulations.labels.atomic_heads.bound import heads_bound
from offcert.formulations.labels.pivot.bound import pivot_bound
from offcert.hunts.phase.descent import climbed, descended, improved


@dataclass(frozen=True)
class Effort:
    """What proving took, or how far it came.

    Attributes
    ----------
    labels : int
        Stored by all pivots of the pivot program; 0 if bounds that are quick meet the schedule.
    value : int
        Makespan of the best schedule known in the end, in ticks.
    lower_bound : int
        In ticks.
    """

    labels: int
    value: int
    lower_bound: int

    @property
    def gap(self) -> Fraction:
        """What is open, as a part of the makespan; 0 if it is solved."""
        return Fraction(self.value - self.lower_bound, max(1, self.value))

    @property
    def rank(self) -> tuple[Fraction, int]:
        """The larger, the harder: whatever stays open is harder than all that closes."""
        return self.gap, self.labels

    def to_json(self) -> dict[str, Any]:
        """Return the three numbers as a JSON value."""
        return {"labels": self.labels, "value": self.value, "lower_bound": self.lower_bound}


def effort(problem: Problem, labels: int) -> Effort:
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
        return Effort(0, value, value)
    heads = heads_bound(
        problem, upper_bound=value, time_limit=math.inf, max_labels=max(1, labels // 40)
    )
    plan = improved(problem, plan, heads.sets)
    if heads.lower_bound < simulate(problem, plan).makespan:
        plan = climbed(problem, plan)
    value = simulate(problem, plan).makespan
    if heads.lower_bound >= value:
        return Effort(0, value, value)
    pivot = pivot_bound(problem, upper_bound=value, time_limit=math.inf, max_labels=labels)
    if pivot.schedule is not None:
        value = min(value, pivot.schedule.makespan)
    bound = max(heads.lower_bound, pivot.lower_bound)
    return Effort(pivot.searched, value, bound)
