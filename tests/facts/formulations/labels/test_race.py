"""Turns, budgets and who drops out, with searches that prove what they are told to."""

from dataclasses import dataclass

import pytest

from offcert.formulations.labels.common import Deadline, OutOfTimeError, Race


@dataclass
class Runner:
    """A search of which only the bound matters."""

    proven: int


def race(*proven: int) -> Race[Runner]:
    return Race([Runner(value) for value in proven], 10)


def test_a_round_that_was_broken_off_goes_on_with_the_same_turn() -> None:
    had: list[int] = []

    def turn(place: int) -> bool:
        had.append(place)
        if had == [0, 1]:
            raise OutOfTimeError
        return False

    runners = race(1, 2, 3)
    with pytest.raises(OutOfTimeError):
        runners.give_turns(turn)
    assert not runners.give_turns(turn)
    assert had == [0, 1, 1, 2]
    # The next round begins with the first.
    assert not runners.give_turns(turn)
    assert had[4:] == [0, 1, 2]


def test_a_turn_can_end_the_race() -> None:
    had: list[int] = []
    assert race(1, 2, 3).give_turns(lambda place: had.append(place) or place == 1)
    assert had == [0, 1]


def test_a_runner_has_more_only_while_it_raises_the_best_bound() -> None:
    runners = race(5, 9)
    budgets = []
    for budget in runners.budgets(0, 10, 1000):
        budgets.append(budget)
        # It passes the other, leads further, and stands still.
        runners.runners[0].proven = {1: 10, 2: 11, 3: 11}[len(budgets)]
    assert budgets == [10, 40, 160]


def test_what_does_not_pass_the_leader_has_one_budget() -> None:
    runners = race(5, 9)
    budgets = []
    for budget in runners.budgets(0, 10, 1000):
        budgets.append(budget)
        runners.runners[0].proven = 9
    assert budgets == [10]


def test_no_budget_exceeds_the_most() -> None:
    runners = race(0)
    budgets = []
    for budget in runners.budgets(0, 10, 25):
        budgets.append(budget)
        runners.runners[0].proven += 1
    assert budgets == [10, 25]


def test_those_behind_drop_out_but_never_all() -> None:
    runners = race(3, 9, 4, 7, 1)
    runners.thin((2, 3))
    assert [one.proven for one in runners.runners] == [9, 7, 4]
    runners.thin((1, 4), key=lambda one: one.proven)
    assert [one.proven for one in runners.runners] == [4]
    runners.thin((1, 4))
    assert runners.proven == 4


def test_a_deadline_ends_its_block_and_nothing_else() -> None:
    asked = []
    deadline = Deadline(stop=lambda: asked.append(None) or len(asked) > 2)
    passed = []
    with deadline.within(1e6):
        for step in range(9):
            deadline.check()
            passed.append(step)
    assert passed == [0, 1]
    late = Deadline()
    with late.within(-1.0):
        late.check()
        raise AssertionError("the time is over before it begins")
    with pytest.raises(ValueError, match="another"), deadline.within(1e6):
        raise ValueError("another failure is no end of time")
