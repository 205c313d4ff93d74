"""The compiled evaluation of a program is what the core makes of it."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.errors import InputError, MethodError
from offcert.core.execution import Execution
from offcert.core.platform import Link
from offcert.core.program import Program, Segment
from offcert.heuristics.joint.plans import Estimate, estimate, ranges_of, realised
from offcert.heuristics.joint.state import JointState, new_state, program_of, state_of
from offcert.heuristics.joint.tables import Tables, tables_of
from offcert.heuristics.orders.ordered import ordered_makespan
from offcert.questions.schedule.problem import Problem
from offcert.verification.execution import execution_faults
from support.problems.random_instances import seeded
from support.problems.random_networks import checkpoint_chain, random_network, recompute_problem
from support.problems.residual_networks import residual_problem
from support.seeds import by_seeds


def random_state(rng: random.Random, tables: Tables) -> JointState:
    """Draw segments inside of segments, and what is kept in them."""
    state = new_state(tables)
    count = len(tables.duration)

    def fill(first: int, last: int, depth: int) -> None:
        at = first
        while at <= last:
            begin = rng.randint(at, last)
            end = min(last, begin + rng.randint(0, 8))
            if end < tables.beyond[begin] and tables.blocked[begin] == tables.blocked[end + 1]:
                if depth == 0 or (begin, end) != (first, last):
                    state.first[state.number[0]], state.last[state.number[0]] = begin, end
                    state.number[0] += 1
                    if depth < 2 and rng.random() < 0.5:
                        fill(begin, end, depth + 1)
                at = end + 1
            else:
                at += 1

    fill(0, count - 1, 0)
    for computation in range(count):
        if rng.random() < 0.3 and not tables.frozen[computation]:
            row = slice(tables.group_first[computation], tables.group_first[computation + 1])
            state.kept[tables.group[row]] = 1
    ends = tables.group[tables.group_first[1:] - 1]
    for place in range(int(state.number[0])):
        # What is changed in place after a segment cannot be kept in it.
        for computation in range(state.first[place], state.last[place] + 1):
            if ends[computation] > state.last[place]:
                row = slice(tables.group_first[computation], tables.group_first[computation + 1])
                state.kept[tables.group[row]] = 0
    for value in range(len(tables.size)):
        state.stays[value] = rng.random() < 0.1
    return state


def problems(seed: int) -> Problem:
    rng = seeded(seed)
    if seed % 3 == 0:
        return recompute_problem(rng, checkpoint_chain(rng, rng.randint(2, 9)))
    if seed % 3 == 1:
        return recompute_problem(rng, random_network(rng, rng.randint(3, 9)))
    link = Link.SIMPLEX if seed % 2 else Link.DUPLEX
    return residual_problem(rng.randint(1, 5), Fraction(rng.randint(4, 10), 10), link=link)


def execution_of(problem: Problem, state: JointState) -> Execution:
    network = problem.computed
    assert network is not None
    return program_of(state).strategy(network).without_unread(network).expand(network)


def gaps_of(problem: Problem, execution: Execution, found: Estimate) -> list[int]:
    numbers = {
        (execution.values[gap.tensor], gap.before, gap.after): number
        for number, gap in enumerate(problem.trace.gaps)
    }
    return [numbers[gap] for gap in found.gaps]


@pytest.mark.parametrize("seed", range(120))
def test_the_estimate_is_the_exact_simulation(seed: int) -> None:
    problem = problems(seed)
    tables = tables_of(problem)
    state = random_state(seeded(seed), tables)
    found = estimate(tables, state)
    if not found.runs:
        # Something would be read that has been made again, but not changed again.
        with pytest.raises(InputError, match="which is not there"):
            execution_of(problem, state)
        return
    execution = execution_of(problem, state)
    assert problem.computed is not None
    assert execution_faults(problem.computed, execution) == []
    assert found.runs == execution.runs
    scheduled = problem.executed(execution)
    assert found.demand == scheduled.trace.demand
    if found.makespan is None:
        assert found.lacking > 0
        return
    exact = ordered_makespan(scheduled, gaps_of(scheduled, execution, found))
    if problem.platform.duplex:
        # Waiting for the other direction to end is left out.
        assert exact is None or found.makespan <= exact
    else:
        assert found.makespan == exact
    plan = realised(problem, tables, state)
    if plan is not None:
        assert plan.schedule.makespan >= found.makespan


@by_seeds(0, 120, 30)
def test_most_of_them_fit(seeds: range) -> None:
    """So that the test above is about schedules."""
    fitting = 0
    for seed in seeds:
        tables = tables_of(problems(seed))
        fitting += estimate(tables, random_state(seeded(seed), tables)).makespan is not None
    assert fitting >= 20


@pytest.mark.parametrize("seed", range(20))
def test_a_program_and_its_state(seed: int) -> None:
    tables = tables_of(problems(seed))
    program = program_of(random_state(seeded(seed), tables))
    state = state_of(program, tables)
    assert state is not None
    assert program_of(state) == program


def test_programs_of_which_there_is_no_state() -> None:
    problem = residual_problem(2, Fraction(1, 2))
    anything, blocks = tables_of(problem), tables_of(problem, [(1, 7), (8, 14)])
    block, other = Program([Segment(1, 7)]), Program([Segment(1, 8)])
    assert state_of(block, blocks) is not None
    assert state_of(other, anything) is not None
    assert state_of(other, blocks) is None
    # The activation changes what the norm before it makes: both are kept, or neither.
    assert state_of(Program([Segment(1, 7, (2, 3))]), anything) is not None
    assert state_of(Program([Segment(1, 7, (2,))]), anything) is None
    # The norm may run again without it, but not the other way round.
    assert state_of(Program([Segment(1, 2)]), anything) is not None
    assert state_of(Program([Segment(3, 4)]), anything) is None
    assert state_of(Program([Segment(1, 99)]), anything) is None


def test_where_nothing_leaves_nothing_moves() -> None:
    problem = residual_problem(4, Fraction(1, 2), offload=False)
    tables = tables_of(problem)
    found = estimate(tables, new_state(tables))
    assert found.gaps == ()
    assert found.makespan is None
    assert found.lacking == problem.trace.peak_memory - problem.platform.memory
    roomy = tables_of(problem.with_memory(problem.trace.peak_memory))
    assert estimate(roomy, new_state(roomy)).makespan == problem.trace.compute_time


def test_what_cannot_be_searched() -> None:
    problem = residual_problem(2, Fraction(1, 2))
    with pytest.raises(InputError, match=r"ranges\[1\] must lie inside of computations 0 to"):
        tables_of(problem, [(0, 1), (3, 999)])
    with pytest.raises(MethodError, match="needs a network"):
        tables_of(problem.plain())


def test_ranges_of_a_captured_step() -> None:
    problem = residual_problem(2, Fraction(1, 2))
    assert ranges_of(problem) is None
    row = {"path": "r", "call": 0, "names": ["0", "1", "2"], "first": [1, 3, 6], "last": [2, 5, 8]}
    ranges = {"calls": [[4, 5, "m", 0]], "rows": [row]}
    captured = replace(problem, source={"capture": {"ranges": ranges}})
    expected = [(1, 2), (1, 5), (1, 8), (3, 5), (3, 8), (4, 5), (6, 8)]
    assert ranges_of(captured) == expected
