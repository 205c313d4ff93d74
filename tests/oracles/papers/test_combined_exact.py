"""Exact models of offloading with recomputation: by enumeration, and against the program."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.result import SolveStatus
from offcert.core.strategy import Strategy
from offcert.core.trace import Operation, Trace
from offcert.formulations.common.linear_solvers import SCIPY, solve_linear
from offcert.formulations.fluid.program import FixedDecisions, FluidProgram, Rules
from offcert.heuristics.combined.search import combined_plan
from offcert.questions.schedule.check import check
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Recompute, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.verification.execution import execution_faults, persistency_faults
from papers.combined.assumptions import NAMES, PUBLISHED, Assumptions
from papers.combined.exact import CombinedOutcome, solve_combined
from support.problems.combined import combined_problem, combined_problems
from support.problems.random_networks import checkpoint_chain

# The strategies without what Table 1 forbids, and all nested ones that keep things as it does.
BOTH = {False: PUBLISHED, True: PUBLISHED.without("operations")}


def program_value(problem: Problem, **options: bool) -> int | None:
    try:
        return combined_plan(problem, None, **options).value
    except NoPlanError:
        return None


def require_optimal(problem: Problem, outcome: CombinedOutcome) -> int | None:
    """Return the optimum, None if there is none, after a look at what was found."""
    if outcome.status is SolveStatus.INFEASIBLE:
        assert outcome.schedule is None
        return None
    assert outcome.status is SolveStatus.OPTIMAL
    network, execution, scheduled = problem.computed, outcome.execution, outcome.scheduled
    assert network is not None
    assert execution is not None
    assert scheduled is not None
    assert not execution_faults(network, execution)
    if isinstance(outcome.schedule, FluidSchedule):
        assert not check_fluid(scheduled, outcome.schedule)
    else:
        assert isinstance(outcome.schedule, Schedule)
        assert not check(scheduled, outcome.schedule)
    assert outcome.lower_bound == outcome.objective
    return outcome.objective


@pytest.mark.parametrize("bare", [False, True])
def test_the_program_is_exact_under_its_assumptions(bare: bool) -> None:
    """Nothing rounded; of a hundred chains, as many without a plan in one as in the other."""
    seeds = range(1000, 1100) if not bare else range(1000, 1045)
    moving = repeated = infeasible = 0
    for problem in combined_problems(seeds, 6 if not bare else 4):
        outcome = solve_combined(problem, BOTH[bare])
        value = require_optimal(problem, outcome)
        assert value == program_value(problem, bare=bare), problem.name
        infeasible += value is None
        if outcome.execution is not None and outcome.schedule is not None:
            repeated += outcome.execution.repeated > 0
            moving += bool(isinstance(outcome.schedule, FluidSchedule) and outcome.schedule.pieces)
    assert repeated > 10
    assert moving > 10
    assert infeasible > 0 or bare


def test_without_a_link_it_is_every_persistent_strategy() -> None:
    """Nested or not: without a link, recomputing early is of no use."""
    repeated = 0
    for problem in combined_problems(range(1200, 1260), 5):
        alone = replace(problem, offload=False)
        for bare, assumptions in BOTH.items():
            outcome = solve_combined(alone, assumptions.without("nested"))
            value = require_optimal(alone, outcome)
            assert value == program_value(alone, bare=bare), (problem.name, bare)
            repeated += value is not None and value > problem.trace.compute_time
    assert repeated > 20


def sequences(network: Network, stages: int, most: int) -> Iterator[list[int]]:
    """Yield every order of runs with at most so many runs again."""

    def extend(runs: list[int], following: int, left: int) -> Iterator[list[int]]:
        if following == len(network):
            yield runs
            return
        yield from extend([*runs, following], following + 1, left)
        if left:
            for again in range(min(following, stages)):
                yield from extend([*runs, again], following, left - 1)

    yield from extend([], 0, most)


@pytest.mark.parametrize("persistent", [True, False])
def test_without_a_link_it_is_brute_force(persistent: bool) -> None:
    """Over every order of runs of three stages, by the checker of executions alone."""
    wanted = Assumptions(operations=False, persistent=persistent, nested=False)
    repeated = 0
    for seed in (0, 4, 14, 22, 25, 28, 43):
        rng = random.Random(seed)
        chain = checkpoint_chain(rng, 3)
        network = chain.network()
        least, peak = max(network.own_memory), network.trace().peak_memory
        memory = least + rng.randint(0, max(0, peak - least) // 3)
        problem = Problem(
            "three", chain, Platform(memory, Fraction(1)), recompute=Recompute.ANY, offload=False
        )
        best: int | None = None
        for runs in sequences(network, 3, 4):
            time = sum(network.computations[run].duration for run in runs)
            if best is not None and time >= best:
                continue
            execution = Strategy(runs).without_unread(network).expand(network)
            if execution.trace.peak_memory > memory or execution_faults(network, execution):
                continue
            if persistent and persistency_faults(network, execution):
                continue
            best = time
        assert require_optimal(problem, solve_combined(problem, wanted)) == best
        repeated += best is not None and best > network.compute_time
    assert repeated >= 5


def test_with_recomputation_forbidden_it_is_the_ordered_optimum() -> None:
    """Of the linear program of offloading alone, ordered, with the turn at the loss."""
    moving = 0
    for problem in combined_problems(range(1400, 1470), 6):
        chain = problem.checkpoint_chain
        assert chain is not None
        plain = CheckpointChain(
            chain.forward, chain.backward, chain.output, None, chain.gradient,
            chain.forward_workspace, chain.backward_workspace,
        )  # fmt: skip
        problem = replace(problem, network=plain)
        trace = problem.trace
        value = program_value(problem, recompute=False)
        if trace.least_memory > problem.platform.memory:
            assert value is None
            continue
        required = tuple(max(0, d - problem.platform.memory) for d in trace.demand)
        executed = replace(problem.plain(), transfers=Transfers.INTERRUPTIBLE)
        model = FluidProgram(
            executed, Rules(False, True, True, required), FixedDecisions(turn=2 * len(chain))
        )
        answer = solve_linear(model.model, SCIPY)
        if answer.infeasible:
            assert value is None
            continue
        assert value == trace.compute_time + round(answer.bound * model.unit)
        moving += value > trace.compute_time
    assert moving > 5


@pytest.mark.parametrize("seed", range(1500, 1506))
def test_no_assumption_helps(seed: int) -> None:
    """Each by itself and all together cost something or nothing; whole transfers cost."""
    problem = combined_problem(seed, 4)
    base = require_optimal(problem, solve_combined(problem))
    free = require_optimal(problem, solve_combined(problem, Assumptions.lifted()))
    limit = float("inf") if base is None else base
    for name in NAMES:
        outcome = solve_combined(problem, PUBLISHED.without(name))
        value = require_optimal(problem, outcome)
        alone = float("inf") if value is None else value
        assert alone >= limit if name == "pausing" else alone <= limit
        assert free is None or name == "pausing" or alone >= free
    whole = require_optimal(problem, solve_combined(problem, Assumptions.lifted(pausing=False)))
    assert (whole is None) == (free is None)
    assert whole is None or free is None or whole >= free


def test_limits() -> None:
    problem = combined_problem(1137, 6)
    assert program_value(problem) == 31
    # That recomputation waits for the backward operation before it costs a tick here.
    loose = PUBLISHED.without("nested")
    assert require_optimal(problem, solve_combined(problem, loose)) == 30
    above = solve_combined(problem, loose, upper_bound=29)
    assert (above.objective, above.lower_bound, above.status) == (None, 30, SolveStatus.UNKNOWN)
    nothing = solve_combined(problem, time_limit=0.0)
    assert nothing.status is SolveStatus.UNKNOWN
    assert nothing.lower_bound == problem.trace.compute_time
    trace = Problem("trace", Trace([Operation("o", 1)], []), Platform(1, Fraction(1)))
    with pytest.raises(MethodError, match="needs a chain"):
        solve_combined(trace)
