"""Timetables and their forecasts: valid by the checker, never better than what is optimal."""

import random
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.errors import MethodError, PlanError
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.simulate import simulate
from offcert.runtime.plan.predict import predict
from offcert.runtime.plan.timetable import Act, Action, timetable
from offcert.runtime.streaming.step_events import forecast
from support.problems.random_instances import mixed_problem, slowing
from support.runtime.captured import random_plan


def plans(seed: int):
    """Yield problems with plans that fit into them: of Belady's rule, and at random."""
    rng = random.Random(seed)
    problem = mixed_problem(seed, largest=9, smallest=2)
    with suppress(MethodError):
        yield problem, sequential(problem)
    plan = random_plan(problem.trace, rng)
    peak = predict(problem.trace, plan).peak
    memory = max(peak, problem.trace.resident_at_start)
    yield problem.with_memory(memory + rng.choice((0, 0, 3))), plan


@pytest.mark.parametrize("seed", range(300))
def test_what_is_forecast_is_a_schedule_of_the_problem(seed):
    for problem, plan in plans(seed):
        trace, limit = problem.trace, problem.platform.memory
        made = timetable(problem, plan)
        times = forecast(problem, made)
        assert check(problem, times) == []
        assert made.prediction.peak <= limit
        evicted = {move.gap for move in plan.moves if move.kind is Kind.PREFETCH}
        assert times.evicted == tuple(sorted(evicted))
        for index, actions in enumerate(made.actions):
            for action in actions:
                gap = trace.gaps[action.gap]
                if action.act is Act.AWAIT:
                    assert gap.after == index
                elif action.act is not Act.COPY_OUT:
                    assert gap.before < index <= gap.after


@pytest.mark.parametrize("seed", range(100))
def test_directions_that_slow_each_other_down_do_so_in_a_forecast(seed):
    for problem, plan in plans(seed):
        slow = slowing(problem)
        made = timetable(slow, plan)
        times = forecast(slow, made)
        assert check(slow, times) == []
        alone = replace(slow, platform=slow.platform.alone)
        busiest = replace(slow, platform=slow.platform.always_busy)
        assert forecast(alone, made).makespan <= times.makespan
        assert times.makespan <= forecast(busiest, made).makespan


def test_no_operation_of_a_forecast_ends_before_the_host_has_handed_it_over():
    trace = Trace(
        [Operation("a", 4), Operation("b", 4), Operation("c", 4)], [Tensor("x", 6, (0, 2))]
    )
    problem = Problem("three", trace, Platform(6, Fraction(2)))
    made = timetable(problem, Plan([Move(Kind.OFFLOAD, 0, 1), Move(Kind.PREFETCH, 0, 2)]))
    # `x` leaves from 4 to 7 and is back at 10, while `b` runs.
    assert forecast(problem, made).ends == (4, 11, 15)
    # The host is through with them at 1, 15 and 17: `b`, which could end at 11, ends at 15.
    assert forecast(problem, made, launches=(1, 14, 2)).ends == (4, 15, 19)
    assert forecast(problem, made, launches=(1, 14, 9)).ends == (4, 15, 24)
    assert forecast(problem, made, launches=(0, 0, 0)) == forecast(problem, made)


@pytest.mark.parametrize("seed", range(100))
def test_whatever_is_saved_later_what_is_forecast_is_a_schedule(seed):
    rng = random.Random(seed)
    for problem, plan in plans(seed):
        trace = problem.trace
        ready: dict[int, int] = {}
        for move in plan.moves:
            gap = trace.gaps[move.gap]
            if move.kind is Kind.OFFLOAD:
                # Somewhere before the gap for which it is copied.
                first = trace.tensors[gap.tensor].uses[0]
                ready[gap.tensor] = rng.randint(min(first, gap.before), gap.before)
        made = timetable(problem, plan, ready)
        assert check(problem, forecast(problem, made)) == []
        assert made.prediction.peak <= problem.platform.memory
        for index, actions in enumerate(made.actions):
            copied = [a.gap for a in actions if a.act is Act.COPY_OUT]
            assert all(ready[trace.gaps[gap].tensor] < index for gap in copied)


@pytest.mark.parametrize("seed", range(150))
def test_streams_lose_little_against_the_schedule_and_nothing_is_gained_by_waiting(seed):
    for problem, plan in plans(seed):
        try:
            schedule = simulate(problem, plan)
        except PlanError:
            continue
        times = forecast(problem, timetable(problem, schedule))
        # A claim waits at most for the end of the operation in whose midst it was planned.
        evictions = len(schedule.evicted)
        longest = max(problem.trace.durations)
        assert times.makespan <= schedule.makespan + evictions * longest


def problem(memory: int) -> Problem:
    """A tensor of 4 that is away while B runs, and one of 2 that returns while C runs."""
    operations = [Operation(name, 5, 0) for name in "ABCD"]
    tensors = [Tensor("x", 4, (0, 3)), Tensor("y", 6, (1, 2))]
    return Problem("four", Trace(operations, tensors), Platform(memory, 1))


def test_copies_releases_claims_and_waits_by_hand():
    plan = Plan([Move(Kind.OFFLOAD, 0, 1), Move(Kind.PREFETCH, 0, 3)])
    made = timetable(problem(6), plan)
    assert made.actions == (
        (),
        (Action(Act.COPY_OUT, 0), Action(Act.RELEASE, 0)),
        (),
        (Action(Act.CLAIM, 0), Action(Act.AWAIT, 0)),
    )
    times = forecast(problem(6), made)
    # The copy takes 4: B begins at 9; y dies at 19; the copy back is awaited until 23.
    assert times.starts == (0, 9, 14, 23)
    assert made.prediction.peaks == (4, 6, 6, 4)


def test_with_room_the_release_waits_and_the_claim_does_not():
    plan = Plan([Move(Kind.OFFLOAD, 0, 2), Move(Kind.PREFETCH, 0, 2)])
    made = timetable(problem(10), plan)
    # The copy ends in the midst of B, where the schedule brings it back at once.
    assert made.actions[1] == (Action(Act.COPY_OUT, 0),)
    assert made.actions[2] == (Action(Act.RELEASE, 0), Action(Act.CLAIM, 0))
    assert forecast(problem(10), made).makespan == 20


def test_a_tensor_that_is_saved_late_is_copied_late():
    plan = Plan([Move(Kind.OFFLOAD, 0, 2), Move(Kind.PREFETCH, 0, 4)])
    operations = [Operation(name, 5, 0) for name in "ABCDE"]
    tensors = [Tensor("x", 4, (0, 1, 4))]
    longer = Problem("five", Trace(operations, tensors), Platform(9, 1))
    first = [forecast(longer, timetable(longer, plan, ready)) for ready in ({}, {0: 1})]
    assert [each.transfers[0].start for each in first] == [5, 10]


def test_what_leaves_and_comes_back_at_once_while_the_link_is_late_is_copied_before_it_is_dropped():
    # By the plan of the schedule, y leaves before C; by its times, when z has come back, before D.
    operations = [Operation(name, 0, 0) for name in "ABCDE"]
    tensors = [Tensor("z", 8, (0, 4)), Tensor("y", 8, (1, 3))]
    given = Problem("late", Trace(operations, tensors), Platform(99, 1))
    schedule = Schedule(
        [0, 0, 0, 32, 32],
        [0, 0, 0, 32, 32],
        [
            Transfer(Kind.OFFLOAD, 0, 0, 8),
            Transfer(Kind.PREFETCH, 0, 8, 16),
            Transfer(Kind.OFFLOAD, 1, 16, 24),
            Transfer(Kind.PREFETCH, 1, 24, 32),
        ],
    )
    assert check(given, schedule) == []
    made = timetable(given, schedule)
    before = [action.act for row in made.actions for action in row if action.gap == 1]
    assert before == [Act.COPY_OUT, Act.RELEASE, Act.CLAIM, Act.AWAIT]
    assert check(given, forecast(given, made)) == []


def test_what_is_saved_later_than_it_is_complete_does_not_hold_up_others():
    # The schedule copies x after A; it is saved by D, when y has long come back.
    operations = [Operation(name, 5, 0) for name in "ABCDEF"]
    trace = Trace(operations, [Tensor("x", 2, (0, 3, 5)), Tensor("y", 2, (1, 4))])
    given = Problem("six", trace, Platform(99, 1))
    gap = {(g.tensor, g.before): number for number, g in enumerate(trace.gaps)}
    plan = Plan(
        [
            Move(Kind.OFFLOAD, gap[0, 3], 4),
            Move(Kind.OFFLOAD, gap[1, 1], 2),
            Move(Kind.PREFETCH, gap[1, 1], 3),
            Move(Kind.PREFETCH, gap[0, 3], 5),
        ]
    )
    made = timetable(given, plan, {0: 3, 1: 1})
    when = {(a.act, a.gap): n for n, row in enumerate(made.actions) for a in row}
    assert when[Act.COPY_OUT, gap[0, 3]] == 4
    assert when[Act.COPY_OUT, gap[1, 1]] == 2
    assert when[Act.RELEASE, gap[1, 1]] <= when[Act.CLAIM, gap[1, 1]] == 3
    assert check(given, forecast(given, made)) == []


def test_what_is_copied_after_a_tensor_was_saved_does_not_overtake_it():
    # The link is busy with w until C has saved x, for which D waits; y is large and has time.
    room = {"D": 12, "E": 32}
    operations = [Operation(name, 5, room.get(name, 0)) for name in "ABCDEFGH"]
    tensors = [Tensor("w", 10, (0, 7)), Tensor("x", 2, (1, 2, 5)), Tensor("y", 20, (0, 6))]
    given = Problem("eight", Trace(operations, tensors), Platform(32, 1))
    orders = ((0, 3), (1, 3), (2, 4)), ((1, 5), (2, 5), (0, 5))
    moves = [Move(kind, *each) for kind, order in zip(Kind, orders, strict=True) for each in order]
    schedule = simulate(given, Plan(moves))
    times = forecast(given, timetable(given, schedule, {0: 0, 1: 2, 2: 0}))
    assert times.transfers == schedule.transfers
    assert times.starts[3] == 17
    assert times.makespan == schedule.makespan == 79


def test_a_plan_that_does_not_fit_is_refused():
    plan = Plan([Move(Kind.OFFLOAD, 0, 1), Move(Kind.PREFETCH, 0, 3)])
    with pytest.raises(PlanError, match="lacks 2 bytes"):
        timetable(replace(problem(6), platform=Platform(4, 1)), plan)
