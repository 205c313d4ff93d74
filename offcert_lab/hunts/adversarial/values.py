"""Values of a problem that can be compared: makespans, bounds, and optima, all certain.

A makespan passed the checker; an optimum is a bound that a schedule meets. What cannot be
established is no value, so an unfinished solver never makes a method look bad.

A `Contest` says how many times as much one value is as another, and asks first for what is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from offcert.certification.method import Effort
from offcert.certification.methods import METHODS
from offcert.certification.search import Search, UnsoundError
from offcert.core.errors import InputError, MethodError, NoPlanError, PlanError
from offcert.core.platform import Kind
from offcert.core.result import Bound, Evidence
from offcert.formulations.combinatorial.relaxations import (
    fractional_bound,
    prop3_bound,
    required_absent,
)
from offcert.heuristics.evictions.dynprog import algorithm_1, dynprog
from offcert.heuristics.evictions.rules import greedy, sequential
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.questions.schedule.simulate import simulate
from offcert_lab.hunts.adversarial.numbers import Numbers

OPTIMUM = "optimum"
ORDERED = "ordered"
# DYNPROG with nothing rounded: what is left is that it plans for transfers that pause.
EXACT_DYNPROG = "dynprog-exact"
# Labels, states and seconds of a search: it is among small problems, and one that needs more is
# passed over. Arbitrary.
_MOST_LABELS = 200_000
_MOST_STATES = 20_000
_SECONDS = 20.0
# These go on until they meet a bound: telling them the optimum saves their time and nothing else.
_TOLD = ("local-search",)


def optimum(problem: Problem) -> int | None:
    """Return the least makespan, or None if it is not established with little effort."""
    if problem.transfers is not Transfers.ATOMIC:
        return _fluid_optimum(problem, ordered=False)
    from offcert.formulations.labels.pivot.bound import pivot_bound

    upper = quick_upper(problem)
    if quick_lower(problem) == upper:
        return upper
    outcome = pivot_bound(problem, upper_bound=upper, time_limit=math.inf, max_labels=_MOST_LABELS)
    return outcome.lower_bound if outcome.complete else None


def ordered_optimum(problem: Problem) -> int | None:
    """Return the least makespan with all offloads before all prefetches, or None as `optimum`."""
    if problem.transfers is not Transfers.ATOMIC:
        return _fluid_optimum(problem, ordered=True)
    return _cpsat_optimum(problem, ordered=True)


def _cpsat_optimum(problem: Problem, ordered: bool) -> int | None:
    from offcert.formulations.models.interval_cpsat import solve

    outcome = solve(problem, ordered=ordered, workers=1, time_limit=_SECONDS)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.objective if outcome.objective == outcome.lower_bound else None


def _fluid_optimum(problem: Problem, ordered: bool) -> int | None:
    from offcert.formulations.fluid.exact import solve_fluid

    outcome = solve_fluid(problem, ordered=ordered, time_limit=_SECONDS)
    schedule = outcome.schedule
    return outcome.bound if schedule is not None and schedule.makespan == outcome.bound else None


def quick_lower(problem: Problem) -> int:
    """Return a bound that costs next to nothing."""
    return fractional_bound(problem, problem.transfers is Transfers.ATOMIC).value


def quick_upper(problem: Problem) -> int:
    """Return the makespan of a schedule that costs next to nothing."""
    upper = simulate(problem, sequential(problem)).makespan
    ordered = ordered_upper(problem)
    return upper if ordered is None else min(upper, ordered)


def ordered_guess(problem: Problem) -> int | None:
    """Return about what the ordered optimum is at most, or None if that is not cheap.

    For transfers that pause it is Algorithm 1's value, which is seldom too small (`dynprog`); then
    a search passes over a problem that might have counted, and claims nothing wrong.
    """
    chain, platform = problem.chain, problem.platform
    if problem.transfers is Transfers.ATOMIC or chain is None:
        return ordered_upper(problem)
    out, back = (platform.rate(kind) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
    try:
        return math.ceil(algorithm_1(chain, platform.memory, out, _MOST_STATES, back)[0])
    except MethodError:
        return None


def ordered_upper(problem: Problem) -> int | None:
    """Return the makespan of GREEDY's schedule, which is ordered, or None if there is none."""
    try:
        return simulate(problem, greedy(problem)).makespan
    except (MethodError, PlanError):
        return None


def makespan(method: str, problem: Problem, goal: int | None = None) -> int | None:
    """Return the makespan as ``offcert solve`` reports it, or None if the method finds no plan.

    Parameters
    ----------
    method : str
        One of `PLANNERS`.
    problem : Problem
        A feasible one.
    goal : int, optional
        A makespan at which a method that goes on improving may stop.
    """
    if method == EXACT_DYNPROG:
        return _exact_dynprog(problem)
    # What ends by itself must not be ended by the clock, or searches would not repeat.
    seconds = math.inf if method in _TOLD else _SECONDS
    search = Search(problem, math.inf)
    if goal is not None:
        search.bounds.append(Bound(OPTIMUM, goal, Evidence.PROVED))
    try:
        METHODS[method].alone(search, Effort(seconds, workers=1))
    except (MethodError, PlanError):
        return None
    return search.objective


def _exact_dynprog(problem: Problem) -> int | None:
    try:
        return simulate(problem, dynprog(problem, slots=None, max_states=_MOST_STATES)).makespan
    except (MethodError, PlanError):
        return None


def _atomic_heads(problem: Problem) -> int:
    from offcert.formulations.labels.ends.heads import heads_bound

    # No optimum is above it, so cutting the bound off there hides nothing.
    upper = quick_upper(problem)
    return heads_bound(problem, upper_bound=upper, time_limit=math.inf).lower_bound


def _fluid_milp(problem: Problem) -> int:
    from offcert.formulations.fluid.milp import fluid_bound

    required = required_absent(problem, problem.transfers is Transfers.ATOMIC)
    return fluid_bound(problem, time_limit=_SECONDS, required=required).value


def _stage_milp(problem: Problem) -> int | None:
    from offcert.formulations.models.stage_milp import solve

    upper = quick_upper(problem)
    outcome = solve(problem, upper_bound=upper, time_limit=_SECONDS)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return None if outcome.claim is None else min(upper, outcome.claim.value)


def _pivot(problem: Problem) -> int:
    from offcert.formulations.labels.pivot.bound import pivot_bound

    return pivot_bound(
        problem,
        upper_bound=quick_upper(problem),
        time_limit=math.inf,
        max_labels=_MOST_LABELS,
    ).lower_bound


BOUNDS: dict[str, Callable[[Problem], int | None]] = {
    "prop3": lambda problem: prop3_bound(problem, False).value,
    "prop3-subset-sum": lambda problem: prop3_bound(problem, True).value,
    "fractional": lambda problem: fractional_bound(problem, False).value,
    "fractional-subset-sum": lambda problem: fractional_bound(problem, True).value,
    "atomic-heads": _atomic_heads,
    "fluid-milp": _fluid_milp,
    "stage-milp": _stage_milp,
    "pivot": _pivot,
}
# What holds for whole tensors only.
_ATOMIC_BOUNDS = (
    "prop3-subset-sum",
    "fractional-subset-sum",
    "atomic-heads",
    "stage-milp",
    "pivot",
)
# Exact models reach the optimum on every problem of this size, and the rest are bounds.
PLANNERS = (
    EXACT_DYNPROG,
    *(
        name
        for name, method in METHODS.items()
        if method.transfers == frozenset(Transfers)
        and Recompute.NONE in method.recompute
        and Minimise.TIME in method.minimise
        and name not in BOUNDS
        and name not in ("bounds", "fluid-exact")
    ),
)
NAMES = (*PLANNERS, ORDERED, *BOUNDS)


def value(name: str, problem: Problem) -> int | None:
    """Return the ticks of a method, bound or optimum on a problem, or None if there are none.

    Parameters
    ----------
    name : str
        One of `NAMES`, or ``"optimum"``.
    problem : Problem
        A feasible one.
    """
    if name == OPTIMUM:
        return optimum(problem)
    if name == ORDERED:
        return ordered_optimum(problem)
    if name in BOUNDS:
        return BOUNDS[name](problem)
    return makespan(name, problem, optimum(problem) if name in _TOLD else None)


def independent_optimum(problem: Problem) -> int | None:
    """Return the optimum without the pivot program, to judge the pivot program itself."""
    return _cpsat_optimum(problem, ordered=False)


def require_applicable(name: str, field: str, transfers: Transfers) -> None:
    """Refuse a value that is not known or means nothing with a kind of transfers.

    Raises
    ------
    InputError
        One sentence that names `field`.
    """
    allowed = NAMES if field == "against" else (OPTIMUM, *NAMES)
    if name not in allowed:
        raise InputError(f'{field} must be one of {", ".join(allowed)}, not "{name}"')
    if name in _ATOMIC_BOUNDS and transfers is not Transfers.ATOMIC:
        raise InputError(f"{field} {name} needs atomic transfers, not {transfers}")


@dataclass(frozen=True)
class Score:
    """Two values on one problem, in ticks; `under` is more than 0."""

    over: int
    under: int

    @property
    def ratio(self) -> Fraction:
        """How many times as much the first one is."""
        return Fraction(self.over, self.under)


class Contest:
    """A ratio of two values of a problem that is to be maximised.

    Parameters
    ----------
    against : str
        Who shall look bad: a method or ``"ordered"``, whose value is divided by the other one, or a
        bound, by which the other one is divided. One of `values.NAMES`.
    by : str
        The value by which it is measured: the optimum, or another method or bound.
    transfers : Transfers
        Kind of transfers in all problems.

    Raises
    ------
    InputError
        If a name is not known, or means nothing with these transfers.
    """

    def __init__(self, against: str, by: str, transfers: Transfers) -> None:
        require_applicable(against, "against", transfers)
        require_applicable(by, "by", transfers)
        self.against = against
        self.by = by
        self.transfers = transfers
        self.is_bound = against in BOUNDS

    @property
    def numbers(self) -> type[Numbers]:
        """The class that makes problems of a candidate's numbers."""
        return Numbers

    def score(self, problem: Problem, at_least: Fraction = Fraction(0)) -> Score | None:
        """Return both values, or None if one is not established or the ratio is less than asked.

        Parameters
        ----------
        problem : Problem
            A feasible one.
        at_least : Fraction
            Ratios below it are of no interest, which often spares the more expensive value.

        Raises
        ------
        NoPlanError
            If the method finds no plan.
        UnsoundError
            If a bound exceeds an optimum, or a makespan is less than one.
        """
        if self._hopeless(problem, at_least):
            return None
        first = value(self.against, problem)
        if first is None and self.against in PLANNERS:
            raise NoPlanError(f"{self.against} finds no plan")
        if first is None or self._out_of_reach(problem, first, at_least):
            return None
        second = self._other(problem)
        if second is None:
            return None
        over, under = (second, first) if self.is_bound else (first, second)
        if self.by == OPTIMUM and over < under:
            raise UnsoundError(
                f"{self.against} is {first} where the optimum is {second}: {problem.network}, "
                f"{problem.platform}, {problem.transfers}"
            )
        score = Score(over, under) if under > 0 else None
        return score if score is not None and score.ratio >= at_least else None

    def _other(self, problem: Problem) -> int | None:
        if self.against == "pivot" and self.by == OPTIMUM:
            return independent_optimum(problem)
        return value(self.by, problem)

    def _hopeless(self, problem: Problem, at_least: Fraction) -> bool:
        """Whether the ordered optimum is in all likelihood too small to be worth computing."""
        if self.against != ORDERED or self.by != OPTIMUM:
            return False
        upper = ordered_guess(problem)
        return upper is not None and upper < at_least * quick_lower(problem)

    def _out_of_reach(self, problem: Problem, first: int, at_least: Fraction) -> bool:
        """Whether cheap bounds on the other value show that the ratio is less than asked."""
        if self.is_bound:
            below = self.by == OPTIMUM or self.by in BOUNDS
            return below and quick_upper(problem) < at_least * first
        return self.by == OPTIMUM and first < at_least * quick_lower(problem)
