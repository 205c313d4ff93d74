"""Transfers that slow each other down: how long each lasts, for who makes schedules.

While one direction of the link runs, the other may be slower (`Platform.busy_bandwidth`). A
transfer takes the link from its start to its end, both whole ticks, and moves what its rate lets it
in each of them: the rate alone, or, where a transfer of the other direction takes the link, the
busy one. It ends with the first tick after which it has moved all of its bytes. The checker reads
the same definition in its own way (docs/theory/slowing-links.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from math import lcm
from typing import TypeAlias

from offcert.core.platform import Kind, Platform
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# The ticks of each transfer, by its direction and its gap.
Lasting: TypeAlias = Mapping[tuple[Kind, int], int]


def settled(problem: Problem, timed: Callable[[Lasting], Schedule]) -> Schedule:
    """Return the schedule in which each transfer lasts as long as the other direction lets it.

    Parameters
    ----------
    problem : Problem
        The sizes, and the rates of the link.
    timed : callable
        Returns a schedule in which transfers last as long as it is told, and alone
        (`Platform.transfer_time`) if it is told nothing. What starts at a time must depend only on
        what has ended by then.
    """
    schedule = timed({})
    while problem.platform.slows:
        moves, trace = schedule.transfers, problem.trace
        jobs = [(each.kind, each.start, trace.gap_size(each.gap)) for each in moves]
        ends = slowed_ends(problem.platform, jobs)
        if all(each.end == end for each, end in zip(moves, ends, strict=True)):
            break
        # Up to the first time at which a schedule is wrong its starts are right, so the ends are
        # right here up to that time, and the next schedule is wrong later only.
        lasts = {
            (each.kind, each.gap): end - each.start for each, end in zip(moves, ends, strict=True)
        }
        schedule = timed(lasts)
    return schedule


def slowed_ends(platform: Platform, jobs: Sequence[tuple[Kind, int, int]]) -> list[int]:
    """Return the ticks at which transfers end that start at given times.

    Parameters
    ----------
    platform : Platform
        The rates.
    jobs : sequence of (Kind, int, int)
        Direction, start and bytes of each transfer.
    """
    exact = {
        (kind, busy): platform.rate(kind, busy=busy) for kind in Kind for busy in (False, True)
    }
    scale = lcm(*(rate.denominator for rate in exact.values()))
    rates = {key: int(rate * scale) for key, rate in exact.items()}
    waiting = sorted(range(len(jobs)), key=lambda job: jobs[job][1], reverse=True)
    ends = [0] * len(jobs)
    # What each direction has moved so far, and what it will have when a transfer ends.
    moved = dict.fromkeys(Kind, 0)
    goals: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind in Kind}
    now = 0
    while waiting or any(goals.values()):
        if not any(goals.values()):
            now = jobs[waiting[-1]][1]
        while waiting and jobs[waiting[-1]][1] <= now:
            kind, _, size = jobs[waiting[-1]]
            heappush(goals[kind], (moved[kind] + size * scale, waiting.pop()))
        running = [kind for kind in Kind if goals[kind]]
        rate = {kind: rates[kind, len(running) == len(Kind)] for kind in running}
        steps = [-((moved[kind] - goals[kind][0][0]) // rate[kind]) for kind in running]
        steps += [jobs[waiting[-1]][1] - now] if waiting else []
        now += min(steps)
        for kind in running:
            moved[kind] += rate[kind] * min(steps)
            while goals[kind] and goals[kind][0][0] <= moved[kind]:
                ends[heappop(goals[kind])[1]] = now
    return ends
