"""The step that stores some data of a chain and computes the rest again."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps import rematerialisation as checkpoint_steps
from offcert.certification.search_steps.rematerialisation import descend_checkpoints
from offcert.heuristics.checkpoint.live import live_bytes, recomputed_time
from offcert.heuristics.checkpoint.live_curve import live_curve, live_selection
from offcert.questions.schedule.problem import Minimise, Recompute
from papers.checkpoint_chains.networks import selection_network
from support.oracles.checkpoint import subsets
from support.problems.random_networks import checkpoint_chain, recompute_problem

EFFORT = Effort(1.0)


@pytest.mark.parametrize("recompute", [Recompute.CHAIN, Recompute.ANY])
def test_the_fewest_live_bytes_are_offered(recompute: Recompute) -> None:
    rng = random.Random(15)
    for _ in range(15):
        chain = checkpoint_chain(rng, rng.randint(1, 5))
        problem = recompute_problem(rng, chain)
        problem = replace(problem, minimise=Minimise.MEMORY, recompute=recompute)
        search = Search(problem, 10.0)
        descend_checkpoints(search, EFFORT)
        assert search.memory <= min(live_bytes(chain, each) for each in subsets(len(chain)))
        assert search.memory == live_curve(chain)[0].memory
        assert search.result().execution.trace.peak_memory == search.memory


def test_where_time_is_minimised_only_what_fits_is_offered() -> None:
    chain = selection_network("vgg19", 8)
    plain = chain.network().trace()
    problem = recompute_problem(random.Random(0), chain, Fraction(1))
    search = Search(problem, 10.0)
    descend_checkpoints(search, EFFORT)
    assert search.objective == plain.compute_time
    published = live_bytes(chain, (0, 3, 6, 24))
    search = Search(problem.with_memory(published), 10.0)
    descend_checkpoints(search, EFFORT)
    again = recomputed_time(chain, (0, 3, 6, 24))
    assert plain.compute_time < search.objective < plain.compute_time + again
    search = Search(problem.with_memory(published - 1), 10.0)
    descend_checkpoints(search, EFFORT)
    assert search.objective is None


def test_a_deadline_is_kept() -> None:
    chain = selection_network("alexnet", 8)
    problem = recompute_problem(random.Random(0), chain, Fraction(1))
    time = chain.network().compute_time
    memory = {}
    for deadline in (time, time + sum(chain.forward) // 2, 2 * time):
        search = Search(replace(problem, minimise=Minimise.MEMORY, deadline=deadline), 10.0)
        descend_checkpoints(search, EFFORT)
        assert search.result().schedule.makespan <= deadline
        memory[deadline] = search.memory
    values = list(memory.values())
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0] == chain.network().trace().peak_memory


def test_no_time_to_spare_and_less_than_none() -> None:
    chain = selection_network("alexnet", 8)
    problem = recompute_problem(random.Random(0), chain, Fraction(1))
    impossible = chain.network().compute_time - 1
    search = Search(replace(problem, minimise=Minimise.MEMORY, deadline=impossible), 10.0)
    descend_checkpoints(search, EFFORT)
    assert search.objective is None


@pytest.mark.parametrize("minimise", list(Minimise))
def test_long_chains_by_live_bytes_alone(minimise: Minimise, monkeypatch) -> None:
    monkeypatch.setattr(checkpoint_steps, "MAX_CURVE_STAGES", 5)
    chain = selection_network("vgg19", 8)
    least = live_selection(chain).memory
    problem = recompute_problem(random.Random(0), chain, Fraction(1)).with_memory(least)
    search = Search(replace(problem, minimise=minimise), 10.0)
    descend_checkpoints(search, EFFORT)
    assert search.result().execution.trace.peak_memory == least
    if minimise is Minimise.TIME:
        search = Search(problem.with_memory(least - 1), 10.0)
        descend_checkpoints(search, EFFORT)
        assert search.objective is None


def test_it_says_nothing_where_nothing_may_run_again() -> None:
    problem = recompute_problem(random.Random(0), selection_network("alexnet", 1), Fraction(1))
    search = Search(replace(problem, recompute=Recompute.NONE), 10.0)
    descend_checkpoints(search, EFFORT)
    assert search.objective is None
