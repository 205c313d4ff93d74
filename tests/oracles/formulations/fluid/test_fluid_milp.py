"""The fluid relaxation: a bound on every schedule, and what it equals where that is known."""

from __future__ import annotations

from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import fractional_bound, required_absent
from offcert.formulations.fluid.milp import fluid_bound
from offcert.questions.schedule.problem import Problem, Transfers
from support.oracles.schedules import brute_force
from support.problems.random_instances import (
    cnn_chain,
    counterexample,
    mixed_problem,
    problem_on,
    seeded,
    two_rates,
)
from support.seeds import by_seeds


@pytest.mark.slow
@by_seeds(0, 50, 50)
def test_ladder_on_random_problems(seeds: range) -> None:
    """The linear program, the program with binaries, reachable sums, the atomic optimum."""
    for seed in seeds:
        problem = mixed_problem(seed + 5000)
        best = brute_force(problem)
        relaxed = fluid_bound(problem, relax=True).value
        whole = fluid_bound(problem)
        rounded = fluid_bound(problem, required=required_absent(problem, subset_sum=True)).value
        assert best is not None
        assert whole.optimal
        assert problem.trace.compute_time <= relaxed <= whole.value <= rounded <= best, problem.name


@by_seeds(0, 40, 20)
def test_the_linear_program_is_the_fractional_optimum_on_chains(seeds: range) -> None:
    for seed in seeds:
        rng = seeded(seed)
        problem = problem_on(rng, cnn_chain(rng, rng.randint(3, 20)), f"chain-{seed}")
        if seed % 2:
            problem = two_rates(problem)
        bound = fluid_bound(problem, relax=True).value
        assert bound == fractional_bound(problem).value


def test_indivisible_tensors_raise_the_bound() -> None:
    """Half a tensor would do; with binaries all of it moves, and the link is what takes time."""
    operations = [Operation("f", 1), Operation("turn", 1, 5), Operation("b", 1)]
    trace = Trace(operations, [Tensor("x", 10, (0, 2))])
    problem = Problem("whole", trace, Platform(10, Fraction(1)))
    relaxed = fluid_bound(problem, relax=True).value
    whole = fluid_bound(problem).value
    assert relaxed == 3 + 5 + 5
    # Idle until 5 have left; one more leaves while turn runs; then 4 leave and 10 come back.
    assert whole == 3 + 5 + 4 + 10
    assert brute_force(problem) == 3 + 20


def test_what_has_been_transferred_is_not_released_while_it_is_read() -> None:
    """x is written early and read again by the operation that needs room; it cannot make any."""
    operations = [
        Operation("w", 1),
        Operation("pause", 50),
        Operation("r", 10),
        Operation("s", 1, 6),
    ]
    operations.append(Operation("b", 1))
    trace = Trace(operations, [Tensor("x", 6, (0, 2, 4)), Tensor("z", 6, (0, 4))])
    problem = Problem("read", trace, Platform(12, Fraction(1)))
    late = problem.with_memory(12)
    assert fluid_bound(late).value <= (brute_force(late) or 0)
    spike = Trace([*operations[:2], Operation("r", 10, 6), *operations[3:]], trace.tensors)
    forced = Problem("forced", spike, Platform(12, Fraction(1)))
    # During r only z can be absent: with x in the same place the bound would not notice.
    assert fluid_bound(forced).value <= (brute_force(forced) or 0)


def test_a_prefetch_before_a_later_offload_is_not_excluded() -> None:
    bound = fluid_bound(counterexample()).value
    assert bound <= 219


def test_duplex_links_carry_both_directions_at_once() -> None:
    chain = Chain([1, 1, 1], [1, 1, 1], [6, 6, 6, 0], [0] * 4, [0, 0, 6], [6, 0, 0])
    network = chain.trace()
    memory = network.least_memory
    values = [
        fluid_bound(Problem("both", network, Platform(memory, Fraction(1), link))).value
        for link in (Link.DUPLEX, Link.SIMPLEX)
    ]
    assert values[0] <= values[1]


def test_size_grows_linearly() -> None:
    """Rows and nonzeros a stage stay the same when the chain grows tenfold."""

    def size(stages: int) -> tuple[float, float]:
        problem = problem_on(seeded(3), cnn_chain(seeded(4), stages), "long")
        sizes = fluid_bound(problem, relax=True).statistics
        return sizes["rows"] / stages, sizes["nonzeros"] / stages

    short, long = size(20), size(200)
    assert long[0] < 1.1 * short[0]
    assert long[1] < 1.1 * short[1]


def test_real_magnitudes_keep_the_bound_sound() -> None:
    for seed in range(20):
        rng = seeded(seed)
        small = problem_on(rng, cnn_chain(rng, 4), f"small-{seed}")
        if seed % 2:
            small = two_rates(small)
        chain = small.chain
        assert chain is not None
        time, size = 10**7, 10**9 + 7
        large = Chain(
            [time * value for value in chain.forward],
            [time * value for value in chain.backward],
            [size * value for value in chain.activation],
            [size * value for value in chain.gradient],
        )
        out, back = (small.platform.rate(kind) * Fraction(size, time) for kind in Kind)
        platform = Platform(small.platform.memory * size, out, small.platform.link, back)
        problem = Problem("large", large, platform)
        bound = fluid_bound(problem)
        best = brute_force(problem)
        assert best is not None
        assert bound.value <= best
        assert bound.statistics["margin"] <= 1e-5 * best


def test_no_time_leaves_the_compute_time() -> None:
    problem = problem_on(seeded(1), cnn_chain(seeded(2), 30), "no-time")
    bound = fluid_bound(problem, time_limit=0.0)
    assert bound.value >= problem.trace.compute_time
    assert not bound.optimal
    # A certificate says so, and what time it was is left out of it elsewhere.
    assert bound.details["optimal"] is False
    assert bound.details["seconds"] == bound.seconds


def test_infeasible_memory_has_no_bound() -> None:
    problem = counterexample()
    with pytest.raises(ValueError, match="lacks 1 bytes"):
        fluid_bound(problem.with_memory(problem.trace.least_memory - 1))


def test_binaries_are_refused_where_tensors_may_move_in_part() -> None:
    """Half a tensor would do: whole ones would claim 22 where 13 is possible."""
    operations = [Operation("f", 1), Operation("turn", 1, 5), Operation("b", 1)]
    trace = Trace(operations, [Tensor("x", 10, (0, 2))])
    problem = Problem("part", trace, Platform(10, Fraction(1)), Transfers.FRACTIONAL)
    assert fluid_bound(problem, relax=True).value == 13
    with pytest.raises(ValueError, match="fractional transfers"):
        fluid_bound(problem)
