"""Durations of transfers whose two directions slow each other down.

While one direction of the link runs, the other may be slower (`Platform.busy_bandwidth`). A
transfer takes the link from its start to its end, both whole ticks, and moves what its rate lets it
in each of them: the rate alone, or, where a transfer of the other direction takes the link, the
busy one. It ends with the first tick after which it has moved all of its bytes. The checker reads
the same definition in its own way (docs/theory/slowing-links.md).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import lcm
from typing import TypeAlias

from offcert.core.platform import Kind, Platform
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# The ticks of each transfer, by its direction and its gap.
Lasting: TypeAlias = Mapping[tuple[Kind, int], int]


def settled(problem: Problem, timed: Callable[[Lasting], Schedule]) -> Schedule:
    """Return the schedule in which transfers slow each other down as the platform says.

    The function `timed` returns a schedule in which transfers last as long as it is told, and alone
    (`Platform.transfer_time`) if it is told nothing. What starts at a time must depend only on what
    has ended by then.
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


def latest(problem: Problem, early: Schedule, timed: Callable[[Lasting], Schedule]) -> Schedule:
    """Return the latest times of a plan over a box of uncertain times.

    The problem is the slowest corner of the box, whose link slows down; `early` are the plan's
    times at the fastest corner, which are earlier at no point; `timed` is as for `settled`, of the
    slowest corner.
    """
    platform, trace = problem.platform, problem.trace
    meeting = {(each.kind, each.gap) for each in early.transfers}
    while True:
        late = timed(
            {
                (each.kind, each.gap): (
                    platform.always_busy if (each.kind, each.gap) in meeting else platform.alone
                ).transfer_time(trace.gap_size(each.gap), each.kind)
                for each in early.transfers
            }
        )
        # Those whose times can overlap with none of the other direction are never slowed down.
        now = _meeting(early, late)
        if now == meeting:
            return late
        meeting = now


def _meeting(early: Schedule, late: Schedule) -> set[tuple[Kind, int]]:
    """Return the transfers that may be under way at the same time as one of the other direction."""
    ends = {(each.kind, each.gap): each.end for each in late.transfers}
    spans = [(each.kind, each.gap, each.start) for each in early.transfers]
    found = set()
    for kind in Kind:
        others = sorted(
            (start, ends[k, gap])
            for k, gap, start in spans
            if k is not kind and start < ends[k, gap]
        )
        starts, last = [start for start, _ in others], list(accumulate((e for _, e in others), max))
        for k, gap, start in spans:
            before = bisect_left(starts, ends[k, gap]) if k is kind else 0
            if before and last[before - 1] > start:
                found.add((k, gap))
    return found


def slowed_ends(platform: Platform, jobs: Sequence[tuple[Kind, int, int]]) -> list[int]:
    """Return the ticks at which transfers end, given direction, start and bytes of each."""
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
