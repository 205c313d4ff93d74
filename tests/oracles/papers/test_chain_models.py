"""Exact models of checkpoint selection: against all subsets, and honest when they stop early."""

import random

import pytest

from offcert.core.errors import InputError
from offcert.core.result import SolveStatus
from offcert.heuristics.checkpoint.live_curve import live_selection
from papers.checkpoint_chains import chain_cpsat, chain_milp
from papers.checkpoint_chains.memory_models import dynamic_memory, static_memory
from papers.checkpoint_chains.outcome import SelectionRun
from papers.checkpoint_chains.segment_costs import dynamic_costs, live_costs, static_costs
from support.oracles.checkpoint import least_both, random_chains, random_sizes, subsets
from support.problems.random_networks import checkpoint_chain


def test_running_sums_equal_all_subsets() -> None:
    for sizes in random_chains(150, seed=1):
        optima = least_both(sizes)
        for model, memory, optimum in zip(
            ("static", "dynamic"), (static_memory, dynamic_memory), optima, strict=True
        ):
            outcome = chain_cpsat.solve(sizes, model)
            assert outcome.status is SolveStatus.OPTIMAL
            assert outcome.memory == outcome.lower_bound == optimum
            assert memory(sizes, outcome.checkpoints) == optimum


def test_paths_equal_all_subsets() -> None:
    rng = random.Random(9)
    for sizes in random_chains(20, seed=10, most=12):
        gradients = random_sizes(rng, len(sizes) - 1)
        static, dynamic = least_both(sizes, gradients)
        for costs, optimum in (
            (static_costs(sizes), static),
            (dynamic_costs(sizes, gradients), dynamic),
        ):
            outcome = chain_milp.solve(costs)
            assert outcome.status is SolveStatus.OPTIMAL
            assert outcome.memory == outcome.lower_bound == optimum
            assert costs.memory(outcome.checkpoints) == optimum


def test_gradients_of_another_size_in_running_sums() -> None:
    rng = random.Random(11)
    for sizes in random_chains(60, seed=12, most=11):
        gradients = random_sizes(rng, len(sizes) - 1)
        outcome = chain_cpsat.solve(sizes, "dynamic", gradients=gradients)
        assert outcome.memory == outcome.lower_bound == least_both(sizes, gradients)[1]


def test_live_bytes_by_paths_equal_all_subsets() -> None:
    rng = random.Random(13)
    for _ in range(12):
        chain = checkpoint_chain(rng, rng.randint(2, 9))
        costs = live_costs(chain)
        outcome = chain_milp.solve(costs)
        assert outcome.status is SolveStatus.OPTIMAL
        assert outcome.memory == min(map(costs.memory, subsets(len(chain))))
        assert outcome.memory == outcome.lower_bound == live_selection(chain).memory


def test_sizes_in_bytes_are_divided_by_what_they_share() -> None:
    sizes = [4096 * size for size in (3, 9, 9, 2, 4, 4, 1)]
    optima = least_both(sizes)
    outcomes = [chain_milp.solve(static_costs(sizes)), chain_milp.solve(dynamic_costs(sizes))]
    assert [outcome.lower_bound for outcome in outcomes] == list(optima)


@pytest.mark.parametrize("model", ["static", "dynamic"])
def test_no_time_leaves_the_hint_and_a_bound(model: str) -> None:
    sizes = random_chains(1, seed=14)[0]
    hint = (0, 7, 14)
    memory = {"static": static_memory, "dynamic": dynamic_memory}[model](sizes, hint)
    costs = {"static": static_costs, "dynamic": dynamic_costs}[model](sizes)
    stopped = chain_milp.solve(costs, time_limit=0.0, hint=hint)
    assert (stopped.status, stopped.checkpoints, stopped.memory) == ("FEASIBLE", hint, memory)
    assert stopped.lower_bound <= min(map(costs.memory, subsets(14)))
    solved = chain_cpsat.solve(sizes, model, hint=hint)
    assert stopped.lower_bound <= solved.memory <= memory


def test_a_bound_of_the_solver_is_never_above_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A solver that fails, or is interrupted, costs its own contribution only."""

    def fails(*arguments, **named):
        raise RuntimeError("lost")

    sizes = [1, 5, 2, 8]
    monkeypatch.setattr(chain_cpsat, "run_cpsat", fails)
    outcome = chain_cpsat.solve(sizes, "static")
    assert (outcome.status, outcome.error) == ("FEASIBLE", "RuntimeError: lost")
    assert outcome.lower_bound == 1 + 8 <= least_both(sizes)[0] <= outcome.memory

    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(chain_milp, "solve_linear", interrupted)
    outcome = chain_milp.solve(dynamic_costs(sizes))
    assert outcome.interrupted
    assert outcome.lower_bound <= least_both(sizes)[1] <= outcome.memory


def test_a_bound_above_known_checkpoints_is_no_bound() -> None:
    run = SelectionRun(3, lambda checkpoints: 10, None, 2)
    run.take_bound(11.5, 0.0, 1)
    assert (run.lower_bound, run.outcome().status) == (2, "FEASIBLE")
    assert run.error == "a bound of 12 contradicts checkpoints that take 10"


def test_a_bound_that_a_float_cannot_hold_is_rounded_down() -> None:
    """2**60 + 1 is 2**60 as a float, and so may be what is less than 2**60."""
    run = SelectionRun(3, lambda checkpoints: 2**60, None, 0)
    run.take_bound(float(2**60), 1e-6, 1)
    assert 2**60 - 2**9 <= run.lower_bound < 2**60 - 2**6
    run = SelectionRun(3, lambda checkpoints: 10**12, None, 0)
    run.take_bound(1e9, 1e-6, 1000)
    assert run.lower_bound == 10**12


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match='model must be "static" or "dynamic", not'):
        chain_cpsat.solve([1, 2], "live")
    with pytest.raises(InputError, match=r"sizes\[0\] must be at least 0, not -1"):
        chain_cpsat.solve([-1, 2])
    with pytest.raises(InputError, match="checkpoints must begin with 0"):
        chain_milp.solve(static_costs([1, 2, 3]), hint=(0, 1))
    with pytest.raises(InputError, match="solver 'nobody' is unknown"):
        chain_milp.solve(static_costs([1, 2, 3]), solver="nobody")
