"""The reduction from 2-partition, both ways, against answers found by other means."""

import random

import pytest

from offcert.core.errors import InputError
from offcert.formulations.combinatorial.relaxations import fractional_bound
from offcert.formulations.fluid.milp import fluid_bound
from offcert.formulations.labels.pivot.bound import pivot_bound
from offcert.instances.cnn import cnn_chain
from offcert.instances.two_partition import (
    TwoPartition,
    half_of,
    halve,
    schedule_of_half,
    two_partition,
)
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem, Transfers
from support.oracles.schedules import brute_force
from support.seeds import by_seeds


def sums(values: list[int]) -> set[int]:
    found = {0}
    for value in values:
        found |= {value + other for other in found}
    return found


def naive_answer(values: list[int]) -> bool:
    """Meet in the middle: two sets of subset sums."""
    half = sum(values) // 2
    left, right = sums(values[::2]), sums(values[1::2])
    return any(half - value in right for value in left)


def multiset(seed: int) -> list[int]:
    """Return 2 to 20 positive values of even sum, up to a million; half with answers."""
    rng = random.Random(seed)
    count = rng.choice((2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20))
    largest = rng.choice((10, 100, 10**4, 10**6))
    while True:
        values = [rng.randint(1, largest) for _ in range(count)]
        if seed % 2:
            rest = abs(sum(values[: count // 2]) - sum(values[count // 2 : -1]))
            values[-1] = max(1, rest)
        if sum(values) % 2 == 0:
            rng.shuffle(values)
            return values


def makespan_in_question(problem: Problem) -> int:
    assert problem.source is not None
    return int(problem.source["solution"]["makespan"])


@pytest.mark.slow
@by_seeds(0, 220, 28)
def test_answers_equal_the_partitions_both_ways(seeds: range) -> None:
    answers = {True: 0, False: 0}
    refuted = 0
    for seed in seeds:
        values = multiset(seed)
        problem = two_partition(values)
        goal = makespan_in_question(problem)
        assert goal == sum(values)
        positive = naive_answer(values)
        answers[positive] += 1
        found = halve(values)
        assert (found.part is not None) == positive
        if found.part is not None:
            schedule = schedule_of_half(values, found.part)
            assert schedule.makespan == goal
            for transfers in Transfers:
                assert check(two_partition(values, transfers), schedule) == []
            assert half_of(problem, schedule) == found.part
            assert sum(values[index] for index in found.part) == goal // 2
        else:
            if len(values) <= 12:
                assert found.closest == max(s for s in sums(values) if 2 * s < goal)
            refuted += exceeds(problem, goal)
    assert min(answers.values()) >= 3
    assert refuted >= 0.9 * answers[False]


def exceeds(problem: Problem, goal: int) -> bool:
    """Whether a proved bound says that no schedule is so short; False if that is not known."""
    # Rounded up to a sum that exists, what must leave takes longer than there is time; with large
    # values the rounding is coarse.
    if fractional_bound(problem, True).value > goal:
        return True
    if len(problem.trace.gaps) > 13:
        return False
    outcome = pivot_bound(problem, upper_bound=goal + 1, time_limit=30, max_labels=10**6)
    assert outcome.lower_bound > goal, problem.source
    return True


@pytest.mark.parametrize("seed", range(12))
def test_brute_force_agrees_on_few_values(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.randint(1, 9) for _ in range(rng.randint(2, 4))]
    values.append(1 + (sum(values) + 1) % 2 + 2 * rng.randint(0, 2))
    problem = two_partition(values)
    optimum = brute_force(problem)
    assert optimum is not None
    assert (optimum == makespan_in_question(problem)) == naive_answer(values)


def test_pausing_transfers_does_not_help() -> None:
    answers = set()
    for seed in range(12):
        rng = random.Random(seed)
        values = [rng.randint(1, 20) for _ in range(5)]
        values.append(2 - sum(values) % 2)
        problem = two_partition(values, "interruptible")
        assert problem.transfers is Transfers.INTERRUPTIBLE
        bound = fluid_bound(problem, time_limit=20).value
        goal = makespan_in_question(problem)
        positive = naive_answer(values)
        answers.add(positive)
        assert (bound > goal) != positive, values
    assert answers == {True, False}


def test_only_a_valid_schedule_of_the_right_length_gives_a_half() -> None:
    values = [3, 5, 4, 6]
    problem = two_partition(values)
    schedule = schedule_of_half(values, (0, 3))
    assert half_of(problem, schedule) == (0, 3)
    with pytest.raises(InputError, match="not valid"):
        half_of(problem, type(schedule)(schedule.starts, schedule.ends, []))
    with pytest.raises(InputError, match="not the problem that its values"):
        half_of(problem.with_memory(19), schedule)
    with pytest.raises(InputError, match="no reduction from two partition"):
        half_of(cnn_chain(8, 0), schedule)
    with pytest.raises(InputError, match="no half of the values"):
        schedule_of_half(values, (0, 1))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "values must not be empty"),
        ([1, 2], "values must have an even sum, not 3"),
        ([1, -1], r"values\[1\] must be at least 1"),
        ([1, 2.0], r"values\[1\] must be an integer"),
        ([10**10, 10**10], "product of count and half sum"),
    ],
)
def test_what_is_no_instance_is_refused(values: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        two_partition(values)


@pytest.mark.parametrize("answer", ["yes", "no"])
@pytest.mark.parametrize("count", [4, 12, 20])
def test_drawn_values_have_the_answer_asked_for(count: int, answer: str) -> None:
    for seed in range(3):
        drawn = TwoPartition(count=count, largest=10**6, answer=answer).problem(seed)
        assert drawn.source is not None
        values = drawn.source["values"]
        assert len(values) == count
        assert max(values) <= 10**6
        assert naive_answer(values) == (answer == "yes")
        assert drawn.transfers is Transfers.INTERRUPTIBLE


@pytest.mark.parametrize(
    ("count", "largest"), [(2, 4), (12, 4), (13, 5), (20, 1000), (40, 1000), (60, 7)]
)
def test_values_that_cannot_be_halved_are_always_drawn(count: int, largest: int) -> None:
    for seed in range(4):
        problem = TwoPartition(count=count, largest=largest, answer="no").draw(seed)
        assert problem.source is not None
        values = problem.source["values"]
        assert len(values) == count
        assert 1 <= min(values) <= max(values) <= largest
        assert not naive_answer(values)


def test_where_no_values_can_be_drawn_it_says_which_can() -> None:
    with pytest.raises(InputError, match="from largest 4 on there always are some"):
        TwoPartition(count=40, largest=3, answer="no").draw(0)
