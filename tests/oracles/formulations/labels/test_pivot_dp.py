"""The pivot dynamic program against brute force, at every pivot and for any upper bound."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.labels.pivot import arrays, pivot_bound
from offcert.formulations.labels.pivot.bound import default_pivots
from offcert.formulations.labels.pivot.cut import Cut
from offcert.formulations.labels.pivot.model import back_side, front_side, nested
from offcert.instances.library import default_library
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.verification.pivot.check import pivot_fault
from support.oracles.schedules import brute_force
from support.problems.nested import nested_problems
from support.problems.random_instances import counterexample, trace_with_internals

GENEROUS = {"time_limit": 60.0, "max_labels": 1_000_000}


def simplex(problem: Problem) -> Problem:
    return replace(problem, platform=replace(problem.platform, link=Link.SIMPLEX))


def assert_exact(problem: Problem, optimum: int, upper: int, pivots: list[int] | None) -> None:
    outcome = pivot_bound(problem, upper_bound=upper, pivots=pivots, **GENEROUS)
    assert outcome.lower_bound == min(optimum, upper)
    assert outcome.complete
    if upper > optimum:
        assert outcome.schedule is not None
        assert outcome.schedule.makespan == optimum
        assert check(problem, outcome.schedule) == []
    else:
        assert outcome.schedule is None


@pytest.mark.parametrize("problem", nested_problems(70, 0, 4), ids=lambda problem: problem.name)
def test_every_pivot_and_every_upper_bound_give_the_optimum(problem):
    optimum = brute_force(problem)
    assert optimum is not None
    for pivot in range(len(problem.trace)):
        for upper in (optimum - 1, optimum, optimum + 1, optimum + 7, 50 * optimum + 50):
            assert_exact(problem, optimum, upper, [pivot])


def test_the_first_pivot_of_a_residual_network_leaves_next_to_nothing_open() -> None:
    """Head and tail of all others are at least a tenth of a per cent shorter."""
    problem = default_library().load("resnet152-duplex-224-m5_alone")
    data = nested(problem)
    first, *others = default_pivots(data)
    proven = {pivot: Cut(data, pivot).proven for pivot in (first, first + 1, *others)}
    assert 179860485 - 300 < proven.pop(first) <= 179860485
    assert max(proven.values()) < 0.999 * 179860485


@pytest.mark.slow
@pytest.mark.parametrize("problem", nested_problems(30, 7000, 6), ids=lambda problem: problem.name)
def test_default_pivots_give_the_optimum_of_larger_problems(problem):
    optimum = brute_force(problem)
    assert optimum is not None
    assert_exact(problem, optimum, optimum, None)
    assert_exact(problem, optimum, 3 * optimum + 1, None)


def test_interleaving_is_found_where_it_pays():
    # All offloads before all prefetches needs 254 (notes on the papers, §1.2).
    for pivot in range(14):
        assert_exact(counterexample(), 219, 10_000, [pivot])


def test_what_is_written_during_a_slow_return_may_leave_right_after_it():
    # x_0 takes 80 ticks to come back and 20 to leave. x_3 is written meanwhile, and no order of
    # the two would have let it leave before.
    problem = counterexample().with_bandwidth(Fraction(2), Fraction(1, 2))
    assert brute_force(problem) == 288
    for pivot in range(14):
        assert_exact(problem, 288, 10_000, [pivot])


@pytest.mark.parametrize(
    ("chain", "memory", "pivot", "optimum"),
    [
        (Chain((5, 20, 20, 5, 40), (20, 20, 1, 40, 1), (3, 3, 6, 5, 4, 4), (0,) * 6,
               (14, 0, 14, 0, 0), (0, 14, 14, 9, 14)), 26, 6, 180),
        (Chain((0, 0, 0, 0, 1), (20, 0, 0, 20, 40), (6, 5, 3, 6, 3, 4), (0,) * 6,
               (9, 0, 5, 0, 5), (0, 0, 0, 0, 9)), 21, 6, 104),
        (Chain((40, 40, 5, 20, 0, 0), (20, 5, 0, 20, 20, 20), (3, 3, 6, 6, 6, 3, 3), (0,) * 7,
               (0, 0, 0, 9, 0, 14), (9, 14, 14, 0, 0, 9)), 26, 8, 194),
    ],
)  # fmt: skip
def test_a_join_in_which_a_tensor_leaves_twice_is_no_schedule(chain, memory, pivot, optimum):
    problem = Problem("twice", chain, Platform(memory, Fraction(1)))
    assert brute_force(problem) == optimum
    cut = Cut(nested(problem), pivot)
    found, upper = [], 10**6
    while not found or not check(problem, found[-1]):
        item = cut.round(upper, lambda: None, 10**6)
        if item is not None:
            found.append(item)
            upper = item.makespan
    assert any("leaves twice" in fault for fault in check(problem, found[-1]))
    assert cut.proven <= optimum
    assert_exact(problem, optimum, 10**6, [pivot])


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True])
def test_tracking_classes_changes_the_effort_only(everything):
    for problem in nested_problems(60, 2500, 5):
        optimum = brute_force(problem)
        data = nested(problem)
        if max(data.required) == 0:
            continue
        tracked = frozenset(range(len(data.classes)) if everything else range(0, 99, 2))
        cut = Cut(data, default_pivots(data)[0], tracked)
        upper = 2 * optimum + 1
        while cut.proven < upper:
            found = cut.round(upper, lambda: None, 10**6)
            upper = upper if found is None else found.makespan
        assert cut.proven == optimum


@pytest.mark.slow
def test_the_bound_before_completion_never_exceeds_the_optimum():
    for problem in nested_problems(40, 300, 5):
        optimum = brute_force(problem)
        for stop_after in (0, 1, 2, 3):
            calls = iter(range(stop_after + 1))
            outcome = pivot_bound(
                problem,
                upper_bound=10 * optimum + 10,
                stop=lambda calls=calls: next(calls, None) is None,
                **GENEROUS,
            )
            assert outcome.lower_bound <= optimum


def distinct_chain(stages: int) -> Problem:
    rng = random.Random(stages)
    forward = [rng.randint(90, 500) for _ in range(stages)]
    sizes = [rng.randint(100, 1500) for _ in range(stages)] + [1]
    chain = Chain(forward, [2 * time for time in forward], sizes, sizes)
    return Problem("distinct", chain, Platform(chain.trace().least_memory, Fraction(3, 2)))


@pytest.mark.parametrize("limit", [{"time_limit": 0.0}, {"max_labels": 1}])
def test_a_search_cut_short_returns_what_is_proved_and_no_more(limit, monkeypatch):
    monkeypatch.setattr(arrays, "FIRST_CAPACITY", 16)
    monkeypatch.setattr("offcert.formulations.labels.pivot.cut.STRIDE", 1)
    problem = distinct_chain(12)
    complete = pivot_bound(problem, upper_bound=10**6, **GENEROUS)
    partial = pivot_bound(problem, upper_bound=10**6, **{**GENEROUS, **limit})
    assert complete.complete
    assert not partial.complete
    assert problem.trace.compute_time <= partial.lower_bound <= complete.lower_bound
    # The bound of an aborted search is confirmed like any other.
    assert pivot_fault(problem, partial.lower_bound, partial.proof) is None


def test_the_upper_bound_is_never_exceeded_and_no_schedule_returned_at_it():
    problem = simplex(counterexample())
    for upper in (1, 100, 218):
        outcome = pivot_bound(problem, upper_bound=upper, **GENEROUS)
        assert (outcome.lower_bound, outcome.complete, outcome.schedule) == (upper, True, None)


def test_enough_memory_means_no_transfer():
    problem = simplex(counterexample())
    problem = problem.with_memory(problem.trace.peak_memory)
    outcome = pivot_bound(problem, upper_bound=10**6, **GENEROUS)
    assert outcome.lower_bound == problem.trace.compute_time
    assert outcome.schedule is not None
    assert outcome.schedule.transfers == ()


def test_an_infeasible_problem_has_no_schedule_below_any_upper_bound():
    problem = simplex(counterexample())
    problem = problem.with_memory(problem.trace.least_memory - 1)
    outcome = pivot_bound(problem, upper_bound=12345, **GENEROUS)
    assert (outcome.lower_bound, outcome.complete, outcome.schedule) == (12345, True, None)


def test_large_numbers_do_not_overflow():
    # Ticks and bytes of a profile: durations up to 1e10 ns, sizes up to 1e12 bytes, odd bandwidth.
    scale_time, scale_size = 10**9 + 7, 10**10 + 19
    for problem in nested_problems(25, 900, 4):
        trace = problem.trace
        big = Trace(
            [Operation(o.name, o.duration * scale_time, o.workspace * scale_size)
             for o in trace.operations],
            [Tensor(t.name, t.size * scale_size, t.uses, t.evictable) for t in trace.tensors],
        )  # fmt: skip
        rate = problem.platform.bandwidth * Fraction(scale_size, scale_time)
        memory = problem.platform.memory * scale_size
        scaled = Problem("scaled", big, Platform(memory, rate))
        optimum = brute_force(scaled)
        assert_exact(scaled, optimum, 2 * optimum, None)


def test_equal_tensors_whose_writers_disagree_are_told_apart():
    # The outer gap belongs to the tensor that is written later.
    trace = Trace(
        [Operation(f"o{i}", 1) for i in range(6)],
        [Tensor("inner", 4, (0, 1, 2, 4)), Tensor("outer", 4, (1, 5)), Tensor("w", 4, (3,))],
    )
    data = nested(Problem("writers", trace, Platform(8, Fraction(1))))
    assert [len(members) for members in data.classes] == [1, 1]


def test_stage_inputs_and_internals_of_equal_size_share_a_class():
    data = nested(Problem("equal", trace_of_equal_sizes(4), Platform(10, Fraction(1))))
    assert [len(members) for members in data.classes] == [6]


def trace_of_equal_sizes(stages: int) -> Trace:
    last = 2 * stages - 1
    tensors = []
    for i in range(stages):
        tensors.append(Tensor(f"x{i}", 3, tuple(sorted({i - 1, i, last - i}))))
        tensors.append(Tensor(f"z{i}", 3, (i, last - i)))
    return Trace([Operation(f"o{i}", 2) for i in range(2 * stages)], tensors)


def test_what_the_method_cannot_do_is_refused():
    problem = counterexample()
    crossing = Trace(
        [Operation(f"o{i}", 1) for i in range(6)], [Tensor("a", 2, (0, 3)), Tensor("b", 2, (1, 5))]
    )
    several = Trace([Operation(f"o{i}", 1) for i in range(6)], [Tensor("a", 2, (0, 2, 5))])
    cases = [
        (replace(problem, transfers="fractional"), "atomic"),
        (replace(problem, network=crossing), "nested"),
        (replace(problem, network=several), "one gap"),
    ]
    for case, word in cases:
        with pytest.raises(MethodError, match=word):
            pivot_bound(case, upper_bound=1000, **GENEROUS)


def test_the_sides_mirror_each_other():
    # A trace read backwards, with writers where readers were, has front and back exchanged.
    rng = random.Random(3)
    trace = trace_with_internals(rng, 3)
    problem = Problem("forward", trace, Platform(trace.least_memory, Fraction(1)))
    data = nested(problem)
    for pivot in default_pivots(data):
        front, back = front_side(data, pivot), back_side(data, pivot)
        assert front.eligible == back.eligible
        assert front.prefix[-1] + back.prefix[-1] == trace.compute_time
        last = front.operations
        assert [row[last] for row in front.spans] == [row[-1] for row in back.spans]
        assert front.required[-1] == back.required[-1] == data.required[pivot]


def test_many_classes_need_several_words_of_key():
    stages = 70
    chain = Chain(
        forward=[1] * stages,
        backward=[1] * stages,
        activation=[100 + i for i in range(stages)] + [1],
        gradient=[0] * (stages + 1),
    )
    # One operation is over the limit by a little: one tensor has to leave, and the link is slow.
    problem = Problem("words", chain, Platform(chain.trace().peak_memory - 1, Fraction(1)))
    outcome = pivot_bound(problem, upper_bound=300, **GENEROUS)
    assert outcome.complete
    assert outcome.schedule is not None
    assert [item.gap for item in outcome.schedule.transfers] == [0, 0]
    # Out in 100 ticks, the two operations without it, back in 100, the operation that needs it.
    assert outcome.lower_bound == 203
