"""GREEDY against the paper's definition and hand-made chains."""

import random
from fractions import Fraction
from itertools import accumulate

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions.rules import greedy, greedy_gaps
from offcert.heuristics.orders.ordered import ordered_makespan, ordered_orders
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.problems.long_problems import long_problem
from support.problems.random_instances import (
    cnn_chain,
    mixed_problem,
    spiky_chain,
    trace_with_internals,
)
from support.seeds import by_seeds


def test_it_takes_the_fewest_first_activations_that_cover_the_excess():
    chain = Chain([1] * 5, [1] * 5, [3, 4, 5, 6, 1, 1], [0] * 6)
    # The peak is 20, during F_4 and B_4.
    for memory, expected in ((20, []), (19, [0]), (17, [0]), (16, [0, 1]), (13, [0, 1])):
        assert greedy_gaps(Problem("p", chain, Platform(memory, Fraction(1)))) == expected


@by_seeds(0, 300, 30)
def test_it_needs_no_more_than_the_papers_rule_on_nested_traces(seeds):
    for seed in seeds:
        rng = random.Random(seed)
        network = (cnn_chain, spiky_chain, trace_with_internals)[seed % 3](rng, 2 + seed % 7)
        problem = Problem("p", network, Platform(10**6, Fraction(rng.randint(1, 3), 2)))
        problem = problem.with_memory(problem.memory_at(Fraction(rng.randint(0, 10), 10)))
        chosen = greedy_gaps(problem)
        sizes = [problem.trace.gap_size(gap) for gap in chosen]
        excess = problem.trace.peak_memory - problem.platform.memory
        assert sum(sizes[:-1]) < excess or not chosen
        # It always runs where anything does, and what it does is valid.
        assert check(problem, simulate(problem, greedy(problem))) == []


def test_it_adds_activations_where_the_first_ones_do_not_span_the_peak():
    trace = Trace(
        [Operation(f"o{i}", 1, 10 if i == 6 else 0) for i in range(8)],
        [Tensor("early", 9, (0, 5)), Tensor("late", 6, (3, 7))],
    )
    # The peak, 16, is at o6, where "early" has gone.
    problem = Problem("p", trace, Platform(15, Fraction(2)))
    assert greedy_gaps(problem) == [0, 1]
    assert check(problem, simulate(problem, greedy(problem))) == []


@by_seeds(0, 200, 67)
def test_passing_over_what_cannot_fit_changes_no_choice(seeds):
    """Against adding activations one by one from the papers' number on."""
    added = 0
    for seed in seeds:
        problem = long_problem(seed, 20, 8, nested=False)
        try:
            chosen = greedy_gaps(problem)
        except MethodError:
            continue
        order, _ = ordered_orders(problem, range(len(problem.trace.gaps)))
        excess = problem.trace.peak_memory - problem.platform.memory
        sums = accumulate((problem.trace.gap_size(gap) for gap in order), initial=0)
        papers = next((k for k, moved in enumerate(sums) if moved >= excess), len(order))
        count = papers
        while count < len(order) and ordered_makespan(problem, order[:count]) is None:
            count += 1
        assert chosen == order[:count]
        added += count > papers
    assert added >= 2


def test_nothing_leaves_if_the_peak_fits():
    problem = Problem("p", Chain([1] * 3, [1] * 3, [1] * 4, [1] * 4), Platform(99, Fraction(1)))
    assert greedy(problem) == Plan()


def test_too_little_memory_is_reported_with_the_operation():
    problem = Problem("p", Chain([1] * 3, [1] * 3, [4] * 4, [0] * 4), Platform(7, Fraction(1)))
    with pytest.raises(MethodError, match="operation F0 needs 1 bytes"):
        greedy(problem)


def test_tensors_with_several_gaps_are_refused():
    trace = Trace([Operation(str(i), 1) for i in range(5)], [Tensor("x", 1, (0, 2, 4))])
    with pytest.raises(MethodError, match="at most one gap"):
        greedy(Problem("p", trace, Platform(1, Fraction(1))))


@by_seeds(0, 200, 29)
def test_it_never_crashes_on_random_problems(seeds):
    for seed in seeds:
        problem = mixed_problem(seed)
        try:
            plan = greedy(problem)
        except MethodError:
            continue
        assert check(problem, simulate(problem, plan)) == []
