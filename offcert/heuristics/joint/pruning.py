"""Gaps that need not leave, since what else leaves is enough, compiled."""

from __future__ import annotations

from offcert.core.compiled import inlined
from offcert.heuristics.joint.state import GAPS, MOVED, TURN, Work
from offcert.heuristics.joint.tables import MEMORY, Tables

# The mark in `Work.following` of a gap that has been left out. By definition.
_LEFT_OUT = -2


@inlined
def prune(tables: Tables, work: Work, runs: int) -> bool:
    """Leave out chosen gaps as long as everything fits, the largest first; return whether any."""
    for gap in range(work.facts[GAPS]):
        work.following[gap] = -1
    _spare(tables, work, runs)
    found = False
    # Less is free after every gap that is left out: what cannot be left out now never can.
    for value in tables.by_size:
        gap, size = work.gap_of[value], tables.size[value]
        if gap < 0 or not work.chosen[gap] or size > _spare_over(work, gap):
            continue
        found = True
        work.chosen[gap] = 0
        work.following[gap] = _LEFT_OUT
        work.facts[MOVED] -= size
        _take(work, gap, size, runs)
    return found


@inlined
def restore(tables: Tables, work: Work) -> None:
    """Choose again what has been left out."""
    for gap in range(work.facts[GAPS]):
        if work.following[gap] == _LEFT_OUT:
            work.chosen[gap] = 1
            work.facts[MOVED] += tables.size[work.gap_value[gap]]


@inlined
def _spare(tables: Tables, work: Work, runs: int) -> None:
    """Write the memory that stays free, and the least from each run to the turn, or from it on.

    They are written where the times of rear and front are found otherwise.
    """
    gaps, turn, memory = work.facts[GAPS], work.facts[TURN], tables.settings[MEMORY]
    cover = place = 0
    for run in range(turn):
        while place < gaps and work.gap_before[work.out[place]] < run:
            if work.chosen[work.out[place]]:
                cover += tables.size[work.gap_value[work.out[place]]]
            place += 1
        work.rear[run] = work.front[run] = memory + cover - work.need[run]
    for run in range(turn - 2, -1, -1):
        work.front[run] = min(work.front[run], work.front[run + 1])
    cover = place = 0
    for run in range(runs - 1, turn - 1, -1):
        while place < gaps and work.gap_after[work.back[place]] > run:
            if work.chosen[work.back[place]]:
                cover += tables.size[work.gap_value[work.back[place]]]
            place += 1
        work.rear[run] = work.front[run] = memory + cover - work.need[run]
    for run in range(turn + 1, runs):
        work.front[run] = min(work.front[run], work.front[run - 1])


@inlined
def _take(work: Work, gap: int, size: int, runs: int) -> None:
    """Write that so much less is free while a gap lasts."""
    turn, before, after = work.facts[TURN], work.gap_before[gap], work.gap_after[gap]
    for run in range(before + 1, turn):
        work.rear[run] -= size
        work.front[run] -= size
    for run in range(min(before, turn - 2), -1, -1):
        least = min(work.rear[run], work.front[run + 1])
        if least == work.front[run]:
            break
        work.front[run] = least
    for run in range(turn, after):
        work.rear[run] -= size
        work.front[run] -= size
    for run in range(max(after, turn + 1), runs):
        least = min(work.rear[run], work.front[run - 1])
        if least == work.front[run]:
            break
        work.front[run] = least


@inlined
def _spare_over(work: Work, gap: int) -> int:
    """Return the least memory that stays free while a gap lasts."""
    turn = work.facts[TURN]
    spare = 2**60
    if work.gap_before[gap] + 1 < turn:
        spare = work.front[work.gap_before[gap] + 1]
    if work.gap_after[gap] > turn:
        spare = min(spare, work.front[work.gap_after[gap] - 1])
    return spare
