"""Bytes on the device during each run, and values that may be absent over the turn, compiled.

It is what `Strategy.without_unread` and `Strategy.expand` make of the runs, found from the end to
the beginning: then the last use of a copy is known before its first.
"""

from __future__ import annotations

from offcert.core.compiled import inlined
from offcert.heuristics.joint.state import ASKS, GAPS, PENDING, TURN, WHOLE, JointState, Scratch
from offcert.heuristics.joint.tables import OFFLOAD, Tables
from offcert.heuristics.joint.unrolling import ends_of, wait, workspace_of

# The mark of no run. By definition.
_NONE = -2
# A run after all others, so that no gap begins after it. By definition.
_NEVER = 2**40
# Columns of `Scratch.held`. By definition.
_LAST, _AFTER, _BEFORE = 0, 1, 2


@inlined
def live(tables: Tables, state: JointState, work: Scratch, runs: int) -> bool:
    """Write the bytes that each run needs on the device, and the gaps over the turn.

    A copy is there from the run that makes it to the last one that reads or holds it. Of each copy
    that is there over the turn, one gap spans it. What nobody reads is discarded, and held by
    nobody. It returns whether every run finds what it reads as in-place changes had left it.
    """
    for value in range(tables.size.size):
        _forget(work, value)
        work.gap_of[value] = -1
    for run in range(runs + 1):
        work.need[run] = work.scratch[run]
    work.facts[GAPS] = 0
    work.facts[PENDING] = work.facts[ASKS]
    turn = work.facts[TURN]
    known = tables.carrying.known[0] == 1
    begin = tables.carrying.turn[0] if known else 0
    for run in range(runs - 1, begin - 1, -1):
        computation = work.runs[run]
        if not _write(tables, state, work, computation, run):
            return False
        for place in range(tables.read_first[computation], tables.read_first[computation + 1]):
            value = tables.read[place]
            if work.changed[value] >= 0 and work.changed[value] != tables.left[place]:
                return False
            work.changed[value] = tables.found[place]
            if work.last[value] < 0:
                work.last[value] = run
            if run >= turn:
                work.after[value] = run
                if tables.found[place] != tables.left[place]:
                    # What is changed in place later would not be changed on the host.
                    work.before[value] = _NEVER
            elif work.before[value] == _NONE:
                work.before[value] = run
        for place in range(tables.hold_first[computation], tables.hold_first[computation + 1]):
            if not known or _is_held(tables, state, work, tables.hold[place], run):
                _hold(work, tables.hold[place], run, turn)
        if known:
            _hold_all(tables, work, work.event_run[run], run, turn)
            if not tables.repeatable[computation]:
                _hold_all(tables, work, work.event_end[computation], run, turn)
            _take(tables, work, run)
    if known:
        if not _forward(tables, state, work):
            return False
    else:
        for value in range(tables.size.size):
            if tables.source[value] and max(work.last[value], work.held[value, _LAST]) >= 0:
                _close(tables, state, work, value, -1)
    _accumulate(tables, work, runs)
    return True


@inlined
def _forward(tables: Tables, state: JointState, work: Scratch) -> bool:
    """Do the same for a forward pass of which it is known who uses what when.

    Programs that somebody else wrote discard nothing.
    """
    carrying = tables.carrying
    for value in range(work.ended.size):
        work.ended[value] = -1
    for value in carrying.early:
        if work.changed[value] >= 0 and work.changed[value] != carrying.early_left[value]:
            return False
        last, run = carrying.early_last[value], carrying.writer[value]
        work.held[value, _LAST] = max(work.held[value, _LAST], last)
        if last >= 0:
            work.held[value, _BEFORE] = max(work.held[value, _BEFORE], last)
        if run >= 0 and work.last[value] < 0:
            work.last[value] = run
        if run >= 0 or max(work.last[value], work.held[value, _LAST]) >= 0:
            end = max(work.last[value], work.held[value, _LAST])
            work.ended[value] = end if end > run else -1
            _close(tables, state, work, value, run)
    for run in range(carrying.turn[0]):
        freed = 0
        if work.least[run] > 0:
            for value in carrying.early:
                freed += tables.size[value] if work.ended[value] == run else 0
        workspace = workspace_of(tables, work, run, freed)
        work.need[run] += workspace
        work.need[run + 1] -= workspace
    return True


@inlined
def _take(tables: Tables, work: Scratch, run: int) -> None:
    """Count the workspace of a run, and what waits there while another one runs again for it."""
    freed = 0
    if work.facts[ASKS] > 0 or tables.carrying.more[work.runs[run]] > 0:
        freed = ends_of(tables, work, run)
        wait(tables, work, run)
    workspace = workspace_of(tables, work, run, freed)
    work.need[run] += workspace
    work.need[run + 1] -= workspace


@inlined
def _forget(work: Scratch, value: int) -> None:
    work.last[value] = -1
    work.after[value] = -1
    work.before[value] = _NONE
    work.held[value, _LAST] = -1
    work.held[value, _AFTER] = -1
    work.held[value, _BEFORE] = _NONE
    work.changed[value] = -1


@inlined
def _hold(work: Scratch, value: int, run: int, turn: int) -> None:
    """Note that a run holds a value, if it is there: that is known where it is written."""
    if work.held[value, _LAST] < 0:
        work.held[value, _LAST] = run
    if run >= turn:
        work.held[value, _AFTER] = run
    elif work.held[value, _BEFORE] == _NONE:
        work.held[value, _BEFORE] = run


@inlined
def _is_held(tables: Tables, state: JointState, work: Scratch, value: int, run: int) -> bool:
    """Return whether the code that makes a run holds a value, as the program does in its place."""
    part = work.part[run]
    if part == WHOLE or tables.carrying.lasting[value]:
        return True
    return part >= 0 and (state.first[part] <= tables.carrying.writer[value] <= state.last[part])


@inlined
def _hold_all(tables: Tables, work: Scratch, event: int, run: int, turn: int) -> None:
    """Note the events of a list; what is made beside values begins with the first run."""
    while event >= 0:
        value = work.event_value[event]
        if value >= 0:
            _hold(work, value, run, turn)
        else:
            part = -1 - value
            if not work.opened[part]:
                work.opened[part] = 1
                work.need[part // 2] += tables.carrying.beside[part]
                work.need[run + 1] -= tables.carrying.beside[part]
        event = work.event_next[event]


@inlined
def _write(tables: Tables, state: JointState, work: Scratch, computation: int, run: int) -> bool:
    """Begin the copies that a run makes; what nobody reads is discarded.

    Return whether no copy is read after changes that have not been made in it.
    """
    beside, discards = 0, False
    begin, end = tables.write_first[computation], tables.write_first[computation + 1]
    for place in range(end - 1, begin - 1, -1):
        value = tables.write[place]
        if work.changed[value] > 0:
            return False
        if work.last[value] >= 0:
            _close(tables, state, work, value, run)
        elif tables.carrying.known[0]:
            # Programs that somebody else wrote discard nothing.
            work.last[value] = run
            _close(tables, state, work, value, run)
        else:
            discards = True
            beside += tables.size[value]
    if tables.carrying.known[0]:
        # The workspace is counted once it is known which values die in the run.
        return True
    workspace = tables.workspace[computation]
    if discards:
        lean = tables.lean[computation]
        workspace = workspace + beside if lean < 0 else lean
    # Sums over runs are made in `_accumulate`.
    work.need[run] += workspace
    work.need[run + 1] -= workspace
    return True


@inlined
def _close(tables: Tables, state: JointState, work: Scratch, value: int, run: int) -> None:
    """Begin the copy of a value whose uses are known."""
    turn = work.facts[TURN]
    last = max(work.last[value], work.held[value, _LAST])
    after, before = work.after[value], work.before[value]
    if after < 0 or 0 <= work.held[value, _AFTER] < after:
        after = work.held[value, _AFTER]
    before = max(before, work.held[value, _BEFORE])
    if before == _NONE:
        before = run
    if tables.carrying.known[0] and run < turn:
        heard = _heard(tables, state, work, value)
        before = max(before, heard) if heard >= 0 else _NEVER
    size = tables.size[value]
    work.need[max(run, 0)] += size
    work.need[last + 1] -= size
    may_leave = tables.settings[OFFLOAD] and tables.evictable[value] and not state.stays[value]
    if may_leave and size > 0 and run < turn and after - before > 1:
        gap = work.facts[GAPS]
        work.gap_value[gap] = value
        work.gap_before[gap] = before
        work.gap_after[gap] = after
        work.gap_start[gap] = run
        work.gap_of[value] = gap
        work.facts[GAPS] = gap + 1
    _forget(work, value)


@inlined
def _heard(tables: Tables, state: JointState, work: Scratch, value: int) -> int:
    """Return the run at which autograd's hooks have heard of all of a value, or -1.

    They hear of what is saved outside of all segments, of what is given to the outermost, and of
    what is kept.
    """
    carrying = tables.carrying
    begin, end = carrying.storage_first[value], carrying.storage_first[value + 1]
    heard = -1
    for storage in range(begin, end):
        first = work.given[value]
        for place in range(carrying.sight_first[storage], carrying.sight_first[storage + 1]):
            computation = carrying.sight[place]
            inside = work.innermost[computation] >= 0
            stored = state.kept[computation] and not work.unread[value]
            if inside == (carrying.made[place] == 1) and (not inside or stored):
                if first < 0 or computation < first:
                    first = computation
                break
        if first < 0:
            return -1
        heard = max(heard, first)
    return heard


@inlined
def _accumulate(tables: Tables, work: Scratch, runs: int) -> None:
    total = 0
    for run in range(runs):
        total += work.need[run]
        work.need[run] = total
