"""The search for the hardest memory and bandwidth: counted, repeatable, sound, interruptible."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from offcert.core.errors import InputError, MethodError
from offcert.core.platform import Kind
from offcert.formulations.labels.pivot.bound import pivot_bound
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from offcert_lab.hunts import effort as descent
from offcert_lab.hunts import phase
from offcert_lab.hunts.effort import ProofEffort, climbed, descended, effort, improved
from offcert_lab.hunts.phase import SHAPES, CoreProblems, EffortMap, Point
from support.oracles.schedules import brute_force
from support.problems.random_instances import tiny_problems

SOLVED = ProofEffort(5, 10, 10)


def hill(top: Point) -> Callable[[Point, int], ProofEffort]:
    """Return an effort that falls with the distance from a point."""

    def measure(point: Point, labels: int) -> ProofEffort:
        far = abs(point.memory_step - top.memory_step) + abs(point.ratio_step - top.ratio_step)
        return ProofEffort(1000 - far, 10, 10)

    return measure


def measured(count: int) -> Iterator[tuple[Problem, ProofEffort]]:
    """Yield feasible tiny problems of the kind that the pivot program takes, and their efforts."""
    found = 0
    for problem in tiny_problems(4 * count, largest=4):
        if found == count:
            return
        with suppress(MethodError):
            yield problem, effort(problem, 1000)
            found += 1


def test_effort_brackets_the_optimum_and_calls_solved_only_what_is() -> None:
    solved = count = 0
    for problem, found in measured(200):
        optimum = brute_force(problem)
        assert optimum is not None
        assert found.lower_bound <= optimum <= found.value
        assert (found.gap == 0) == (found.lower_bound == found.value)
        solved += found.gap == 0
        count += 1
    assert count == 200
    assert solved >= 190


def test_what_stays_open_is_harder_than_what_closes_and_labels_decide_among_equals() -> None:
    few, many = ProofEffort(10, 100, 100), ProofEffort(999_999, 100, 100)
    little, much = ProofEffort(10, 10_000, 9_999), ProofEffort(5, 100, 99)
    assert few.rank < many.rank < little.rank < much.rank
    assert much.gap == Fraction(1, 100)
    assert ProofEffort(0, 0, 0).gap == 0


def test_effort_is_the_same_every_time_and_grows_with_what_it_may_count() -> None:
    problem = CoreProblems(stages=14, shape="narrow").at(0, Fraction(4, 10), Fraction(4))
    first = effort(problem, 200)
    assert effort(problem, 200) == first
    assert first.gap > 0
    more = effort(problem, 50_000)
    assert more.rank < first.rank
    assert more.gap == 0


def test_the_pivot_program_counts_the_labels_of_all_pivots() -> None:
    problem = CoreProblems(stages=12, shape="narrow").at(0, Fraction(3, 10), Fraction(2))
    upper = simulate(problem, sequential(problem)).makespan
    alone = pivot_bound(problem, upper_bound=upper, time_limit=60, max_labels=10**6, pivots=[6])
    # The roots of both sides are counted as stored, but nobody searched for them.
    assert alone.searched == alone.labels - 2 > 0
    all_ = pivot_bound(problem, upper_bound=upper, time_limit=60, max_labels=10**6)
    assert all_.complete
    assert all_.searched > all_.labels


def test_nothing_that_may_round_differently_decides_in_the_descent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One tick is the least by which a plan is worse, and its exponential is exactly zero.
    assert np.exp(-1 / descent._FROZEN) == 0.0
    problem = CoreProblems(stages=10).at(3, Fraction(1, 10), Fraction(2))
    plan = descended(problem)
    value = simulate(problem, plan).makespan
    assert value < simulate(problem, sequential(problem)).makespan
    assert simulate(problem, climbed(problem, plan)).makespan <= value
    assert climbed(problem, plan) == climbed(problem, plan)
    monkeypatch.setattr(descent, "best_set", lambda problem: None)
    assert descended(problem) == sequential(problem)


def test_sets_improve_a_plan_only_where_they_are_better() -> None:
    problem = CoreProblems(stages=6).at(0, Fraction(1, 4), Fraction(2))
    bad = sequential(problem)
    good = descended(problem)
    best = simulate(problem, good).makespan
    chosen = {move.gap for move in good.moves if move.kind is Kind.OFFLOAD}
    assert simulate(problem, improved(problem, bad, [(), chosen])).makespan <= best
    assert improved(problem, good, [(), range(len(problem.trace.gaps))]) == good


def test_the_grid_is_of_rationals_and_covers_what_it_says() -> None:
    ratios = [Point(0, step).ratio for step in phase._RATIO_STEPS]
    assert (ratios[0], ratios[-1]) == (Fraction(1, 2), 8)
    assert {Fraction(1), Fraction(9, 8), Fraction(3, 2), Fraction(15, 8), Fraction(2)} <= {*ratios}
    assert all(one < other for one, other in pairwise(ratios))
    memories = [Point(step, 0).memory for step in phase._MEMORY_STEPS]
    assert (memories[0], memories[1], memories[-1]) == (0, Fraction(1, 80), Fraction(4, 5))
    assert {*Point(0, 0).around(4)} == {
        Point(0, -4), Point(0, 4), Point(4, -4), Point(4, 0), Point(4, 4),
    }  # fmt: skip


@pytest.mark.parametrize("top", [Point(19, 11), Point(0, -8), Point(64, 24), Point(33, 1)])
def test_the_search_finds_the_top_of_a_hill(top: Point) -> None:
    found = EffortMap(hill(top), 100)
    found.run()
    assert found.hardest == top
    assert found.complete
    assert not found.interrupted
    assert len(found.efforts) < 120
    assert len(found.to_json()) == len(found.efforts)


def test_a_finer_grid_is_followed_as_far_as_it_rises() -> None:
    def ridge(point: Point, labels: int) -> ProofEffort:
        if point.ratio_step == 12:
            return ProofEffort(1000 + point.memory_step, 10, 10)
        return ProofEffort(200 if point == Point(0, 8) else 100, 10, 10)

    found = EffortMap(ridge, 100)
    found.run()
    assert found.hardest == Point(64, 12)


def test_of_equal_points_the_first_is_taken() -> None:
    found = EffortMap(lambda point, labels: SOLVED, 100)
    found.run()
    assert found.hardest == Point(0, -8)
    assert found.complete


def open_by(parts: list[int]) -> ProofEffort:
    return ProofEffort(1, 1000, 1000 - parts.pop(0))


def test_open_points_get_more_labels_until_solved_or_far_behind_the_hardest() -> None:
    # What is open, in thousandths, after a 16th, a quarter and all of the labels.
    first, second, third, fourth = (Point(0, step) for step in (-8, 0, 8, 16))
    course = {first: [9, 8, 0], second: [9, 8, 7], third: [4], fourth: [5, 4, 8]}
    limits: dict[Point, list[int]] = {}

    def measure(point: Point, labels: int) -> ProofEffort:
        limits.setdefault(point, []).append(labels)
        return open_by(course[point])

    found = EffortMap(measure, 160, most_points=4)
    found.run()
    # The first is solved in the end, so it lets nobody fall behind; the third does, early.
    assert limits == {
        first: [10, 40, 160],
        second: [10, 40, 160],
        third: [10],
        fourth: [10, 40, 160],
    }
    assert found.behind == {third}
    assert found.hardest == fourth
    assert [row["behind"] for row in found.to_json()] == [False, False, True, False]


def test_a_point_far_behind_is_not_the_hardest_however_open() -> None:
    course = {-8: [9, 2, 1], 0: [4]}
    found = EffortMap(lambda p, labels: open_by(course[p.ratio_step]), 160, most_points=2)
    found.run()
    assert found.efforts[Point(0, 0)].gap > found.efforts[Point(0, -8)].gap
    assert found.hardest == Point(0, -8)


def test_an_interrupt_keeps_the_best_so_far_and_as_many_points_find_it_again() -> None:
    top = Point(24, 8)

    def measure(point: Point, labels: int) -> ProofEffort:
        if len(interrupted.efforts) == 30:
            raise KeyboardInterrupt
        return hill(top)(point, labels)

    interrupted = EffortMap(measure, 100)
    interrupted.run()
    assert interrupted.interrupted
    assert not interrupted.complete
    again = EffortMap(hill(top), 100, most_points=30)
    again.run()
    assert not again.interrupted
    assert not again.complete
    assert list(again.efforts.items()) == list(interrupted.efforts.items())

    def at_once(point: Point, labels: int) -> ProofEffort:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EffortMap(at_once, 100).run()


def test_a_time_limit_ends_it_after_one_point_at_least() -> None:
    told: list[tuple[int, Point]] = []

    def tell(found: EffortMap) -> None:
        told.append((len(found.efforts), found.hardest))

    found = EffortMap(hill(Point(0, 0)), 100, time_limit=1e-9, progress=tell)
    found.run()
    assert found.interrupted
    assert len(found.efforts) == 1
    assert told == [(1, Point(0, -8))]


CORE = CoreProblems(stages=5, shape="narrow", labels=500)


def test_same_seed_same_problem_whatever_the_machine() -> None:
    found, problem = CORE.search(2)
    assert found.complete
    source = problem.source
    assert source is not None
    assert source["ended"] == "complete"
    assert source["measured"] == len(found.efforts)
    assert source["effort"] == found.efforts[found.hardest].to_json()
    assert max(e.rank for e in found.efforts.values()) == found.efforts[found.hardest].rank
    assert problem_digest(CORE.problem(2)) == problem_digest(problem)
    # Established once; another machine or version of a solver must not change it.
    assert problem_digest(problem) == DIGEST
    assert effort(problem, CORE.labels) == found.efforts[found.hardest]
    assert problem_digest(CoreProblems.again(source)) == DIGEST


DIGEST = "657be2b910457b15c5512d3bad334b4136db2658ba9faa7dacf5640fa4486baa"


def test_a_search_that_is_cut_short_says_so_and_can_be_repeated() -> None:
    def stop(found: EffortMap) -> None:
        if len(found.efforts) == 20:
            raise KeyboardInterrupt

    _, cut = CORE.search(2, progress=stop)
    assert cut.source is not None
    assert (cut.source["ended"], cut.source["points"]) == ("interrupted", 20)
    shorter = CoreProblems(stages=5, shape="narrow", labels=500, points=20)
    again = shorter.problem(2)
    assert again.source == {**cut.source, "ended": "points"}
    assert again.network == cut.network
    assert again.platform == cut.platform
    assert problem_digest(CoreProblems.again(cut.source)) == problem_digest(cut)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_every_shape_is_one_that_the_pivot_program_takes(shape: str) -> None:
    core = CoreProblems(stages=6, shape=shape)
    problem = core.at(0, Fraction(1, 4), Fraction(3, 2))
    trace = problem.trace
    moved = 2 * sum(trace.gap_size(gap) for gap in range(len(trace.gaps)))
    link = moved / (trace.compute_time * problem.platform.rate(Kind.OFFLOAD))
    # `x_0` never leaves the chain's memory for the last time; a chain counts all activations.
    assert Fraction(1) < link <= Fraction(3, 2)
    assert problem.platform.memory == problem.memory_at(Fraction(1, 4))
    assert effort(problem, 1000).labels >= 0


def test_what_is_wrong_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="shape must be one of"):
        CoreProblems(shape="round")
    with pytest.raises(InputError, match="labels must be at least 100"):
        CoreProblems(labels=1)
    with pytest.raises(InputError, match="seed must be at least 0"):
        CORE.search(-1)
    source = {"seed": 0, **CORE.knobs(), "memory": "1/10", "ratio": "2"}
    assert CoreProblems.again(source).source == source
    for name in ("seed", "memory", "ratio", *(item.name for item in fields(CoreProblems))):
        with pytest.raises(InputError, match=rf"source\.{name} is missing"):
            CoreProblems.again({key: value for key, value in source.items() if key != name})
    with pytest.raises(InputError, match=r"source\.ratio"):
        CoreProblems.again({**source, "ratio": "x"})
