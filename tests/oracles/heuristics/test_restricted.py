"""Plans within limits, and limits at random."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError, PlanError
from offcert.core.platform import Kind, Platform
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.heuristics.evictions.rules import sequential
from offcert.heuristics.orders.annealing import no_limits
from offcert.heuristics.orders.local_search import random_limits, restricted_plan
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.problems.random_instances import duplex_with_returns, mixed_problem
from support.seeds import by_seeds


@by_seeds(0, 200, 29)
def test_without_limits_every_feasible_problem_has_a_plan(seeds: range) -> None:
    tried = 0
    for seed in seeds:
        problem = mixed_problem(seed, 8)
        if infeasibility(problem) is None:
            plan = restricted_plan(problem, no_limits(problem.trace))
            assert check(problem, simulate(problem, plan)) == []
            tried += 1
    assert tried >= 20


@by_seeds(0, 300, 30)
def test_plans_respect_random_limits(seeds: range) -> None:
    """With a base plan or without; what cannot be done is said, never done half."""
    made = refused = stuck = limited = 0
    for seed in seeds:
        problem = mixed_problem(seed, 8)
        if not problem.trace.gaps or infeasibility(problem) is not None:
            continue
        base = sequential(problem)
        random = np.random.default_rng(seed)
        limits = random_limits(problem, random, simulate(problem, base))
        limited += bool((limits != no_limits(problem.trace)).any())
        try:
            plan = restricted_plan(problem, limits, base if seed % 3 else None)
        except MethodError:
            refused += 1
            continue
        for move in plan.moves:
            row = 2 if move.kind is Kind.PREFETCH else 0
            assert limits[row, move.gap] <= move.before <= limits[row + 1, move.gap]
        try:
            assert check(problem, simulate(problem, plan)) == []
            made += 1
        except PlanError:
            stuck += 1
    assert limited >= 21
    assert made >= 8
    assert refused >= 6
    assert stuck < made / 10


def narrow() -> Problem:
    """Return a chain on which around the turn one of two large tensors must be away."""
    chain = Chain([5] * 4, [5] * 4, [10, 10, 1, 1, 1], [0] * 5)
    return Problem("narrow", chain, Platform(21, Fraction(1)))


def test_a_base_plan_is_kept_where_the_limits_allow_it() -> None:
    problem = narrow()
    base = sequential(problem)
    assert restricted_plan(problem, no_limits(problem.trace), base) == base


def test_what_may_not_leave_is_replaced_and_what_is_missing_is_named() -> None:
    problem = narrow()
    (gap,) = set(sequential(problem).evicted)
    trace = problem.trace
    limits = no_limits(trace)
    limits[:, gap] = (len(trace), -1, len(trace), -1)
    assert gap not in restricted_plan(problem, limits).evicted
    limits[0, :] = len(trace)
    with pytest.raises(MethodError, match=r"operation \d+ \(.*\) never fits"):
        restricted_plan(problem, limits)


def test_on_a_duplex_link_an_offload_may_be_listed_behind_its_prefetch() -> None:
    """Only the order within a direction counts there, so both lists are one plan."""
    problem = duplex_with_returns().with_memory(17)
    (gap,) = (g for g, item in enumerate(problem.trace.gaps) if item.tensor == 0)
    leave, back = Move(Kind.OFFLOAD, gap, 5), Move(Kind.PREFETCH, gap, 5)
    usual, behind = Plan([leave, back]), Plan([back, leave])
    assert simulate(problem, behind) == simulate(problem, usual)
    restricted = restricted_plan(problem, no_limits(problem.trace), behind)
    assert restricted.evicted == (gap,)
    assert check(problem, simulate(problem, restricted)) == []
    limits = no_limits(problem.trace)
    limits[0, gap] = 4
    (moved, _) = restricted_plan(problem, limits, behind).moves
    assert moved == Move(Kind.OFFLOAD, gap, 4)
