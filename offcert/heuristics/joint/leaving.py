"""The choice of gaps over the turn that leave, and the time that everything takes then, compiled.

The schedule is ordered: every offload comes before every prefetch (``heuristics.ordered`` derives
its length), in the natural orders of the offloading paper, §4.1.
"""

from __future__ import annotations

from offcert.core.compiled import IntArray, inlined
from offcert.heuristics.joint.state import GAPS, LACKING, MOVED, TURN, UNCOVERED, Scratch
from offcert.heuristics.joint.tables import DUPLEX, MEMORY, Tables

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
