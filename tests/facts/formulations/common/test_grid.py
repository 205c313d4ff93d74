"""What models on a grid share: windows, gaps over operations, distances."""

from __future__ import annotations

from fractions import Fraction

from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import infeasibility, required_absent
from offcert.formulations.common.grid import distances, spanning, start_windows, useful_gaps
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.problems.random_instances import mixed_problem
from support.seeds import by_seeds


def waiting() -> Problem:
    """Return a problem in which x leaves from 3 to 8, spike needs that, and x is back at 13."""
    operations = [Operation("a", 3), Operation("spike", 0, 8), Operation("b", 3), Operation("c", 1)]
    trace = Trace(operations, [Tensor("x", 10, (0, 3))])
    return Problem("waiting", trace, Platform(10, Fraction(2)))


def test_windows_are_as_wide_as_the_upper_bound_leaves_them() -> None:
    # From the front x must have left before spike; from the back it returns after spike, before c.
    assert start_windows(waiting(), 14) == ([0, 8, 8, 11], [5, 8, 10, 13])
    assert start_windows(waiting(), 16) == ([0, 8, 8, 11], [7, 10, 12, 15])
    # The optimum is 14.
    assert start_windows(waiting(), 13) is None


@by_seeds(0, 60, 30)
def test_every_schedule_lies_in_the_windows_of_its_length(seeds: range) -> None:
    looked_at = 0
    for seed in seeds:
        problem = mixed_problem(seed, 6)
        if infeasibility(problem) is not None:
            continue
        schedule = simulate(problem, sequential(problem))
        windows = start_windows(problem, schedule.makespan)
        assert windows is not None
        for low, start, high in zip(windows[0], schedule.starts, windows[1], strict=True):
            assert low <= start <= high, problem.name
        looked_at += 1
    assert looked_at >= 24


@by_seeds(0, 40, 20)
def test_gaps_over_operations_are_those_of_the_trace(seeds: range) -> None:
    for seed in seeds:
        trace = mixed_problem(seed, 6).trace
        over = spanning(((gap.before, gap.after) for gap in trace.gaps), len(trace))
        assert over == tuple(tuple(sorted(gaps)) for gaps in trace.gaps_over)


def test_gaps_are_useful_where_memory_binds_inside_them() -> None:
    problem = waiting()
    found = list(useful_gaps(problem.trace, required_absent(problem)))
    assert [(number, binding) for number, _, binding in found] == [(0, [1])]
    assert list(useful_gaps(problem.trace, [5, 0, 0, 5])) == []


def test_distances_recover_what_rounding_loses() -> None:
    # Three cells of 4 ticks each, where every duration alone is rounded down to none or one.
    assert distances((3, 5, 3, 1, 9), 4) == ((0, 2, 2), (1, 3, 2), (2, 4, 1), (0, 4, 3))
    assert distances((3, 5, 3, 1, 9), 1) == ()
