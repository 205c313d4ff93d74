"""Gaps over the turn that leave, and how long a program takes with these transfers, compiled.

The schedule is ordered: every offload comes before every prefetch (``heuristics.ordered`` derives
its length), in the natural orders of the offloading paper, §4.1.
"""

from __future__ import annotations

from offcert.core.compiled import IntArray, inlined, plain
from offcert.heuristics.joint.lives import live
from offcert.heuristics.joint.state import (
    GAPS,
    LACKING,
    MOVED,
    RUNS,
    TURN,
    UNCOVERED,
    JointState,
    Scratch,
)
from offcert.heuristics.joint.tables import DUPLEX, MEMORY, Tables
from offcert.heuristics.joint.unrolling import unroll

# The length of an order that cannot be carried out within the memory. By definition.
INFEASIBLE = -1


@inlined
def order(work: Scratch, runs: int) -> None:
    """Sort the gaps: by the run before, then by that which made them; and by the run after."""
    gaps = work.facts[GAPS]
    for run in range(runs + 1):
        work.bucket[run] = -1
    # Gaps were found by decreasing start; each goes to the front of its bucket.
    for gap in range(gaps):
        place = work.gap_before[gap] + 1
        work.following[gap] = work.bucket[place]
        work.bucket[place] = gap
    _collect(work.bucket, work.following, work.out, 0, runs + 1, 1)
    for run in range(runs + 1):
        work.bucket[run] = -1
    for place in range(gaps - 1, -1, -1):
        gap = work.out[place]
        run = work.gap_after[gap]
        work.following[gap] = work.bucket[run]
        work.bucket[run] = gap
    _collect(work.bucket, work.following, work.back, runs, -1, -1)


@inlined
def _collect(
    bucket: IntArray, following: IntArray, order: IntArray, begin: int, end: int, step: int
) -> None:
    """Write the members of the buckets one after the other."""
    count = 0
    for place in range(begin, end, step):
        gap = bucket[place]
        while gap >= 0:
            order[count] = gap
            count += 1
            gap = following[gap]


@inlined
def choose(tables: Tables, work: Scratch, runs: int) -> None:
    """Choose the gaps that leave: whenever something has to be absent, the outermost that help."""
    gaps, turn, memory = work.facts[GAPS], work.facts[TURN], tables.settings[MEMORY]
    for gap in range(gaps):
        work.chosen[gap] = 0
    uncovered = lacking = 0
    cover = open_ = taken = 0
    for run in range(turn):
        while open_ < gaps and work.gap_before[work.out[open_]] < run:
            open_ += 1
        while cover < work.need[run] - memory and taken < open_:
            gap = work.out[taken]
            work.chosen[gap] = 1
            cover += tables.size[work.gap_value[gap]]
            taken += 1
        uncovered = max(uncovered, work.need[run] - memory - cover)
        lacking += max(0, work.need[run] - memory - cover)
    moved = cover
    cover = open_ = taken = 0
    for run in range(runs - 1, turn - 1, -1):
        while open_ < gaps and work.gap_after[work.back[open_]] > run:
            gap = work.back[open_]
            if work.chosen[gap]:
                cover += tables.size[work.gap_value[gap]]
            open_ += 1
        while cover < work.need[run] - memory and taken < open_:
            gap = work.back[taken]
            if not work.chosen[gap]:
                work.chosen[gap] = 1
                cover += tables.size[work.gap_value[gap]]
                moved += tables.size[work.gap_value[gap]]
            taken += 1
        uncovered = max(uncovered, work.need[run] - memory - cover)
        lacking += max(0, work.need[run] - memory - cover)
    work.facts[UNCOVERED], work.facts[MOVED] = uncovered, moved
    work.facts[LACKING] = lacking // runs


@inlined
def ordered_length(tables: Tables, work: Scratch, runs: int, memory: int) -> int:
    """Return the makespan of the ordered schedule that moves what is chosen, or `INFEASIBLE`.

    It takes at most `memory` bytes. On a duplex link it may be less than any schedule's: there what
    has to wait until the transfers of the other direction have ended is left out.
    """
    link_out = _front(tables, work, runs, memory)
    if link_out < 0:
        return INFEASIBLE
    link_back = _rear(tables, work, runs, memory)
    if link_back < 0:
        return INFEASIBLE
    makespan = 0
    for run in range(runs):
        makespan = max(makespan, work.front[run] + work.rear[run])
    if tables.settings[DUPLEX]:
        return max(makespan, link_out, link_back)
    return max(makespan, link_out + link_back)


@inlined
def _front(tables: Tables, work: Scratch, runs: int, memory: int) -> int:
    """Write when each run can start if only the offloads happen; return when the link is free."""
    gaps = work.facts[GAPS]
    time = link = cover = sent = 0
    closing = gaps - 1
    for run in range(runs):
        while closing >= 0 and work.gap_after[work.back[closing]] <= run:
            gap = work.back[closing]
            # Marked when its offload has been waited for.
            if work.chosen[gap] == 2:
                cover -= tables.size[work.gap_value[gap]]
            closing -= 1
        while cover < work.need[run] - memory:
            if sent == gaps or work.gap_before[work.out[sent]] >= run:
                return INFEASIBLE
            gap = work.out[sent]
            sent += 1
            if not work.chosen[gap]:
                continue
            link = max(link, _end(tables, work, work.gap_start[gap]))
            link += tables.offload[work.gap_value[gap]]
            time = max(time, link)
            if work.gap_after[gap] > run:
                work.chosen[gap] = 2
                cover += tables.size[work.gap_value[gap]]
        work.front[run] = time
        time += tables.duration[work.runs[run]]
    while sent < gaps:
        gap = work.out[sent]
        sent += 1
        if work.chosen[gap]:
            link = max(link, _end(tables, work, work.gap_start[gap]))
            link += tables.offload[work.gap_value[gap]]
    return link


@inlined
def _end(tables: Tables, work: Scratch, run: int) -> int:
    """Return when a run ends in the front; the run -1 is the start."""
    if run < 0:
        return 0
    return work.front[run] + tables.duration[work.runs[run]]


@inlined
def _rear(tables: Tables, work: Scratch, runs: int, memory: int) -> int:
    """Write the time from each run's start to the end if only the prefetches happen.

    In reversed time they are offloads; what opens a gap has to end before its prefetch starts.
    """
    gaps, turn = work.facts[GAPS], work.facts[TURN]
    time = link = cover = sent = timed = 0
    closing = gaps - 1
    for gap in range(gaps):
        work.chosen[gap] = min(work.chosen[gap], 1)
    for run in range(runs - 1, -1, -1):
        if run == turn - 1:
            link = _time_returns(tables, work, timed, gaps, link)
            timed = gaps
        while closing >= 0 and work.gap_before[work.out[closing]] >= run:
            gap = work.out[closing]
            if work.chosen[gap] and work.gap_before[gap] == run:
                time = max(time, work.gap_end[gap])
            if work.chosen[gap] == 2:
                cover -= tables.size[work.gap_value[gap]]
            closing -= 1
        while cover < work.need[run] - memory:
            if sent == gaps or work.gap_after[work.back[sent]] <= run:
                return INFEASIBLE
            gap = work.back[sent]
            sent += 1
            if timed < sent:
                link = _time_returns(tables, work, timed, sent, link)
                timed = sent
            if work.chosen[gap]:
                time = max(time, work.gap_end[gap])
                if work.gap_before[gap] < run:
                    work.chosen[gap] = 2
                    cover += tables.size[work.gap_value[gap]]
        time += tables.duration[work.runs[run]]
        work.rear[run] = time
    return _time_returns(tables, work, timed, gaps, link)


@inlined
def _time_returns(tables: Tables, work: Scratch, begin: int, end: int, link: int) -> int:
    """Write the reversed ends of some prefetches; return when the link is free after them."""
    for place in range(begin, end):
        gap = work.back[place]
        if work.chosen[gap]:
            link = max(link, work.rear[work.gap_after[gap]])
            link += tables.prefetch[work.gap_value[gap]]
            work.gap_end[gap] = link
    return link


# The mark in `Scratch.following` of a gap that has been left out. By definition.
_LEFT_OUT = -2


@inlined
def prune(tables: Tables, work: Scratch, runs: int) -> bool:
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
def restore(tables: Tables, work: Scratch) -> None:
    """Choose again what has been left out."""
    for gap in range(work.facts[GAPS]):
        if work.following[gap] == _LEFT_OUT:
            work.chosen[gap] = 1
            work.facts[MOVED] += tables.size[work.gap_value[gap]]


@inlined
def _spare(tables: Tables, work: Scratch, runs: int) -> None:
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
def _take(work: Scratch, gap: int, size: int, runs: int) -> None:
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
def _spare_over(work: Scratch, gap: int) -> int:
    """Return the least memory that stays free while a gap lasts."""
    turn = work.facts[TURN]
    spare = 2**60
    if work.gap_before[gap] + 1 < turn:
        spare = work.front[work.gap_before[gap] + 1]
    if work.gap_after[gap] > turn:
        spare = min(spare, work.front[work.gap_after[gap] - 1])
    return spare


# The value of a program with too many runs, or one that would read a value changed otherwise. By
# definition.
IMPOSSIBLE = 1e30


@plain
def evaluate(tables: Tables, state: JointState, work: Scratch, weight: float) -> float:
    """Return the ticks of a program, and `weight` ticks more for every byte that does not fit.

    If everything fits it is the makespan of the ordered schedule that moves what is chosen; if not,
    what that would be if there were as much more memory as is lacking, and the price of that. The
    runs, their bytes and the gaps are written on the scratch.
    """
    runs = unroll(tables, state, work)
    work.facts[RUNS] = runs
    if runs < 0 or not live(tables, state, work, runs):
        work.facts[UNCOVERED] = 2**60
        return IMPOSSIBLE
    order(work, runs)
    choose(tables, work, runs)
    if work.facts[UNCOVERED] == 0:
        length = _fitting_length(tables, work, runs)
        if length != INFEASIBLE:
            return float(length)
        work.facts[UNCOVERED] = 1
    lacking = work.facts[UNCOVERED]
    raised = ordered_length(tables, work, runs, tables.settings[MEMORY] + lacking)
    price = weight * (lacking + work.facts[LACKING])
    return price + (_length_without(tables, work, runs) if raised == INFEASIBLE else float(raised))


@inlined
def _fitting_length(tables: Tables, work: Scratch, runs: int) -> int:
    """Return the makespan with the gaps chosen, or with the fewest of them, if that is less."""
    length = ordered_length(tables, work, runs, tables.settings[MEMORY])
    compute = 0
    for run in range(runs):
        compute += tables.duration[work.runs[run]]
    if length <= compute or not prune(tables, work, runs):
        return length
    shorter = ordered_length(tables, work, runs, tables.settings[MEMORY])
    if shorter == INFEASIBLE or shorter > length:
        restore(tables, work)
        return length
    return shorter


@inlined
def _length_without(tables: Tables, work: Scratch, runs: int) -> float:
    """Return the ticks that it takes at least, whatever does not fit."""
    compute = out = back = 0
    for run in range(runs):
        compute += tables.duration[work.runs[run]]
    for gap in range(work.facts[GAPS]):
        if work.chosen[gap]:
            out += tables.offload[work.gap_value[gap]]
            back += tables.prefetch[work.gap_value[gap]]
    moving = max(out, back) if tables.settings[DUPLEX] else out + back
    return float(max(compute, moving))
