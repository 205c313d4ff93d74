"""Steps of annealing: whatever they make is a plan, within its limits, and worth what it says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError, PlanError
from offcert.core.platform import Kind, Platform
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.heuristics.evictions.rules import sequential
from offcert.heuristics.orders.annealing import Annealer, no_limits
from offcert.heuristics.orders.local_search import random_limits, restricted_plan
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import Simulator
from support.problems.random_instances import mixed_problem, random_problem


def feasible(first: int, count: int, largest: int) -> list[Problem]:
    problems = (mixed_problem(seed, largest) for seed in range(first, first + count))
    return [p for p in problems if p.trace.gaps and infeasibility(p) is None]


def require_within(plan: Plan, limits: np.ndarray) -> None:
    for move in plan.moves:
        row = 2 if move.kind is Kind.PREFETCH else 0
        assert limits[row, move.gap] <= move.before <= limits[row + 1, move.gap]


def test_a_walk_visits_plans_only() -> None:
    """Very hot annealing accepts every executable neighbour: all kinds of step, all families."""
    visited = 0
    for problem in feasible(0, 60, 8):
        simulator = Simulator(problem)
        annealer = Annealer(simulator, sequential(problem), seed=1)
        for _ in range(30):
            annealer.run(20, 1e9, 1e8)
            plan = annealer.plan
            plan.require_consistent(problem.trace)
            assert [m.before for m in plan.moves] == sorted(m.before for m in plan.moves)
            assert simulator.run(plan).makespan == annealer.current >= annealer.makespan
            visited += len(plan.moves) > 0
    assert visited > 1000


def test_a_walk_stays_within_its_limits() -> None:
    walks = 0
    for seed, problem in enumerate(feasible(500, 60, 8)):
        simulator = Simulator(problem)
        start = sequential(problem)
        random = np.random.default_rng(seed)
        limits = random_limits(problem, random, simulator.run(start))
        annealer = Annealer(simulator, start, seed)
        try:
            annealer.restart(restricted_plan(problem, limits, start))
        except (MethodError, PlanError):
            continue
        annealer.limits[:] = limits
        for _ in range(10):
            annealer.run(50, 1e9, 1e8)
            require_within(annealer.plan, limits)
        walks += bool((limits != no_limits(problem.trace)).any())
    assert walks > 20


def test_a_kept_gap_is_never_evicted() -> None:
    chain = Chain([5] * 6, [5] * 6, [10, 9, 8, 7, 6, 5, 4], [0] * 7)
    problem = Problem("steps", chain, Platform(40, Fraction(1)))
    evicted = set()
    annealer = Annealer(Simulator(problem), sequential(problem), seed=0)
    for _ in range(50):
        annealer.run(20, 1e9, 1e8)
        evicted |= set(annealer.plan.evicted)
    gap = min(evicted - set(annealer.plan.evicted))
    annealer.limits[:, gap] = (len(problem.trace), -1, len(problem.trace), -1)
    for _ in range(50):
        annealer.run(20, 1e9, 1e8)
        assert gap not in annealer.plan.evicted


def test_a_plan_that_gets_stuck_is_no_start() -> None:
    problem = random_problem(11, 8)
    start = sequential(problem)
    annealer = Annealer(Simulator(problem), start, seed=0)
    before = annealer.current
    assert start.moves
    with pytest.raises(PlanError, match="executable"):
        annealer.restart(Plan())
    assert annealer.current == before
    assert annealer.plan.evicted == start.evicted
