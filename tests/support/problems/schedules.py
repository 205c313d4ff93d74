"""Schedules for the checkers: valid ones, and ones that were tampered with in many ways."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.simulate import simulate
from support.problems.random_instances import mixed_problem

Case = tuple[Problem, Schedule]


def cases(count: int, seed: int = 0, largest: int = 6) -> Iterator[Case]:
    """Yield so many problems with a schedule, of which about one in four is as it was simulated."""
    for index in range(count):
        rng = random.Random(seed * 1_000_003 + index)
        problem = mixed_problem(rng.randrange(10**6), largest)
        schedule = _some_schedule(rng, problem)
        for _ in range(rng.choice((0, 1, 1, 2, 5))):
            schedule = rng.choice(_DAMAGES)(rng, problem, schedule)
        if rng.random() < 0.2:
            problem = problem.with_memory(rng.randint(0, problem.trace.peak_memory))
        yield problem, schedule


def _some_schedule(rng: random.Random, problem: Problem) -> Schedule:
    """Return one that leaves early and returns at any time, or the one that always exists."""
    for _ in range(5):
        try:
            return simulate(problem, _random_plan(rng, problem))
        except PlanError:
            continue
    return simulate(problem, sequential(problem))


def _random_plan(rng: random.Random, problem: Problem) -> Plan:
    trace = problem.trace
    evicted = [gap for gap in range(len(trace.gaps)) if rng.random() < 0.7]
    first: dict[int, int] = {}
    for gap in evicted:
        first.setdefault(trace.gaps[gap].tensor, gap)
    moves = [(trace.gaps[gap].before, 0, Move(Kind.OFFLOAD, gap, 0)) for gap in first.values()]
    for gap in evicted:
        before = rng.randint(trace.gaps[gap].before + 1, trace.gaps[gap].after)
        moves.append((before, 1, Move(Kind.PREFETCH, gap, before)))
    return Plan([move for *_, move in sorted(moves, key=lambda row: row[:2])])


def _move_operation(rng: random.Random, problem: Problem, schedule: Schedule) -> Schedule:
    starts, ends = list(schedule.starts), list(schedule.ends)
    index, by = rng.randrange(len(starts)), rng.randint(-4, 4)
    for number in range(index, len(starts) if rng.random() < 0.5 else index + 1):
        starts[number] += by
        ends[number] += by
    return Schedule(starts, ends, schedule.transfers)


def _stretch_operation(rng: random.Random, problem: Problem, schedule: Schedule) -> Schedule:
    ends = list(schedule.ends)
    ends[rng.randrange(len(ends))] += rng.choice((-20, -2, -1, 1, 2, 20))
    return Schedule(schedule.starts, ends, schedule.transfers)


def _scatter_operations(rng: random.Random, problem: Problem, schedule: Schedule) -> Schedule:
    starts = [rng.randint(0, schedule.makespan) for _ in schedule.starts]
    rows = zip(starts, problem.trace.durations, strict=True)
    ends = [start + duration for start, duration in rows]
    return Schedule(starts, ends, schedule.transfers)


def _put_transfer_on_a_boundary(
    rng: random.Random, problem: Problem, schedule: Schedule
) -> Schedule:
    """Ties in time are where checkers err."""
    instants = [*schedule.starts, *schedule.ends, *(t.end for t in schedule.transfers)]

    def change(transfer: Transfer) -> Transfer:
        start = rng.choice(instants)
        return replace(transfer, start=start, end=start + transfer.end - transfer.start)

    return _edit(rng, schedule, change)


def _shift_transfer(rng: random.Random, problem: Problem, schedule: Schedule) -> Schedule:
    by = rng.randint(-3, 3)
    return _edit(rng, schedule, lambda t: replace(t, start=t.start + by, end=t.end + by))


def _stretch_transfer(rng: random.Random, problem: Problem, schedule: Schedule) -> Schedule:
    return _edit(rng, schedule, lambda t: replace(t, end=t.end + rng.choice((-1, 1, 5))))


def _other_gap(rng: random.Random, problem: Problem, schedule: Schedule) -> Schedule:
    gap = rng.randint(-1, len(problem.trace.gaps))
    return _edit(rng, schedule, lambda t: replace(t, gap=gap))


def _turn_around(rng: random.Random, problem: Problem, schedule: Schedule) -> Schedule:
    other = {Kind.OFFLOAD: Kind.PREFETCH, Kind.PREFETCH: Kind.OFFLOAD}
    return _edit(rng, schedule, lambda t: replace(t, kind=other[t.kind]))


def _edit(
    rng: random.Random, schedule: Schedule, change: Callable[[Transfer], Transfer]
) -> Schedule:
    transfers = list(schedule.transfers)
    if transfers:
        index = rng.randrange(len(transfers))
        transfers[index] = change(transfers[index])
    return Schedule(schedule.starts, schedule.ends, transfers)


def _drop(rng: random.Random, problem: Problem, schedule: Schedule) -> Schedule:
    """Forget a gap's transfers, or only one of them."""
    if not schedule.transfers:
        return schedule
    victim = rng.choice(schedule.transfers)
    both = rng.random() < 0.7
    kept = [t for t in schedule.transfers if t != victim and not (both and t.gap == victim.gap)]
    return Schedule(schedule.starts, schedule.ends, kept)


def _double(rng: random.Random, problem: Problem, schedule: Schedule) -> Schedule:
    again = rng.sample(schedule.transfers, min(1, len(schedule.transfers)))
    return Schedule(schedule.starts, schedule.ends, [*schedule.transfers, *again])


def _no_integer(rng: random.Random, problem: Problem, schedule: Schedule) -> Schedule:
    if schedule.transfers and rng.random() < 0.5:
        return _edit(rng, schedule, lambda t: replace(t, start=float(t.start)))  # type: ignore[arg-type]
    return Schedule((float(schedule.starts[0]), *schedule.starts[1:]), schedule.ends, ())  # type: ignore[arg-type]


_COMMON = (_move_operation, _put_transfer_on_a_boundary, _shift_transfer)
_DAMAGES = (
    *(3 * _COMMON),
    _stretch_operation,
    _scatter_operations,
    _stretch_transfer,
    _other_gap,
    _turn_around,
    _drop,
    _double,
    _no_integer,
)
