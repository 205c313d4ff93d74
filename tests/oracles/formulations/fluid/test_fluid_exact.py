"""Problem 2 and the fractional problem: against brute force, and between their neighbours."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import count

import pytest

from offcert.core.chain import Chain
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import (
    fractional_bound,
    prop3_bound,
    required_absent,
    whole_tensors_count,
)
from offcert.formulations.fluid import exact as fluid_exact
from offcert.formulations.fluid.exact import FluidOutcome, solve_fluid
from offcert.formulations.fluid.milp import fluid_bound
from offcert.heuristics.evictions.dynprog import algorithm_1
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule
from support.oracles.fluid import ordered_optimum, tick_optimum
from support.oracles.schedules import brute_force
from support.problems.random_instances import (
    cnn_chain,
    counterexample,
    mixed_problem,
    problem_on,
    seeded,
    spiky_chain,
)
from support.problems.short_problems import unsolved
from support.seeds import by_seeds

WHOLE, PARTS = Transfers.INTERRUPTIBLE, Transfers.FRACTIONAL


def optimum(problem: Problem, transfers: Transfers, *, ordered: bool = False) -> int:
    """Solve a problem with other transfers; its schedule is valid and attains the bound."""
    relaxed = replace(problem, transfers=transfers)
    outcome = solve_fluid(relaxed, ordered=ordered)
    assert outcome.schedule is not None, problem.name
    assert outcome.schedule.makespan == outcome.bound, problem.name
    assert check_fluid(relaxed, outcome.schedule) == []
    if ordered:
        assert is_ordered(outcome)
    return outcome.bound


def is_ordered(outcome: FluidOutcome) -> bool:
    assert outcome.schedule is not None
    pieces = outcome.schedule.pieces
    last_out = max((p.end for p in pieces if p.kind is Kind.OFFLOAD), default=Fraction(0))
    return all(p.start >= last_out for p in pieces if p.kind is Kind.PREFETCH)


@pytest.mark.slow
@by_seeds(0, 50, 50)
def test_ladder_on_random_problems(seeds: range) -> None:
    """Prop. 3, fractional, interruptible, atomic; the aggregated bounds below the exact ones."""
    strict = above = 0
    for seed in seeds:
        problem = mixed_problem(seed + 9000, 4)
        atomic = brute_force(problem)
        assert atomic is not None
        parts, whole = optimum(problem, PARTS), optimum(problem, WHOLE)
        assert prop3_bound(problem).value <= fractional_bound(problem).value <= parts
        assert parts <= whole <= atomic, problem.name
        if whole_tensors_count(replace(problem, transfers=WHOLE)):
            rounded = prop3_bound(problem, subset_sum=True).value
            assert prop3_bound(problem).value <= rounded <= whole, problem.name
            above += rounded > parts
        assert fluid_bound(problem, relax=True).value <= parts, problem.name
        assert fluid_bound(problem).value <= whole, problem.name
        strict += (parts < whole) + (whole < atomic)
    assert strict > 10
    assert above > 0


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(2))
@pytest.mark.parametrize("transfers", [WHOLE, PARTS])
def test_an_independent_program_by_ticks_agrees(transfers: Transfers, batch: int) -> None:
    """On 50 problems a batch in which something has to wait; a program's size grows with time."""
    compared = below = several = 0
    for seed in count(60_000 + 1000 * batch):
        problem = unsolved(seed, largest=3, factor=6, unequal=seed % 2 == 1)
        trace = problem.trace
        multiple = len({gap.tensor for gap in trace.gaps}) < len(trace.gaps)
        # One in five has several gaps a tensor.
        if multiple != (compared % 5 == 0):
            continue
        horizon = brute_force(problem)
        assert horizon is not None
        if not trace.compute_time < horizon <= (16 if multiple else 12):
            continue
        found = tick_optimum(problem, horizon, fractional=transfers is PARTS)
        assert optimum(problem, transfers) == found, problem.name
        compared += 1
        below += found < horizon
        several += multiple
        if compared == 50:
            break
    assert below >= 10
    assert several == 10


@pytest.mark.slow
@by_seeds(0, 100, 100)
def test_ordered_schedules_of_chains_lie_between_two_that_try_all_sets(seeds: range) -> None:
    """In rational time, and nearly always both are equal.

    Tensors that return in reverse order are one way; that x_i may return during F_i, which reads
    it, is too good to be true. Algorithm 1 finds the latter.
    """
    differ = 0
    for seed in seeds:
        rng = seeded(seed)
        network = (cnn_chain, spiky_chain)[seed % 2](rng, rng.randint(2, 4))
        problem = replace(problem_on(rng, network, "chain"), transfers=WHOLE)
        problem = replace(problem, platform=replace(problem.platform, link=Link.SIMPLEX))
        platform = problem.platform
        rates = platform.rate(Kind.OFFLOAD), platform.rate(Kind.PREFETCH)
        outcome = solve_fluid(problem, ordered=True, whole_ticks=False)
        best, best_early = (
            ordered_optimum(network, platform.memory, rates, early) for early in (False, True)
        )
        assert best is not None
        assert best_early is not None
        assert best_early <= outcome.bound <= best, seed
        differ += best_early < best
        value, _ = algorithm_1(network, platform.memory, platform.bandwidth)
        assert math.ceil(value) == best_early
        assert outcome.schedule is not None
        assert is_ordered(outcome)
    assert differ <= 3


@pytest.mark.slow
@by_seeds(0, 60, 30)
def test_in_rational_time_the_fractional_optimum_of_chains_is_the_combinatorial_one(
    seeds: range,
) -> None:
    for seed in seeds:
        rng = seeded(seed)
        problem = problem_on(rng, cnn_chain(rng, rng.randint(3, 10)), "chain")
        relaxed = replace(problem, transfers=PARTS)
        assert solve_fluid(relaxed, whole_ticks=False).bound == fractional_bound(problem).value


def test_the_counterexample_to_lemma_3() -> None:
    """Order costs 32 of 219 ticks; for ordered schedules Algorithm 1 is right."""
    problem = counterexample()
    assert optimum(problem, WHOLE) == 219
    assert optimum(problem, WHOLE, ordered=True) == 251
    assert brute_force(problem) == 219
    chain = problem.chain
    assert chain is not None
    assert algorithm_1(chain, 100, Fraction(1))[0] == 251
    assert optimum(problem, PARTS) == optimum(problem, PARTS, ordered=True) == 219


def test_half_a_tensor_whole_tensors_and_whole_transfers_differ() -> None:
    """The room needed is half of x. It leaves at the rate 1 from tick 1, and f and b last 1."""
    operations = [Operation("f", 1), Operation("turn", 1, 5), Operation("b", 1)]
    network = Trace(operations, [Tensor("x", 10, (0, 2))])
    problem = Problem("whole", network, Platform(10, Fraction(1)))
    assert optimum(problem, PARTS) == 3 + 5 + 5
    assert optimum(problem, WHOLE) == 3 + 5 + 4 + 10
    assert brute_force(problem) == 3 + 20
    # On a duplex link one leaves and one returns while turn runs; then 4 leave and 9 return.
    duplex = replace(problem, platform=replace(problem.platform, link=Link.DUPLEX))
    assert optimum(duplex, WHOLE) == 3 + 5 + 9
    # So on such a link what whole tensors need, both ways, is no bound.
    assert prop3_bound(duplex, subset_sum=True).value == 20
    assert not whole_tensors_count(replace(duplex, transfers=WHOLE))
    assert not whole_tensors_count(replace(problem, transfers=PARTS))


def test_operations_start_at_whole_ticks() -> None:
    """Two waits of half a tick make two ticks; the program in rational time sees one."""
    operations = [Operation("f", 1), Operation("turn", 1, 1), Operation("b", 1)]
    network = Trace(operations, [Tensor("x", 1, (0, 2))])
    problem = Problem("half", network, Platform(1, Fraction(2)), WHOLE)
    loose = solve_fluid(problem, whole_ticks=False)
    assert loose.bound == 4
    assert loose.schedule is not None
    assert loose.schedule.makespan == 5
    assert optimum(problem, WHOLE) == 5


def test_tensors_with_several_gaps_are_copied_once() -> None:
    """x is off for two spikes; the second time it costs its return only."""
    spikes = [Operation(f"o{i}", 1, 4 if i in (1, 3) else 0) for i in range(5)]
    network = Trace(spikes, [Tensor("x", 4, (0, 2, 4))])
    problem = Problem("again", network, Platform(4, Fraction(1)))
    # 4 leave, 4 return, o2 reads them, they are gone at once, 4 return.
    assert optimum(problem, WHOLE) == 5 + 12
    assert optimum(problem, PARTS) == 5 + 12
    outcome = solve_fluid(replace(problem, transfers=WHOLE))
    assert outcome.schedule is not None
    assert outcome.schedule.offloaded_size == 4


def test_where_no_ordered_schedule_exists_the_outcome_says_so() -> None:
    """x must be back for o2, which writes y, which must leave."""
    operations = [Operation(f"o{i}", 1, 8 if i in (1, 3) else 0) for i in range(5)]
    network = Trace(operations, [Tensor("x", 4, (0, 2)), Tensor("y", 4, (2, 4))])
    problem = Problem("no order", network, Platform(8, Fraction(1)), WHOLE)
    assert optimum(problem, WHOLE) == 5 + 16
    outcome = solve_fluid(problem, ordered=True)
    assert outcome.infeasible
    assert outcome.details["infeasible"] is True
    assert outcome.schedule is None
    free = solve_fluid(problem)
    assert not free.infeasible
    assert "infeasible" not in free.details


@pytest.mark.slow
def test_bounds_for_atomic_transfers_hold_and_make_no_schedule() -> None:
    for seed in range(30):
        problem = mixed_problem(seed + 700, 4)
        best = brute_force(problem)
        assert best is not None
        rounded = solve_fluid(problem, required=required_absent(problem, subset_sum=True))
        plain = solve_fluid(problem)
        assert plain.schedule is None
        assert plain.bound <= rounded.bound <= best


def test_real_magnitudes_cost_a_millionth() -> None:
    """Nanoseconds and bytes: idle times are no integers in the program, schedules stay exact."""
    for seed in range(6):
        rng = seeded(seed)
        small = problem_on(rng, cnn_chain(rng, 5), "small")
        chain = small.chain
        assert chain is not None
        large = Chain(
            [10**7 * value + 13 for value in chain.forward],
            [10**7 * value + 17 for value in chain.backward],
            [(10**9 + 7) * value for value in chain.activation],
            [(10**9 + 7) * value for value in chain.gradient],
        )
        platform = Platform(0, 61 * small.platform.bandwidth, small.platform.link)
        problem = Problem("large", large, platform, WHOLE)
        problem = problem.with_memory(problem.memory_at(Fraction(1, 7)))
        outcome = solve_fluid(problem)
        assert outcome.details["whole_ticks"] is False
        assert outcome.schedule is not None
        assert check_fluid(problem, outcome.schedule) == []
        assert outcome.bound <= outcome.schedule.makespan <= outcome.bound * (1 + 1e-5)


def test_no_schedule_is_returned_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = replace(counterexample(), transfers=WHOLE)
    valid = solve_fluid(problem).schedule
    assert valid is not None
    broken = FluidSchedule(valid.starts, valid.ends, valid.pieces[1:])
    monkeypatch.setattr(fluid_exact, "candidates", lambda *_: iter([broken, valid]))
    assert solve_fluid(problem).schedule == valid
    monkeypatch.setattr(fluid_exact, "candidates", lambda *_: iter([broken]))
    outcome = solve_fluid(problem)
    assert outcome.schedule is None
    assert outcome.bound == 219


def test_no_time_leaves_the_compute_time() -> None:
    problem = replace(problem_on(seeded(1), cnn_chain(seeded(2), 12), "no-time"), transfers=WHOLE)
    outcome = solve_fluid(problem, time_limit=0.0)
    assert outcome.bound == problem.trace.compute_time
    assert outcome.schedule is None


def test_infeasible_memory_has_no_bound() -> None:
    problem = counterexample()
    with pytest.raises(ValueError, match="lacks 1 bytes"):
        solve_fluid(problem.with_memory(problem.trace.least_memory - 1))
