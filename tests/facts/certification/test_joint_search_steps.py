"""The ladder's step that searches for joint plans."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.joint import descend_joint
from offcert.core.program import program_from_json
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.verification.execution import execution_faults, persistency_faults
from support.problems.random_instances import seeded
from support.problems.random_networks import checkpoint_chain, recompute_problem
from support.problems.residual_networks import residual_problem


def searched(problem: Problem, seconds: float = 0.5, workers: int = 1) -> Search:
    search = Search(problem, 60.0)
    descend_joint(search, Effort(seconds, workers=workers))
    return search


@pytest.mark.slow
@pytest.mark.parametrize("offload", [True, False])
def test_it_offers_what_runs_again(offload: bool) -> None:
    problem = residual_problem(6, Fraction(1, 2), offload=offload)
    search = searched(problem, workers=2)
    network = problem.computed
    assert network is not None
    assert search.execution is not None
    assert execution_faults(network, search.execution) == []
    assert search.execution.repeated > 0
    program = program_from_json(search.execution.program, "program")
    assert program.strategy(network).order == search.execution.runs
    assert search.objective is not None
    assert network.compute_time < search.objective < 1.4 * network.compute_time


@pytest.mark.slow
def test_it_keeps_to_the_ranges_of_a_capture() -> None:
    problem = residual_problem(6, Fraction(1, 2))
    ranges = {"calls": [[first, first + 6, "m", 0] for first in range(1, 43, 7)], "rows": []}
    search = searched(replace(problem, source={"capture": {"ranges": ranges}}))
    assert search.execution is not None
    segments = program_from_json(search.execution.program, "program").segments
    assert segments
    assert all(each.last == each.first + 6 and each.first % 7 == 1 for each in segments)


@pytest.mark.parametrize("seed", range(6))
def test_strategies_of_chains_stay_persistent(seed: int) -> None:
    rng = seeded(seed)
    problem = recompute_problem(rng, checkpoint_chain(rng, 6), Fraction(1, 2))
    search = searched(replace(problem, recompute=Recompute.CHAIN), 0.2)
    network = problem.computed
    assert network is not None
    if search.execution is not None:
        assert persistency_faults(network, search.execution) == []


def test_other_problems_are_left_alone() -> None:
    problem = residual_problem(2, Fraction(1, 2))
    assert searched(replace(problem, minimise=Minimise.MEMORY)).execution is None
    assert searched(problem.plain()).execution is None


def test_an_interrupt_leaves_what_is_known() -> None:
    problem = residual_problem(6, Fraction(1, 2))
    search = Search(problem, 60.0)
    offer = search.offer_executed

    def interrupted(*arguments: object) -> bool:
        offer(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    search.offer_executed = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        descend_joint(search, Effort(5.0))
    assert search.objective is not None
