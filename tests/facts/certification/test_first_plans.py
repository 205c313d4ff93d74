"""With next to no time a plan is no worse than what needs no search, or is allowed less."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest

from offcert.certification.ladder import certify
from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.joint import descend_first
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import MethodError, PlanError
from offcert.core.strategy import Strategy
from offcert.heuristics.checkpoint.live import checkpoint_execution
from offcert.heuristics.checkpoint.persistent import persistent
from offcert.heuristics.evictions.rules import greedy, sequential
from offcert.heuristics.joint.search import joint_search
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.problems.random_networks import checkpoint_chain, random_network, recompute_problem
from support.problems.residual_networks import residual_problem

# Less than any step that looks at the clock needs.
NO_TIME = 0.001


@cache
def problems() -> list[Problem]:
    """Chains, random networks and residual networks at limits from tight to wide."""
    found = []
    for seed in range(24):
        rng = random.Random(seed)
        part = Fraction(1 + seed % 4, 5)
        kind = seed % 3
        if kind == 0:
            found.append(recompute_problem(rng, checkpoint_chain(rng, 4 + seed % 9), part))
        elif kind == 1:
            found.append(recompute_problem(rng, random_network(rng, 4 + seed % 5), part))
        else:
            found.append(residual_problem(2 + seed % 4, part))
    return found


def value(problem: Problem) -> float:
    """Return the ticks of the first plan; infinitely many if there is none."""
    search = Search(problem, NO_TIME)
    descend_first(search, Effort(NO_TIME))
    return math.inf if search.objective is None else search.objective


def makespan(problem: Problem, make: Callable[[], object]) -> float:
    """Return the ticks of an execution in which nothing leaves, if it is possible."""
    with suppress(MethodError, PlanError):
        return simulate(problem.executed(make()), Plan()).makespan  # type: ignore[arg-type]
    return math.inf


@pytest.mark.parametrize("number", range(24))
def test_what_allows_more_is_never_worse(number: int) -> None:
    problem = problems()[number]
    both, plain = value(problem), problem.plain()
    assert both <= value(replace(problem, offload=False))
    for rule in (sequential, greedy):
        with suppress(MethodError, PlanError):
            assert both <= simulate(plain, rule(plain)).makespan


@pytest.mark.parametrize("number", range(0, 24, 3))
def test_chains_have_persistent_checkpoints_and_every_layer_checkpointed(number: int) -> None:
    problem = replace(problems()[number], offload=False)
    chain = problem.checkpoint_chain
    assert chain is not None
    found, stages = value(problem), len(chain)
    few = lambda: persistent(chain, problem.platform.memory, 100).expand(chain.network())  # noqa: E731
    assert found <= makespan(problem, few)
    for pace in {1, max(1, math.isqrt(stages))}:
        selected = [*range(0, stages, pace), stages]
        assert found <= makespan(problem, lambda: checkpoint_execution(chain, selected))  # noqa: B023


@pytest.mark.slow
def test_long_chains_do_without_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints of 700 stages took eleven seconds of a processor, whatever the limit of time."""
    asked: list[int] = []

    def counted(chain: CheckpointChain, memory: int, slots: int) -> Strategy:
        asked.append(len(chain))
        return persistent(chain, memory, slots)

    monkeypatch.setattr("offcert.heuristics.checkpoint.persistent.persistent", counted)
    for stages in (20, 251):
        rng = random.Random(stages)
        value(recompute_problem(rng, checkpoint_chain(rng, stages), Fraction(1, 2)))
    assert asked == [20]


@pytest.mark.slow
def test_a_search_without_time_has_them() -> None:
    for problem in problems()[:6]:
        found = certify(problem, time_limit=0.01, workers=1).result.objective
        first = value(problem)
        assert first == math.inf or (found is not None and found <= first)


def test_without_time_nothing_searches_on_once_there_is_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[float] = []

    def counted(problem: Problem, *, time_limit: float, **options: object) -> None:
        limits.append(time_limit)
        joint_search(problem, time_limit=time_limit, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("offcert.heuristics.joint.search.joint_search", counted)
    found = certify(problems()[5], time_limit=0.001, workers=1)
    assert found.result.objective is not None
    assert limits
    assert min(limits) > 1.0
