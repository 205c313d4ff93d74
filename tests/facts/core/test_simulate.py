"""The simulator against hand-computed schedules, and against the checker on random plans."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcert.core.chain import Chain
from offcert.core.errors import PlanError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import Simulator, moves_to_arrays, simulate
from support.problems.random_instances import mixed_problem
from support.seeds import by_seeds

OUT, BACK = Kind.OFFLOAD, Kind.PREFETCH


def spike_problem() -> Problem:
    """NOTES §1.2: the counterexample to Lemma 3."""
    chain = Chain(
        [40, 10, 40, 60, 1, 1, 1],
        [1, 1, 1, 1, 60, 1, 1],
        [40, 0, 0, 60, 0, 0, 60, 0],
        [0] * 8,
        [0, 100, 0, 0, 0, 0, 0],
    )
    return Problem("spike", chain, Platform(100, Fraction(1)))


def test_the_optimum_of_the_counterexample_fetches_before_it_offloads_again() -> None:
    plan = Plan([Move(OUT, 0, 1), Move(BACK, 0, 3), Move(OUT, 1, 4), Move(BACK, 1, 10)])
    schedule = simulate(spike_problem(), plan)
    assert schedule.makespan == 219
    assert check(spike_problem(), schedule) == []


def test_all_offloads_before_all_prefetches_takes_longer() -> None:
    plan = Plan([Move(OUT, 0, 1), Move(OUT, 1, 4), Move(BACK, 1, 10), Move(BACK, 0, 13)])
    assert simulate(spike_problem(), plan).makespan == 258


def small_trace() -> Trace:
    """A tensor of 6 bytes, written by o0 and read by o3; o2 needs the room in between."""
    operations = [Operation(f"o{i}", 2, 5 if i == 2 else 0) for i in range(4)]
    return Trace(operations, [Tensor("a", 6, (0, 3))])


def test_an_operation_waits_for_the_offload_and_the_reader_for_the_prefetch() -> None:
    problem = Problem("p", small_trace(), Platform(10, Fraction(3, 2)))
    schedule = simulate(problem, Plan([Move(OUT, 0, 2), Move(BACK, 0, 3)]))
    # The offload lasts 4 ticks from 2 to 6. The prefetch claims memory once o2 has ended at 8.
    assert schedule.starts == (0, 2, 6, 12)
    assert [(t.start, t.end) for t in schedule.transfers] == [(2, 6), (8, 12)]


def test_a_transfer_is_rounded_up_once() -> None:
    problem = Problem("p", small_trace(), Platform(10, Fraction(5, 2)))
    schedule = simulate(problem, Plan([Move(OUT, 0, 2), Move(BACK, 0, 3)]))
    assert [t.end - t.start for t in schedule.transfers] == [3, 3]


def test_each_direction_has_its_own_rate() -> None:
    platform = Platform(10, Fraction(3, 2), prefetch_bandwidth=Fraction(6, 7))
    problem = Problem("p", small_trace(), platform)
    schedule = simulate(problem, Plan([Move(OUT, 0, 2), Move(BACK, 0, 3)]))
    # 6 bytes leave in 4 ticks, after o0, and come back in 7, after o2 and before o3.
    assert [(t.start, t.end) for t in schedule.transfers] == [(2, 6), (8, 15)]
    assert schedule.starts == (0, 2, 6, 15)
    assert check(problem, schedule) == []


def test_a_second_eviction_is_free() -> None:
    operations = [Operation(f"o{i}", 10, 5 if i in (1, 3) else 0) for i in range(5)]
    problem = Problem(
        "p", Trace(operations, [Tensor("a", 6, (0, 2, 4))]), Platform(10, Fraction(6))
    )
    plan = Plan([Move(OUT, 0, 1), Move(BACK, 0, 2), Move(BACK, 1, 4)])
    schedule = simulate(problem, plan)
    # The copy is on the host since 11; nothing has to leave before o3.
    assert schedule.starts == (0, 11, 22, 32, 43)
    assert check(problem, schedule) == []


def test_the_directions_of_a_duplex_link_do_not_wait_for_each_other() -> None:
    operations = [Operation(f"o{i}", 10) for i in range(5)]
    tensors = [Tensor("a", 6, (0, 3)), Tensor("b", 6, (1, 4))]
    plan = Plan([Move(OUT, 0, 1), Move(BACK, 0, 2), Move(OUT, 1, 3), Move(BACK, 1, 4)])
    times = {}
    for link in Link:
        problem = Problem("p", Trace(operations, tensors), Platform(100, Fraction(1), link))
        schedule = simulate(problem, plan)
        times[link] = [t.start for t in schedule.transfers]
        assert check(problem, schedule) == []
    assert times[Link.SIMPLEX] == [10, 16, 22, 30]
    assert times[Link.DUPLEX] == [10, 16, 20, 30]


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ([], "operation 2 .* lacks 1 bytes"),
        ([Move(OUT, 0, 2)], "for good"),
        ([Move(BACK, 0, 2)], "without an offload"),
        ([Move(OUT, 0, 2), Move(BACK, 0, 2)], "a prefetch due before operation 2|lacks 1 bytes"),
        ([Move(OUT, 1, 2), Move(BACK, 1, 3)], "gap 1, which does not exist"),
        ([Move(OUT, 0, 2), Move(BACK, 0, 3), Move(BACK, 0, 3)], "repeats the prefetch"),
        ([Move(BACK, 0, 2), Move(OUT, 0, 2)], "operation 2 .* lacks 1 bytes|comes later"),
        ([Move(OUT, 0, 2), Move(BACK, 0, 9)], "names operation 9 of 4"),
    ],
)
def test_a_plan_that_cannot_run_says_where(moves: list[Move], message: str) -> None:
    problem = Problem("p", small_trace(), Platform(10, Fraction(3, 2)))
    with pytest.raises(PlanError, match=message):
        simulate(problem, Plan(moves))


def test_a_transfer_cannot_wait_for_a_later_one_on_the_same_link() -> None:
    problem = Problem("p", small_trace(), Platform(100, Fraction(3, 2)))
    with pytest.raises(PlanError, match=r"operation 3 .* needs a tensor that has left"):
        simulate(problem, Plan([Move(BACK, 0, 3), Move(OUT, 0, 2)]))


def test_a_start_state_that_does_not_fit_is_no_schedule() -> None:
    trace = Trace([Operation("o", 1), Operation("p", 1)], [Tensor("a", 6, (-1, 1))])
    with pytest.raises(PlanError, match="resident at the start"):
        simulate(Problem("p", trace, Platform(5, Fraction(1))), Plan())


@pytest.mark.slow
@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.integers(0, 10**9))
def test_whatever_the_simulator_accepts_the_checker_accepts(seed: int) -> None:
    problem = mixed_problem(seed, 6)
    rng = random.Random(seed)
    moves = list(sequential(problem).moves) if rng.random() < 0.5 else _random_moves(problem, rng)
    if moves and rng.random() < 0.7:
        index = rng.randrange(len(moves))
        move = moves.pop(index)
        moves.insert(
            rng.randrange(len(moves) + 1),
            Move(move.kind, move.gap, rng.randrange(len(problem.trace))),
        )
    try:
        schedule = simulate(problem, Plan(moves))
    except PlanError:
        return
    assert check(problem, schedule) == []
    again = simulate(problem, schedule.plan(problem.trace))
    assert again.makespan <= schedule.makespan


def _random_moves(problem: Problem, rng: random.Random) -> list[Move]:
    moves = []
    for number, gap in enumerate(problem.trace.gaps):
        alone = sum(other.tensor == gap.tensor for other in problem.trace.gaps) == 1
        if alone and rng.random() < 0.7:
            leave = rng.randint(gap.before + 1, gap.after)
            moves.append(Move(OUT, number, leave))
            moves.append(Move(BACK, number, rng.randint(leave, gap.after)))
    return sorted(moves, key=lambda move: move.before)


def test_evaluate_agrees_with_run() -> None:
    problem = spike_problem()
    simulator = Simulator(problem)
    plan = sequential(problem)
    makespan = simulator.evaluate(*moves_to_arrays(plan.moves))
    assert makespan == simulator.run(plan).makespan == 258
    assert simulator.evaluate(*moves_to_arrays(())) < 0


@by_seeds(0, 300, 30)
def test_the_sequential_plan_runs_whenever_anything_does(seeds: range) -> None:
    for seed in seeds:
        problem = mixed_problem(seed, 7)
        least = problem.with_memory(problem.trace.least_memory)
        assert check(least, simulate(least, sequential(least))) == []
