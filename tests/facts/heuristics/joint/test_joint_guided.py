"""Starts that follow what shares of computations run again in a linear relaxation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from test_joint_repeats import layered

from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.plans import estimate, ranges_of
from offcert.heuristics.joint.search import joint_search
from offcert.heuristics.joint.starts import guided
from offcert.heuristics.joint.state import new_work, program_of
from offcert.heuristics.joint.tables import tables_of
from offcert.questions.schedule.carried import carried_on
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.profiling.profile import profile
from offcert.verification.execution import execution_faults
from support.networks.shallow_networks import shallow
from support.problems.random_instances import seeded


def test_so_many_layers_do_it_as_the_shares_say_nearly() -> None:
    layers = [(first, first + 2) for first in range(1, 25, 3)]
    tables = tables_of(layered(8), layers)
    # Half of the second computation of each layer, and all of the third.
    shares = {2 + 3 * layer: 0.5 for layer in range(8)} | {3 + 3 * n: 1.0 for n in range(8)}
    work = new_work(tables)
    states = guided(tables, shares, work, 1.0, 10)
    values = [evaluate(tables, state, work, 1.0) for state in states]
    assert values == sorted(set(values))
    assert len(states) >= 5
    seen = set()
    for state in states:
        again = {number for number in range(25) if not state.kept[number]}
        counts = Counter((number - 1) % 3 for number in again)
        assert counts[2] == 8
        assert counts[0] == 0
        assert 0 not in again
        assert 1 <= counts[1] <= 7
        seen.add(counts[1])
        assert int(state.number[0]) == 8
        assert list(zip(state.first[:8], state.last[:8], strict=True)) == layers
    assert len(seen) >= 3
    # Once the time is over, one is enough.
    assert len(guided(tables, shares, work, 1.0, 10, until=0.0)) == 1


def captured(name: str, shape: str) -> Problem:
    """Return the problem of a network at half of its peak."""
    with shallow():
        problem = profile(name, shape, hardware="v100-pcie")
    return replace(problem, recompute=Recompute.ANY).with_memory(problem.trace.peak_memory // 2)


@pytest.mark.slow
def test_what_a_relaxation_says_becomes_programs_that_training_carries_out() -> None:
    problem = captured("resnet18", "4x3x64x64")
    network = problem.computed
    assert network is not None
    rng = seeded(5)
    shares = {number: rng.choice((0.0, 0.4, 0.7, 1.0)) for number in range(len(network))}
    tables = tables_of(problem, ranges_of(problem))
    work = new_work(tables)
    states = guided(tables, shares, work, 1.0, 4)
    assert len(states) >= 2
    for state in states:
        carried = carried_on(problem, program_of(state))
        assert carried is not None
        assert execution_faults(network, carried.execution) == []
        assert estimate(tables, state).runs == carried.execution.runs
    plans: list[int] = []
    joint_search(
        problem,
        time_limit=60.0,
        coolings=1,
        steps=5,
        transfers=0.0,
        ranges=ranges_of(problem),
        shares=shares,
        on_improvement=lambda plan: plans.append(plan.schedule.makespan),
    )
    # The first start is a plan at once, if it fits.
    fitting = [estimate(tables, state).makespan for state in states[:1]]
    assert all(makespan is None or min(plans) <= makespan for makespan in fitting)
