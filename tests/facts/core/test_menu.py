"""Menus: what a choice makes, what all of them have in common, and what is no choice."""

from itertools import product

import pytest

from offcert.core.errors import InputError
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.split.menu import Alternative, Menu, undominated
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem, seeded

TRACE = Trace(
    [Operation("a", 5), Operation("b", 7, 2), Operation("c", 1)],
    [Tensor("x", 4, (0, 2)), Tensor("w", 3, (-1, 2), evictable=False)],
)
MENU = Menu({1: (Alternative("slow", 9), Alternative("fast", 3, 6))})


def random_menu(problem: Problem, seed: int, most: int = 2) -> Menu:
    """Return alternatives for some operations of a random problem."""
    rng = seeded(seed)
    trace = problem.trace
    operations = rng.sample(range(len(trace)), min(most, len(trace)))
    largest = max((tensor.size for tensor in trace.tensors), default=1)
    return Menu(
        {
            operation: [
                Alternative(f"w{number}", rng.randint(0, 20), rng.randint(0, largest))
                for number in range(rng.randint(1, 3))
            ]
            for operation in operations
        }
    )


def test_a_choice_replaces_duration_and_workspace_and_nothing_else() -> None:
    assert [str(MENU.of[1][number].name) for number in (*MENU.leanest(), *MENU.fastest())] == [
        "slow",
        "fast",
    ]
    made = MENU.chosen(TRACE, (1,))
    assert made.tensors == TRACE.tensors
    assert made.operations == (Operation("a", 5), Operation("b [fast]", 3, 6), Operation("c", 1))
    # Nobody is as fast with as little.
    assert MENU.relaxed(TRACE, 100).operations[1] == Operation("b", 3, 0)
    # While b runs, w is there and x need not be: 3 + 6 > 8.
    assert MENU.relaxed(TRACE, 9).operations[1] == Operation("b", 3, 0)
    assert MENU.relaxed(TRACE, 8).operations[1] == Operation("b", 9, 0)
    # Where nothing fits, nothing is left out.
    assert MENU.relaxed(TRACE, 2).operations[1] == Operation("b", 3, 0)
    assert Menu().chosen(TRACE, ()) == TRACE == Menu().relaxed(TRACE, 0)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ((), "must have 1 entries, not 0"),
        ((0, 0), "must have 1 entries, not 2"),
        ((2,), r"choice\[0\] must be from 0 to 1, not 2"),
        ((-1,), r"choice\[0\] must be from 0 to 1, not -1"),
        ((True,), "must be an integer"),
    ],
)
def test_what_is_no_choice(choice: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MENU.chosen(TRACE, choice)


def test_what_is_no_menu() -> None:
    with pytest.raises(InputError, match="at least one alternative"):
        Menu({0: ()})
    with pytest.raises(InputError, match="duration must be at least 0"):
        Menu({0: (Alternative("x", -1),)})
    with pytest.raises(InputError, match="names operation 3, of which there are 3"):
        Menu({3: (Alternative("x", 1),)}).chosen(TRACE, (0,))


def test_undominated_alternatives_trade_time_for_memory() -> None:
    ways = [Alternative("a", 9), Alternative("b", 9, 1), Alternative("c", 4, 5)]
    ways += [Alternative("d", 5, 5), Alternative("e", 3, 7), Alternative("f", 9)]
    assert [way.name for way in undominated(ways)] == ["a", "c", "e"]


@pytest.mark.parametrize("seed", range(30))
def test_no_choice_beats_the_relaxation_of_all(seed: int) -> None:
    problem = mixed_problem(seed, 3)
    menu = random_menu(problem, seed)
    memory = problem.platform.memory
    relaxed = brute_force(_on(problem, menu.relaxed(problem.trace, memory)))
    found = [
        brute_force(_on(problem, menu.chosen(problem.trace, choice)))
        for choice in product(*(range(len(row)) for _, row in menu.offers))
    ]
    possible = [value for value in found if value is not None]
    if possible:
        assert relaxed is not None
        assert relaxed <= min(possible)
    # What does not fit beside what must be there is never part of a schedule.
    fitting = menu.fitting(problem.trace, memory)
    for (_, row), (_, kept) in zip(menu.offers, fitting.offers, strict=True):
        assert set(kept) <= set(row)


def _on(problem: Problem, trace: Trace) -> Problem:
    return Problem("t", trace, problem.platform)
