"""On captured steps the search counts with what training really makes of a program."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.plans import JointPlan, estimate, ranges_of
from offcert.heuristics.joint.search import joint_search
from offcert.heuristics.joint.state import (
    GAPS,
    JointState,
    new_state,
    new_work,
    program_of,
    range_of,
)
from offcert.heuristics.joint.tables import Tables, tables_of
from offcert.questions.schedule.carried import carried_on
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.profiling.profile import profile
from offcert.verification.execution import execution_faults
from support.networks.interrupted_networks import changed, doubled, network
from support.networks.shallow_networks import shallow
from support.problems.random_instances import seeded

NETWORKS = {"resnet18": "4x3x64x64", "gpt-tiny": "2x32", "densenet121": "2x3x64x64"}


@cache
def captured(name: str, part: Fraction = Fraction(1, 2)) -> Problem:
    with shallow():
        problem = _interrupted() if name == "interrupted" else _of_zoo(name)
    limit = int(problem.trace.peak_memory * part)
    return replace(problem, recompute=Recompute.ANY).with_memory(limit)


def _of_zoo(name: str) -> Problem:
    return profile(name, NETWORKS[name], hardware="v100-pcie")


def _interrupted() -> Problem:
    """Return the problem of a network in whose operations it matters what happens when."""
    blocks = ((doubled,), (changed,), (doubled,), (doubled,))
    return profile(network(*blocks), "4x6", loss="mean", hardware="v100-pcie")


def random_state(rng: random.Random, tables: Tables) -> JointState:
    """Draw ranges inside of ranges, and what is kept in them."""
    state = new_state(tables)
    spans = list(zip(tables.range_first.tolist(), tables.range_last.tolist(), strict=True))

    def fill(low: int, high: int, depth: int) -> None:
        at = low
        while at <= high:
            here = [s for s in spans if at <= s[0] <= at + 3 and s[1] <= high and s != (low, high)]
            if not here or rng.random() < 0.3:
                at += 1
                continue
            first, last = rng.choice(here)
            place = int(state.number[0])
            state.first[place], state.last[place] = first, last
            state.number[0] += 1
            if depth < 2 and rng.random() < 0.5:
                fill(first, last, depth + 1)
            at = last + 1

    fill(0, len(tables.duration) - 1, 0)
    for computation in range(len(tables.duration)):
        if rng.random() < 0.3 and not tables.frozen[computation]:
            row = slice(tables.group_first[computation], tables.group_first[computation + 1])
            state.kept[tables.group[row]] = 1
    for place in range(int(state.number[0])):
        for computation in beyond(tables, int(state.first[place]), int(state.last[place])):
            row = slice(tables.group_first[computation], tables.group_first[computation + 1])
            state.kept[tables.group[row]] = 0
    return state


def beyond(tables: Tables, first: int, last: int) -> list[int]:
    """Return the computations of a range that run again together with others after it."""
    ends = tables.group[tables.group_first[1:] - 1]
    return [each for each in range(first, last + 1) if ends[each] > last]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"),
    [*product(("resnet18", "gpt-tiny", "interrupted"), range(2)), ("densenet121", 0)],
)
def test_memory_and_gaps_are_those_of_training(name: str, seed: int) -> None:
    problem = captured(name)
    network = problem.computed
    assert network is not None
    tables = tables_of(problem, ranges_of(problem))
    state = random_state(seeded(seed), tables)
    assert state.number[0] >= 2
    carried = carried_on(problem, program_of(state))
    assert carried is not None
    found = estimate(tables, state)
    assert found.runs == carried.execution.runs
    assert found.demand == carried.execution.trace.demand
    work = new_work(tables)
    evaluate(tables, state, work, 0.0)
    count = int(work.facts[GAPS])
    rows = (work.gap_value, work.gap_before, work.gap_after)
    gaps = set(zip(*(row[:count].tolist() for row in rows), strict=True))
    turn = next(
        run for run, number in enumerate(found.runs) if not network.computations[number].repeatable
    )
    trace = carried.execution.trace
    real = {
        (carried.execution.values[gap.tensor], gap.before, gap.after)
        for gap in trace.gaps
        if gap.before < turn <= gap.after
    }
    assert gaps == real
    assert len(real) >= 2


def inside_out(rng: random.Random, problem: Problem) -> Problem:
    """Draw anew what happens within operations, and what has to die in them."""
    network = problem.computed
    assert network is not None
    last = [tensor.uses[-1] for tensor in network.trace().tensors]

    def dying(computation: int) -> list[int]:
        there = [value for value, end in enumerate(last) if end == computation]
        others = rng.sample(range(len(last)), 1) if rng.random() < 0.1 else []
        return sorted({*rng.sample(there, min(len(there), 2)), *others})

    makings, asks = [], []
    for number, each in enumerate(network.computations):
        if rng.random() < 0.5:
            makings.append([number, rng.randint(1, 10**5), dying(number)])
        for saver in rng.sample(each.of, len(each.of)):
            left, most, more = (rng.randint(0, 10**5) for _ in range(3))
            row = [left, left + most, left + more, left + most + more]
            asks.append([number, saver, *row, dying(number)])
    source = copy.deepcopy(dict(problem.source))
    source["capture"]["record"]["within"] = {"makings": makings, "asks": asks}
    return replace(problem, source=source)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "gpt-tiny", "interrupted"])
def test_what_happens_within_operations_is_counted_alike(name: str) -> None:
    rng = seeded(7)
    waiting = lines = 0
    for _ in range(12):
        problem = inside_out(rng, captured(name))
        tables = tables_of(problem, ranges_of(problem))
        state = random_state(rng, tables)
        found = estimate(tables, state)
        carried = carried_on(problem, program_of(state))
        assert carried is not None
        if found.runs:
            assert found.demand == carried.execution.trace.demand
            kinds = {each.name.split()[0] for each in carried.execution.trace.tensors}
            waiting += "begun" in kinds
            lines += any(
                tables.carrying.is_line[range_of(tables, first, last)] == 1
                for first, last in zip(state.first, state.last, strict=True)
                if last > first
            )
    assert waiting >= 3
    assert lines >= 1 or name != "resnet18"


@pytest.mark.slow
def test_what_is_changed_in_place_after_a_segment_cannot_be_kept_in_it() -> None:
    problem = captured("resnet18")
    assert problem.computed is not None
    tables = tables_of(problem, ranges_of(problem))
    ranges = zip(tables.range_first.tolist(), tables.range_last.tolist(), strict=True)
    partial = [each for each in ranges if beyond(tables, *each)]
    # Those that end with the second norm of a block, to which the block's input is added.
    assert len(partial) >= 8
    for first, last in partial:
        state = new_state(tables)
        state.number[0], state.first[0], state.last[0] = 1, first, last
        carried = carried_on(problem, program_of(state))
        assert carried is not None
        assert estimate(tables, state).runs == carried.execution.runs
        assert execution_faults(problem.computed, carried.execution) == []
        state.kept[last] = 1
        assert estimate(tables, state).runs == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "gpt-tiny"])
def test_plans_are_what_training_can_follow(name: str) -> None:
    problem = captured(name, Fraction(9, 10))
    network = problem.computed
    assert network is not None
    found: list[JointPlan] = []
    joint_search(
        problem,
        time_limit=30.0,
        ranges=ranges_of(problem),
        coolings=1,
        steps=40,
        transfers=0.0,
        on_improvement=found.append,
    )
    assert found
    for plan in found:
        carried = carried_on(problem, plan.program)
        assert carried is not None
        assert plan.execution == carried.execution
        assert execution_faults(network, plan.execution) == []
        assert check(problem.executed(plan.execution), plan.schedule) == []
