"""Gaps that need not leave, since what else leaves is enough, compiled."""

from __future__ import annotations

from offcert.core.compiled import inlined
from offcert.heuristics.joint.state import GAPS, MOVED, TURN, Work
from offcert.heuristics.joint.tables import MEMORY, Tables

# What `Work.following` says of a gap that has been left out.
_LEFT_OUT = -2


@inlined
def prune(tables: Tables, work: Work, runs: int) -> bool:
    """Leave out chosen gaps as long as everything fits, the largest first; return whether any."""
    gaps = work.facts[GAPS]
    for gap in range(gaps):
        work.following[gap] = -1
    _spare(tables, work, runs)
    found = False
    while True:
        largest, size = -1, 0
        for gap in range(gaps):
            own = tables.size[work.gap_value[gap]]
            if work.chosen[gap] and own > size and own <= _spare_over(work, gap):
                largest, size = gap, own
        if largest < 0:
            return found
        found = True
        work.chosen[largest] = 0
        work.following[largest] = _LEFT_OUT
        work.facts[MOVED] -= size
        _spare(tables, work, runs)


@inlined
def restore(tables: Tables, work: Work) -> None:
    """Choose again what has been left out."""
    for gap in range(work.facts[GAPS]):
        if work.following[gap] == _LEFT_OUT:
            work.chosen[gap] = 1
            work.facts[MOVED] += tables.size[work.gap_value[gap]]


@inlined
def _spare(tables: Tables, work: Work, runs: int) -> None:
    """Write the least memory that stays free from each run to the turn, or from it to there.

    It is written where the times of the front are found otherwise.
    """
    gaps, turn, memory = work.facts[GAPS], work.facts[TURN], tables.settings[MEMORY]
    cover = place = 0
    for run in range(turn):
        while place < gaps and work.gap_before[work.out[place]] < run:
            if work.chosen[work.out[place]]:
                cover += tables.size[work.gap_value[work.out[place]]]
            place += 1
        work.front[run] = memory + cover - work.need[run]
    for run in range(turn - 2, -1, -1):
        work.front[run] = min(work.front[run], work.front[run + 1])
    cover = place = 0
    for run in range(runs - 1, turn - 1, -1):
        while place < gaps and work.gap_after[work.back[place]] > run:
            if work.chosen[work.back[place]]:
                cover += tables.size[work.gap_value[work.back[place]]]
            place += 1
        work.front[run] = memory + cover - work.need[run]
    for run in range(turn + 1, runs):
        work.front[run] = min(work.front[run], work.front[run - 1])


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
