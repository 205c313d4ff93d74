"""Bytes of operations beside the network's when parts of a step run again, compiled.

The rules are those of `offcert.core.carried.inside`.
"""

from __future__ import annotations

from offcert.core.compiled import inlined
from offcert.heuristics.joint.state import ASKS, LINE, PENDING, JointState, Work
from offcert.heuristics.joint.tables import Tables

# A column of `Work.held`. By definition.
_LAST = 0
# Columns of `Carrying.asks`, by definition; those of `left` and `most` are two further on if a
# value does not die on the way.
_SAVER, _LEFT, _MOST, _OTHERWISE = 0, 1, 2, 2


@inlined
def forget_asks(work: Work) -> None:
    """Begin without anything that is asked for."""
    work.facts[ASKS] = 0
    for run in range(work.least.size):
        work.least[run] = 0
    for value in range(work.ended.size):
        work.ended[value] = -1


@inlined
def note_ask(
    tables: Tables, state: JointState, work: Work, computation: int, segment: int, begin: int
) -> None:
    """Note how a computation asks for what a segment has saved, that runs again before it."""
    carrying = tables.carrying
    for row in range(carrying.ask_first[computation], carrying.ask_first[computation + 1]):
        if state.first[segment] <= carrying.asks[row, _SAVER] <= state.last[segment]:
            ask = work.facts[ASKS]
            work.ask_row[ask], work.ask_begin[ask], work.ask_run[ask] = row, begin, -1
            work.facts[ASKS] = ask + 1
            return


@inlined
def note_asking(work: Work, run: int) -> None:
    """Note which run has asked for what has run again last."""
    ask = work.facts[ASKS] - 1
    while ask >= 0 and work.ask_run[ask] < 0:
        work.ask_run[ask] = run
        ask -= 1


@inlined
def _end(tables: Tables, work: Work, value: int, run: int) -> int:
    """Note that a value dies in a run if it does; return its bytes if that is new."""
    if work.ended[value] != run and max(work.last[value], work.held[value, _LAST]) == run:
        work.ended[value] = run
        return int(tables.size[value])
    return 0


@inlined
def ends_of(tables: Tables, work: Work, run: int) -> int:
    """Note what dies in a run, and return its bytes; what it reads and holds is noted already."""
    computation = work.runs[run]
    freed = 0
    for place in range(tables.read_first[computation], tables.read_first[computation + 1]):
        freed += _end(tables, work, tables.read[place], run)
    for place in range(tables.hold_first[computation], tables.hold_first[computation + 1]):
        freed += _end(tables, work, tables.hold[place], run)
    event = work.event_run[run]
    while event >= 0:
        if work.event_value[event] >= 0:
            freed += _end(tables, work, work.event_value[event], run)
        event = work.event_next[event]
    if not tables.repeatable[computation]:
        event = work.event_end[computation]
        while event >= 0:
            if work.event_value[event] >= 0:
                freed += _end(tables, work, work.event_value[event], run)
            event = work.event_next[event]
    return freed


@inlined
def more_of(tables: Tables, work: Work, run: int) -> int:
    """Return the bytes a run takes beside its workspace if a value does not die in its midst."""
    carrying, computation = tables.carrying, work.runs[run]
    more = carrying.more[computation]
    if more == 0 or work.part[run] == LINE:
        return int(more)
    for place in range(carrying.dying_first[computation], carrying.dying_first[computation + 1]):
        if work.ended[carrying.dying[place]] != run:
            return int(more)
    return 0


@inlined
def wait(tables: Tables, work: Work, run: int) -> None:
    """Count what a run has made before something runs again for it, and waits meanwhile.

    Runs are gone through from the last to the first.
    """
    carrying = tables.carrying
    first = last = work.facts[PENDING]
    while first > 0 and work.ask_run[first - 1] == run:
        first -= 1
    work.facts[PENDING] = first
    waits = 0
    for ask in range(first, last):
        row, before = work.ask_row[ask], work.ask_begin[ask] - 1
        column = 0
        for place in range(carrying.gone_first[row], carrying.gone_first[row + 1]):
            if work.ended[carrying.gone[place]] != run:
                column = _OTHERWISE
        left = carrying.asks[row, _LEFT + column]
        if left > waits:
            work.need[before] += left - waits
            work.need[run + 1] -= left - waits
            waits = left
        work.least[before] = max(work.least[before], carrying.asks[row, _MOST + column] - waits)


@inlined
def workspace_of(tables: Tables, work: Work, run: int, freed: int) -> int:
    """Return the bytes a run takes beside the values that are there before and after it."""
    workspace = tables.workspace[work.runs[run]] + more_of(tables, work, run)
    return int(max(workspace, work.least[run] - freed))
