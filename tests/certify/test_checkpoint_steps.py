"""The step that stores some data of a chain and computes the rest again."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from checkpoint_oracle import subsets
from random_networks import checkpoint_chain, recompute_problem

from offcert.certify.checkpoint_steps import descend_checkpoints
from offcert.certify.effort import Effort
from offcert.certify.joint_search import JointSearch
from offcert.core.problem import Minimise, Recompute
from offcert.formulations.checkpoint.live import live_bytes, recomputed_time
from offcert.instances.selection_networks import selection_network

EFFORT = Effort(1.0)


@pytest.mark.parametrize("recompute", [Recompute.CHAIN, Recompute.ANY])
def test_the_fewest_live_bytes_are_offered(recompute: Recompute) -> None:
    rng = random.Random(15)
    for _ in range(15):
        chain = checkpoint_chain(rng, rng.randint(1, 5))
        problem = recompute_problem(rng, chain)
        problem = replace(problem, minimise=Minimise.MEMORY, recompute=recompute)
        search = JointSearch(problem, 10.0)
        descend_checkpoints(search, EFFORT)
        assert search.memory == min(live_bytes(chain, each) for each in subsets(len(chain)))
        assert search.result().execution is not None


def test_where_time_is_minimised_only_what_fits_is_offered() -> None:
    chain = selection_network("vgg19", 8)
    plain = chain.network().trace()
    problem = recompute_problem(random.Random(0), chain, Fraction(1))
    search = JointSearch(problem, 10.0)
    descend_checkpoints(search, EFFORT)
    assert search.objective == plain.compute_time
    published = live_bytes(chain, (0, 3, 6, 24))
    search = JointSearch(problem.with_memory(published), 10.0)
    descend_checkpoints(search, EFFORT)
    again = recomputed_time(chain, (0, 3, 6, 24))
    assert plain.compute_time < search.objective <= plain.compute_time + again
    search = JointSearch(problem.with_memory(published // 2), 10.0)
    descend_checkpoints(search, EFFORT)
    assert search.objective is None


def test_a_deadline_is_kept() -> None:
    chain = selection_network("alexnet", 8)
    problem = recompute_problem(random.Random(0), chain, Fraction(1))
    time = chain.network().compute_time
    memory = {}
    for deadline in (time, time + sum(chain.forward) // 2, 2 * time):
        search = JointSearch(replace(problem, minimise=Minimise.MEMORY, deadline=deadline), 10.0)
        descend_checkpoints(search, EFFORT)
        assert search.result().schedule.makespan <= deadline
        memory[deadline] = search.memory
    values = list(memory.values())
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0] == chain.network().trace().peak_memory


def test_it_says_nothing_where_nothing_may_run_again() -> None:
    problem = recompute_problem(random.Random(0), selection_network("alexnet", 1), Fraction(1))
    search = JointSearch(replace(problem, recompute=Recompute.NONE), 10.0)
    descend_checkpoints(search, EFFORT)
    assert search.objective is None
