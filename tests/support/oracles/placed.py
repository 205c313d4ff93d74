"""Brute force: the least time of a schedule of which everything has an address, tick by tick.

It tries every set of evicted gaps, every start of every operation and of every transfer, in growing
makespan, asks the checker whether that is a schedule, and brute force whether its residences fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, combinations_with_replacement, product

from offcert.core.platform import Kind
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import placement_problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from support.oracles.placement import least_pool


def least_placed_time(problem: Problem, most: int) -> int | None:
    """Return the least makespan of a schedule with addresses; None if it is above `most`."""
    memory = problem.platform.memory
    fitting: dict[object, bool] = {}
    for makespan in range(problem.trace.compute_time, most + 1):
        for schedule in _schedules(problem, makespan):
            if check(problem, schedule):
                continue
            placing = placement_problem(problem, schedule)
            key = placing.residences
            if key not in fitting:
                fitting[key] = placing.load <= memory and least_pool(placing) <= memory
            if fitting[key]:
                return makespan
    return None


def _schedules(problem: Problem, makespan: int) -> Iterator[Schedule]:
    trace, ticks = problem.trace, problem.platform.transfer_time
    gaps = range(len(trace.gaps))
    sets = chain.from_iterable(combinations(gaps, count) for count in range(len(gaps) + 1))
    for evicted in sets:
        first: dict[int, int] = {}
        for number in evicted:
            first.setdefault(trace.gaps[number].tensor, number)
        kinds = [(Kind.OFFLOAD, number) for number in first.values()]
        kinds += [(Kind.PREFETCH, number) for number in evicted]
        lengths = [ticks(trace.gap_size(number), kind) for kind, number in kinds]
        for starts, ends in _operations(problem, makespan):
            for times in product(*(range(makespan - length + 1) for length in lengths)):
                rows = zip(kinds, times, lengths, strict=True)
                transfers = [Transfer(*kind, time, time + long) for kind, time, long in rows]
                yield Schedule(starts, ends, transfers)


def _operations(problem: Problem, makespan: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield starts and ends, the last at the makespan."""
    durations = problem.trace.durations
    idle = makespan - sum(durations)
    for waited in combinations_with_replacement(range(idle + 1), len(durations) - 1):
        starts, before = [], 0
        for wait, duration in zip((*waited, idle), durations, strict=True):
            starts.append(before + wait)
            before += duration
        ends = [start + duration for start, duration in zip(starts, durations, strict=True)]
        yield starts, ends
