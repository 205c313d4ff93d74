"""Shorter residences: as short as an order allows, valid, and nothing meets that did not before."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise, product

import pytest

from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.placement import shortening
from offcert.formulations.placement.shortening import shortened
from offcert.questions.placement.problem import Residence
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import placement_problem, residences
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.simulate import simulate
from support.problems.placements import scheduled


def stays(problem: Problem, schedule: Schedule) -> list[Residence]:
    return [residence for _, residence in residences(problem.trace, schedule)]


def area(problem: Problem, schedule: Schedule) -> int:
    """Return bytes times ticks, of everything that is kept."""
    return sum(each.size * (each.end - each.start) for each in stays(problem, schedule))


@pytest.mark.slow
def test_random_schedules_stay_valid_and_only_what_met_meets() -> None:
    changed = again = 0
    for certificate in scheduled(500, 11, 7):
        problem, given = certificate.executed, certificate.result.schedule
        assert isinstance(given, Schedule)
        tight = problem.with_memory(placement_problem(problem, given).load)
        assert not check(tight, given)
        found = shortened(tight, given)
        assert not check(tight, found)
        assert found.makespan == given.makespan
        before, after = stays(tight, given), stays(tight, found)
        assert [(r.name, r.size) for r in before] == [(r.name, r.size) for r in after]
        for one, other in combinations(range(len(before)), 2):
            assert before[one].meets(before[other]) or not after[one].meets(after[other])
        changed += found != given
        evicted = [problem.trace.gaps[gap].tensor for gap in given.evicted]
        again += found != given and len(set(evicted)) < len(evicted)
        if 0 not in problem.trace.durations:
            # Otherwise moments are not ticks.
            assert area(tight, found) <= area(tight, given)
    assert changed > 80
    assert again > 3


def every(problem: Problem, given: Schedule) -> list[Schedule]:
    """Return every schedule of the same makespan, order and transfers, by trying all times."""
    latest = given.makespan
    durations = problem.trace.durations
    found = []
    for starts in product(range(latest + 1), repeat=len(durations)):
        ends = [start + length for start, length in zip(starts, durations, strict=True)]
        late = any(end > start for end, start in zip(ends[:-1], starts[1:], strict=True))
        if late or ends[-1] != latest:
            continue
        for times in product(range(latest), repeat=len(given.transfers)):
            transfers = [
                Transfer(each.kind, each.gap, time, time + each.end - each.start)
                for each, time in zip(given.transfers, times, strict=True)
            ]
            schedule = Schedule(starts, ends, transfers)
            if keeps_order(problem, given, transfers, schedule) and not check(problem, schedule):
                found.append(schedule)
    return found


def keeps_order(
    problem: Problem, given: Schedule, transfers: list[Transfer], new: Schedule
) -> bool:
    """Return whether what came before what takes memory, or before on its link, still does."""

    def events(of: Schedule, moves: list[Transfer]) -> tuple[list[int], list[int]]:
        offloads = [each.end for each in moves if each.kind is Kind.OFFLOAD]
        prefetches = [each.start for each in moves if each.kind is Kind.PREFETCH]
        return [*of.ends, *offloads], [*of.starts, *prefetches]

    released, taken = events(given, list(given.transfers))
    released_now, taken_now = events(new, transfers)
    return all(
        now <= then
        for (was, now), (start, then) in product(
            zip(released, released_now, strict=True), zip(taken, taken_now, strict=True)
        )
        if was <= start
    ) and all(
        first.end <= second.start
        for first, second in pairwise(transfers)
        if not problem.platform.duplex or first.kind is second.kind
    )


@pytest.mark.parametrize("link", Link)
@pytest.mark.parametrize("idle", [1, 2])
def test_nothing_shorter_has_the_same_order(link: Link, idle: int) -> None:
    operations = [Operation("a", 1, 2), Operation("b", 2), Operation("c", 1, 1), Operation("d", 1)]
    tensors = [Tensor("x", 2, (0, 3)), Tensor("y", 3, (1, 2)), Tensor("z", 1, (-1, 1, 3))]
    problem = Problem("tiny", Trace(operations, tensors), Platform(9, Fraction(1), link))
    plan = Plan([Move(Kind.OFFLOAD, 0, 2), Move(Kind.PREFETCH, 0, 2)])
    given = simulate(problem, plan)
    starts = [*given.starts[:3], given.starts[3] + idle]
    given = Schedule(starts, [*given.ends[:3], starts[3] + 1], given.transfers)
    assert not check(problem, given)
    least = min(area(problem, each) for each in every(problem, given))
    found = shortened(problem, given)
    assert area(problem, found) == least < area(problem, given)


def test_what_the_solver_may_not_return_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace([Operation("a", 1), Operation("b", 1)], [Tensor("x", 1, (0, 1))])
    problem = Problem("two", trace, Platform(1, Fraction(1)))
    given = Schedule([0, 3], [1, 4], [])
    assert shortened(problem, given).starts == (2, 3)
    solve = shortening.run_linprog

    def off(*arguments: object, **options: object) -> object:
        answer = solve(*arguments, **options)  # type: ignore[arg-type]
        answer.x = answer.x + 0.6
        return answer

    monkeypatch.setattr(shortening, "run_linprog", off)
    assert shortened(problem, given) == given
