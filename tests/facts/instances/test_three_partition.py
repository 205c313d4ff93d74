"""The reduction from 3-partition, both ways, against answers found by other means."""

import random
from itertools import combinations

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.formulations.labels.pivot.bound import pivot_bound
from offcert.instances.cnn import cnn_chain
from offcert.instances.three_partition import (
    ThreePartition,
    find_triples,
    schedule_of_triples,
    three_partition,
    triples_of,
)
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from support.oracles.schedules import brute_force
from support.seeds import by_seeds


def naive_answer(values: list[int], target: int) -> bool:
    """Whether triples of that sum exist, trying every partner of the first value."""
    if not values:
        return True
    return any(
        values[0] + values[a] + values[b] == target
        and naive_answer([v for i, v in enumerate(values) if i not in (0, a, b)], target)
        for a, b in combinations(range(1, len(values)), 2)
    )


def multiset(seed: int) -> list[int]:
    """Return 3m positive values, m from 1 to 5, whose sum is a multiple of m; half with answers."""
    rng = random.Random(seed)
    m = rng.choice((1, 2, 2, 3, 3, 4, 5))
    if seed % 2:
        largest = rng.choice((8, 30, 100))
        while True:
            values = [rng.randint(1, largest) for _ in range(3 * m)]
            if sum(values) % m == 0:
                return values
    target = rng.randint(6, 40)
    values = []
    for _ in range(m):
        cuts = sorted(rng.sample(range(1, target), 2))
        values += [cuts[0], cuts[1] - cuts[0], target - cuts[1]]
    rng.shuffle(values)
    return values


def makespan_in_question(problem: Problem) -> int:
    assert problem.source is not None
    return int(problem.source["solution"]["makespan"])


@pytest.mark.slow
@by_seeds(0, 112, 28)
def test_answers_equal_the_partitions_both_ways(seeds: range) -> None:
    answers = {True: 0, False: 0}
    for seed in seeds:
        values = multiset(seed)
        m = len(values) // 3
        target = sum(values) // m
        problem = three_partition(values)
        assert problem.source is not None
        goal = makespan_in_question(problem)
        assert goal == problem.trace.compute_time
        positive = naive_answer(values, target)
        answers[positive] += 1
        found = find_triples(values).triples
        assert (found is not None) == positive
        assert problem.source["solution"]["answer"] == ("yes" if positive else "no")
        if found is not None:
            schedule = schedule_of_triples(values, found)
            assert schedule.makespan == goal
            assert check(problem, schedule) == []
            back = triples_of(problem, schedule)
            assert {tuple(sorted(triple)) for triple in found} == set(back)
        else:
            outcome = pivot_bound(
                problem, upper_bound=goal + 1, time_limit=30, max_labels=2_000_000
            )
            assert outcome.lower_bound > goal, values
    assert min(answers.values()) >= 3


@pytest.mark.parametrize("seed", range(4))
def test_brute_force_finds_the_schedule_of_a_partition(seed: int) -> None:
    # Where there is none, brute force takes half a minute; the pivot program answers that above.
    rng = random.Random(seed)
    first, second = rng.choice([(3, 4), (4, 4), (3, 5)]), rng.choice([(3, 5), (5, 4), (4, 3)])
    values = [*first, 12 - sum(first), *second, 12 - sum(second)]
    rng.shuffle(values)
    problem = three_partition(values)
    assert brute_force(problem) == makespan_in_question(problem)


def exact_optimum(problem: Problem, upper_bound: int) -> int:
    outcome = pivot_bound(problem, upper_bound=upper_bound, time_limit=30, max_labels=2_000_000)
    assert outcome.schedule is not None
    assert outcome.schedule.makespan == outcome.lower_bound
    return outcome.lower_bound


@pytest.mark.parametrize("m", [2, 3])
def test_the_reduction_as_printed_takes_two_units_more(m: int) -> None:
    # V on the outputs of the long operations, x_{3m+2k+1}, as in the paper.
    unit = 100
    values = [26, 33, 41, 27, 35, 38, 30, 34, 36][: 3 * m]
    good = three_partition(values)
    assert good.chain is not None
    printed = Chain(
        good.chain.forward,
        good.chain.backward,
        [*values, 0] + [unit, 0] * m,
        good.chain.gradient,
    )
    assert exact_optimum(Problem("", printed, good.platform), 10 * m * unit) == (2 * m + 2) * unit
    assert exact_optimum(good, 10 * m * unit) == 2 * m * unit


def test_values_outside_a_quarter_and_a_half_are_lifted() -> None:
    # 1 + 1 + 1 + 9 = 12 = V would be a set of four; only triples count.
    values = [1, 1, 1, 9, 6, 6]
    problem = three_partition(values)
    assert problem.source is not None
    assert problem.source["added"] == 12
    assert problem.trace.tensors[0].size == 13
    assert find_triples(values).triples is None
    assert three_partition([4, 4, 4]).source["added"] == 0  # type: ignore[index]


def test_only_a_valid_schedule_of_the_right_length_gives_a_partition() -> None:
    values = [26, 33, 41, 27, 35, 38]
    problem = three_partition(values)
    schedule = schedule_of_triples(values, [(0, 1, 2), (3, 4, 5)])
    assert triples_of(problem, schedule) == ((0, 1, 2), (3, 4, 5))
    late = type(schedule)(
        schedule.starts, [*schedule.ends[:-1], schedule.ends[-1] + 1], schedule.transfers
    )
    with pytest.raises(InputError, match="length 400"):
        triples_of(problem, late)
    with pytest.raises(InputError, match="not valid"):
        triples_of(problem, type(schedule)(schedule.starts, schedule.ends, []))
    with pytest.raises(InputError, match="not the problem that its values"):
        triples_of(problem.with_memory(201), schedule)
    with pytest.raises(InputError, match="no reduction from three partition"):
        triples_of(cnn_chain(8, 0), schedule)
    with pytest.raises(InputError, match=r"triples\[0\] must be three values of sum 100"):
        schedule_of_triples(values, [(0, 1, 3), (2, 4, 5)])
    with pytest.raises(InputError, match="do not hold every value once"):
        schedule_of_triples(values, [(0, 1, 2), (0, 1, 2)])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "values must be 3, 6, 9"),
        ([1, 2], "values must be 3, 6, 9"),
        ([1, 2, 0], r"values\[2\] must be at least 1"),
        ([1, 2, 3, 4, 5, 6], "multiple of 2, not 21"),
    ],
)
def test_what_is_no_instance_is_refused(values: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        three_partition(values)


@pytest.mark.parametrize("answer", ["yes", "no"])
@pytest.mark.parametrize("m", [2, 3, 5])
def test_drawn_values_have_the_answer_asked_for(m: int, answer: str) -> None:
    for seed in range(5):
        problem = ThreePartition(m=m, answer=answer).problem(seed)
        assert problem.source is not None
        values = problem.source["values"]
        assert len(values) == 3 * m
        assert all(100 < 4 * value < 200 for value in values)
        assert naive_answer(values, 100) == (answer == "yes")


def test_an_answer_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match='m 1 and target 100 gave no values whose answer is "no"'):
        ThreePartition(m=1, answer="no").problem(0)
    with pytest.raises(InputError, match='answer must be one of "any", "yes", "no"'):
        ThreePartition(answer="perhaps")
