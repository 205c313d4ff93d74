"""The models of recomputation against brute force, and against each other."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.computations import Computation, Value
from offcert.core.errors import InputError, MethodError
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.result import SolveStatus
from offcert.core.strategy import Strategy
from offcert.formulations.rematerialisation import checkmate_milp, retention_cpsat, stages_milp
from offcert.formulations.rematerialisation.outcome import RematerialisationOutcome
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.simulate import simulate
from offcert.verification.execution import execution_faults
from support.oracles.rematerialisation import RematerialisationOracle, sweeps
from support.problems.random_networks import random_network
from support.seeds import by_seeds


def problem_of(network: Network | CheckpointChain, memory: int) -> Problem:
    return Problem(
        "remat", network, Platform(memory, Fraction(1)), recompute=Recompute.ANY, offload=False
    )


def cases(seed: int) -> list[tuple[Problem, int, list[int]]]:
    """Return problems of a random network, their optima, and the runs that reach them."""
    rng = random.Random(seed)
    network = random_network(rng, rng.choice((2, 3, 3)))
    oracle = RematerialisationOracle(network)
    least, peak = oracle.least_memory(), network.trace().peak_memory
    assert least is not None
    timed = problem_of(network, rng.randint(least, peak))
    bytes_ = replace(timed, minimise=Minimise.MEMORY)
    deadline = network.compute_time + rng.choice((0, 1, 3, 8))
    late = oracle.least_memory(deadline)
    found = [oracle.least_time(limit) for limit in (timed.platform.memory, least, late or 0)]
    assert all(each is not None for each in found)
    runs = [each[1] for each in found if each is not None]
    assert found[0] is not None
    assert late is not None
    return [
        (timed, found[0][0], runs[0]),
        (bytes_, least, runs[1]),
        (replace(bytes_, deadline=deadline), late, runs[2]),
    ]


def assert_legal(problem: Problem, outcome: RematerialisationOutcome) -> None:
    network = problem.computed
    assert network is not None
    assert outcome.error is None
    assert outcome.execution is not None
    assert execution_faults(network, outcome.execution) == []
    least_bytes = problem.minimise is Minimise.MEMORY
    peak = outcome.execution.trace.peak_memory
    schedule = simulate(problem.executed(outcome.execution).with_memory(peak), Plan())
    assert outcome.objective == (peak if least_bytes else schedule.makespan)
    assert outcome.lower_bound <= (outcome.objective or 0)


@pytest.mark.slow
@by_seeds(0, 24, 12)
def test_models_reach_brute_force(seeds: range) -> None:
    """Retention intervals always; stages wherever brute force needs no more than one row."""
    for seed in seeds:
        for problem, best, runs in cases(seed):
            often = max(runs.count(each) for each in set(runs))
            found = retention_cpsat.solve(problem, runs=max(2, often))
            assert_legal(problem, found)
            assert found.objective == found.within == best, (seed, problem.minimise)
            if found.claim is not None:
                assert found.claim.value <= best
            staged = checkmate_milp.solve(problem)
            if staged.objective is not None:
                assert_legal(problem, staged)
                assert staged.objective >= best
            if sweeps(runs) == 1 and not any(value.base for value in problem.computed.values):
                assert staged.objective == staged.within == best, (seed, problem.minimise)
            bound = stages_milp.solve(problem)
            assert bound.error is None
            assert bound.lower_bound <= best, (seed, problem.minimise)


@pytest.mark.slow
def test_relaxation_is_the_optimum_on_most_networks() -> None:
    exact = 0
    for seed in range(200, 220):
        for problem, best, _ in cases(seed):
            bound = stages_milp.solve(problem).lower_bound
            assert bound <= best
            exact += bound == best
    assert exact >= 48


@pytest.mark.slow
def test_optimality_is_claimed_only_where_more_runs_would_take_too_long() -> None:
    """Of a network whose computations take no time nothing follows for more runs."""
    network = CheckpointChain([1, 1, 1], [1, 1, 1], [1, 4, 4, 4]).network()
    for memory in range(max(network.own_memory) + 1, network.trace().peak_memory + 1):
        oracle = RematerialisationOracle(network).least_time(memory)
        found = retention_cpsat.solve(problem_of(network, memory), runs=4)
        assert oracle is not None
        assert found.objective == oracle[0]
        assert found.status is SolveStatus.OPTIMAL
    free = Network([replace(each, duration=0) for each in network.computations], network.values)
    problem = replace(problem_of(free, 12), minimise=Minimise.MEMORY)
    found = retention_cpsat.solve(problem)
    assert found.within == found.objective == RematerialisationOracle(free).least_memory()
    assert found.claim is None


def test_a_hint_is_kept_and_widens_the_model() -> None:
    network = CheckpointChain([1, 1, 1], [1, 1, 1], [1, 4, 4, 4]).network()
    often = Strategy([0, 1, 2, 3, 0, 0, 0, 1, 4, 0, 5]).expand(network)
    problem = problem_of(network, often.trace.peak_memory)
    found = retention_cpsat.solve(problem, runs=1, hint=often, time_limit=20)
    assert_legal(problem, found)
    best = RematerialisationOracle(network).least_time(often.trace.peak_memory)
    assert best is not None
    assert found.objective == best[0]
    plain = Strategy.plain(network).expand(network)
    loose = problem_of(network, plain.trace.peak_memory)
    assert retention_cpsat.solve(loose, hint=plain).status is SolveStatus.OPTIMAL


@pytest.mark.slow
def test_two_copies_of_what_is_changed_in_place() -> None:
    """One copy stays as it was written, while another is changed; its maker's input may go."""
    values = [
        Value("input", 1),
        Value("large", 9),
        Value("written", 1),
        Value("changed", 0, False, base=2),
        Value("result", 6),
        Value("other", 1),
        Value("last", 0),
    ]
    computations = [
        Computation("load", 5, 0, (0,), (1,)),
        Computation("write", 1, 0, (1,), (2,)),
        Computation("read", 1, 0, (2,), (4,)),
        Computation("change", 1, 0, (2,), (3,), repeatable=False),
        Computation("use", 1, 5, (2, 3), (5,), repeatable=False),
        Computation("end", 1, 0, (4, 5), (6,), repeatable=False),
    ]
    network = Network(computations, values)
    for memory in range(11, 17):
        oracle = RematerialisationOracle(network).least_time(memory)
        problem = problem_of(network, memory)
        found = retention_cpsat.solve(problem, runs=3)
        staged = checkmate_milp.solve(problem)
        assert oracle is not None
        assert_legal(problem, found)
        assert found.objective == oracle[0]
        assert staged.objective is not None
        if memory == 12:
            # Loading again, for a copy as it was, takes five ticks that a second copy saves.
            assert (found.objective, staged.objective) == (12, 17)


def test_what_does_not_fit_is_no_problem_for_these_models() -> None:
    chain = CheckpointChain([1, 1], [1, 1], [1, 4, 4])
    problem = problem_of(chain, 20)
    for model in (retention_cpsat, checkmate_milp, stages_milp):
        with pytest.raises(MethodError, match="nothing may leave"):
            model.solve(replace(problem, offload=True))
        with pytest.raises(MethodError, match='recompute "any"'):
            model.solve(replace(problem, recompute=Recompute.CHAIN))
        assert model.solve(problem.with_memory(1)).status is SolveStatus.INFEASIBLE
        late = replace(problem, minimise=Minimise.MEMORY, deadline=3)
        assert model.solve(late).status is SolveStatus.INFEASIBLE
    for linear in (checkmate_milp, stages_milp):
        with pytest.raises(InputError, match="solver"):
            linear.solve(problem, solver="nobody")


def twice_in_a_stage() -> Network:
    """Two results of one value, each of which leaves no room for it; see the theory's page."""
    values = [
        Value(name, size) for name, size in zip("sapuqvxt", (1, 4, 1, 1, 1, 1, 0, 0), strict=True)
    ]
    computations = [
        Computation("A", 1, 0, (0,), (1,)),
        Computation("P", 1, 0, (1,), (2,)),
        Computation("U", 1, 7, (2,), (3,)),
        Computation("Q", 1, 0, (1,), (4,)),
        Computation("V", 1, 6, (4,), (5,)),
        Computation("X", 1, 9, (), (6,), repeatable=False),
        Computation("T", 1, 0, (0, 3, 5), (7,), repeatable=False),
    ]
    return Network(computations, values)


def against_the_order() -> Network:
    """Two values of which the later one has to be made again first."""
    values = [Value(name, size) for name, size in zip("suvxt", (1, 1, 1, 0, 0), strict=True)]
    computations = [
        Computation("U", 1, 5, (0,), (1,)),
        Computation("V", 1, 6, (0,), (2,)),
        Computation("X", 1, 7, (), (3,), repeatable=False),
        Computation("T", 1, 0, (0, 1, 2), (4,), repeatable=False),
    ]
    return Network(computations, values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "memory", "time", "rows"),
    [(twice_in_a_stage(), 10, 14, 2), (against_the_order(), 8, 6, 2)],
)
def test_stages_cost_something(network: Network, memory: int, time: int, rows: int) -> None:
    """Without in-place changes, too: runs twice in a stage, or in another order."""
    oracle = RematerialisationOracle(network).least_time(memory)
    assert oracle is not None
    assert (oracle[0], sweeps(oracle[1])) == (time, rows)
    problem = problem_of(network, memory)
    found = retention_cpsat.solve(problem, runs=4)
    assert_legal(problem, found)
    assert found.objective == time
    staged = checkmate_milp.solve(problem)
    assert staged.execution is None
    assert staged.statistics["within"] == "nothing"
    assert stages_milp.solve(problem).lower_bound <= time
