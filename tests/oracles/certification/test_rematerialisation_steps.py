"""Steps of recomputation alone: what they offer is legal, what they prove is established."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.rematerialisation import (
    bound_least_memory,
    descend_persistent,
    descend_rematerialisation,
    solve_checkmate,
    solve_retention,
    solve_stages,
)
from offcert.core.platform import Platform
from offcert.core.result import Evidence, SolveStatus
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.verification.findings import recheck
from support.oracles.rematerialisation import RematerialisationOracle
from support.problems.random_networks import checkpoint_chain, random_network

STEPS = (
    bound_least_memory,
    descend_persistent,
    descend_rematerialisation,
    solve_stages,
    solve_checkmate,
    solve_retention,
)


def problem_of(seed: int, chain: bool = False) -> tuple[Problem, RematerialisationOracle]:
    rng = random.Random(seed)
    network = checkpoint_chain(rng, 2) if chain else random_network(rng, 3)
    computed = network.network() if chain else network
    oracle = RematerialisationOracle(computed)
    least, peak = oracle.least_memory(), computed.trace().peak_memory
    platform = Platform(rng.randint(least or 0, peak), Fraction(1))
    return Problem("p", network, platform, recompute=Recompute.ANY, offload=False), oracle


@pytest.mark.slow
@pytest.mark.parametrize("chain", [False, True])
def test_all_steps_together_reach_brute_force(chain: bool) -> None:
    for seed in range(5):
        problem, oracle = problem_of(seed, chain)
        best = oracle.least_time(problem.platform.memory)
        assert best is not None
        for each, value in (
            (problem, best[0]),
            (replace(problem, minimise=Minimise.MEMORY), oracle.least_memory()),
        ):
            search = Search(each, 20)
            for step in STEPS:
                step(search, Effort(0.2 if step is descend_rematerialisation else 10))
            assert search.objective == value
            assert search.lower_bound <= value
            assert not search.refuted
            for bound in search.bounds:
                if bound.evidence is Evidence.PROVED:
                    assert recheck(bound, each) is None


def test_two_solvers_attest_together() -> None:
    found = set()
    for seed in range(6):
        problem, _ = problem_of(seed)
        search = Search(problem, 20)
        solve_retention(search, Effort(10))
        solve_stages(search, Effort(10))
        result = search.result()
        if result.status is SolveStatus.OPTIMAL:
            found.add(result.evidence)
    assert Evidence.CROSS_ATTESTED in found


def test_persistent_strategies_are_what_chains_allow() -> None:
    for seed in range(6):
        problem, _ = problem_of(seed, chain=True)
        for least in Minimise:
            each = replace(problem, recompute=Recompute.CHAIN, minimise=least)
            search = Search(each, 20)
            for step in STEPS:
                step(search, Effort(0.2))
            assert least is Minimise.TIME or search.execution is not None


def test_claims_about_recomputation_alone_bound_nothing_else() -> None:
    """What is found serves where tensors may leave as well; what is claimed does not."""
    for seed in range(4):
        problem, _ = problem_of(seed)
        search = Search(replace(problem, offload=True), 20)
        for step in (solve_stages, solve_retention, solve_checkmate):
            step(search, Effort(5))
        assert search.bounds == []
        assert search.execution is not None
