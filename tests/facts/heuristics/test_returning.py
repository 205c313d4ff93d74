"""Which tensors have to leave again, and searches that make them."""

from fractions import Fraction

import pytest

from offcert.core.errors import MethodError
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.heuristics.orders.order_search import order_search, set_search
from offcert.heuristics.orders.ordered import (
    lacking,
    later_gaps,
    leaving_again,
    needed_again,
    ordered_plan,
)
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule


def read_on_the_way_back(memory: int = 10) -> Problem:
    """Return a problem whose tensor x is read at 5 and 7; a spike at 6 leaves no room for it."""
    tensors = [
        Tensor("x", 6, (0, 5, 7)),
        Tensor("y", 4, (1, 8)),
        Tensor("z", 9, (3, 4), evictable=False),
        Tensor("spike", 5, (6,), evictable=False),
    ]
    trace = Trace([Operation(f"o{i}", 2) for i in range(9)], tensors)
    return Problem("way back", trace, Platform(memory, Fraction(1)))


def test_later_gaps_follow_those_that_are_chosen() -> None:
    trace = read_on_the_way_back().trace
    assert [(gap.tensor, gap.before, gap.after) for gap in trace.gaps] == [
        (0, 0, 5),
        (0, 5, 7),
        (1, 1, 8),
    ]
    assert later_gaps(trace, [0, 2]) == {1: 0}
    assert later_gaps(trace, [1, 2]) == {}
    assert leaving_again(trace, [2, 1, 0]) == {1}
    assert leaving_again(trace, [1, 2]) == set()


@pytest.mark.parametrize(
    ("memory", "alone", "together"), [(15, [], []), (11, [1], []), (10, [1], [1])]
)
def test_what_has_to_leave_again_does_so_only_if_all_else_is_not_enough(
    memory: int, alone: list[int], together: list[int]
) -> None:
    problem = read_on_the_way_back(memory)
    required = lacking(problem)
    assert required == required_absent(problem)
    assert needed_again(problem.trace, required, [0], [1]) == alone
    # With y away as well there may be room for x.
    assert needed_again(problem.trace, required, [0, 2], [1]) == together


def test_of_several_the_least_that_is_enough_leaves_again() -> None:
    tensors = [
        Tensor("x", 6, (0, 5, 7)),
        Tensor("y", 4, (1, 5, 7)),
        Tensor("spike", 5, (6,), evictable=False),
    ]
    trace = Trace([Operation(f"o{i}", 2) for i in range(8)], tensors)
    required = [0] * 6 + [4, 0]
    assert needed_again(trace, required, [0, 2], [1, 3]) == [3]
    required[6] = 5
    assert needed_again(trace, required, [0, 2], [1, 3]) == [1]
    required[6] = 7
    assert needed_again(trace, required, [0, 2], [1, 3]) == [1, 3]


@pytest.mark.parametrize("search", [set_search, order_search])
def test_where_no_other_ordered_schedule_exists_searches_find_one_that_leaves_again(
    search: object,
) -> None:
    tensors = [
        Tensor("x", 6, (0, 5, 7)),
        Tensor("y", 4, (1, 8)),
        Tensor("z", 9, (3, 4), evictable=False),
        Tensor("spike", 5, (6,), evictable=False),
        Tensor("w", 4, (6, 7), evictable=False),
    ]
    trace = Trace([Operation(f"o{i}", 2) for i in range(9)], tensors)
    problem = Problem("way back", trace, Platform(10, Fraction(1)))
    with pytest.raises(MethodError):
        ordered_plan(problem, [0, 2])
    found: list[Schedule] = []
    search(problem, time_limit=5, on_improvement=found.append)  # type: ignore[operator]
    if not found:  # the set search tells only of what is better than where it starts
        found.append(order_search_start(problem))
    assert check(problem, found[-1]) == []
    assert found[-1].evicted == (0, 1, 2)


def order_search_start(problem: Problem) -> Schedule:
    """Return the first schedule that the order search tells of."""
    found: list[Schedule] = []
    order_search(problem, time_limit=0, on_improvement=found.append)
    return found[0]
