"""The runs of a program, compiled: what `Program.strategy` returns, a thousand times faster."""

from __future__ import annotations

from offcert.core.compiled import inlined
from offcert.heuristics.joint.events import forget_events, note_events
from offcert.heuristics.joint.state import ASKS, LINE, PENDING, TURN, JointState, Scratch
from offcert.heuristics.joint.tables import LONGEST, NOTHING, Tables

# A column of `Scratch.held`. By definition.
_LAST = 0
# Columns of `Carrying.asks`, by definition; those of `left` and `most` are two further on if a
# value does not die on the way.
_SAVER, _LEFT, _MOST, _OTHERWISE = 0, 1, 2, 2


@inlined
def forget_asks(work: Scratch) -> None:
    """Begin without anything that is asked for."""
    work.facts[ASKS] = 0
    for run in range(work.least.size):
        work.least[run] = 0
    for value in range(work.ended.size):
        work.ended[value] = -1


@inlined
def note_ask(
    tables: Tables, state: JointState, work: Scratch, computation: int, segment: int, begin: int
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
def note_asking(work: Scratch, run: int) -> None:
    """Note which run has asked for what has run again last."""
    ask = work.facts[ASKS] - 1
    while ask >= 0 and work.ask_run[ask] < 0:
        work.ask_run[ask] = run
        ask -= 1


@inlined
def _end(tables: Tables, work: Scratch, value: int, run: int) -> int:
    """Note that a value dies in a run if it does; return its bytes if that is new."""
    if work.ended[value] != run and max(work.last[value], work.held[value, _LAST]) == run:
        work.ended[value] = run
        return int(tables.size[value])
    return 0


@inlined
def ends_of(tables: Tables, work: Scratch, run: int) -> int:
    """Note the values that die in a run, of those it reads and holds, and return their bytes."""
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
def more_of(tables: Tables, work: Scratch, run: int) -> int:
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
def wait(tables: Tables, work: Scratch, run: int) -> None:
    """Count the bytes a run has made that wait while another one runs again for it.

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
def workspace_of(tables: Tables, work: Scratch, run: int, freed: int) -> int:
    """Return the bytes a run takes beside the values that are there before and after it."""
    workspace = tables.workspace[work.runs[run]] + more_of(tables, work, run)
    return int(max(workspace, work.least[run] - freed))


# Phases of a segment: inside of one that has not run again yet, waiting, and run again. By
# definition.
_INSIDE, _WAITING, _DONE = 0, 1, 2


@inlined
def unroll(tables: Tables, state: JointState, work: Scratch) -> int:
    """Write the runs of a program; return their number, or -1 if there are too many.

    It is -1 as well if something is kept that is changed in place where the segment is over, or a
    segment of a recorded step takes memory although it never runs again.

    Segments run again when something that cannot run again needs what was saved in them, those
    inside of them after that; see `offcert.core.program`.
    """
    if not _prepare(tables, state, work):
        return -1
    known = tables.carrying.known[0] == 1
    if known:
        forget_events(tables, state, work)
        forget_asks(work)
    longest = tables.settings[LONGEST]
    stamp = state.number[0]
    runs, turn = 0, -1
    before, end, told = -1, -1, -1
    for computation in range(tables.duration.size):
        if not tables.repeatable[computation]:
            while True:
                segment = _needed(tables, state, work, computation)
                if segment < 0:
                    break
                stamp = _release(state, work, segment, stamp)
                begin = runs
                stop, last_saved = _stop(tables, state, work, segment)
                runs = _again(state, work, segment, stop, runs)
                # If it runs right after what is around it, that one has been told first.
                if not (end == begin and work.parent[segment] == before):
                    told = begin
                spans = (begin, runs, begin - int(told < begin))
                if known and not note_events(tables, state, work, segment, last_saved, spans):
                    return -1
                if known:
                    note_ask(tables, state, work, computation, segment, begin)
                before, end = segment, runs
                if runs + tables.duration.size >= longest:
                    return -1
            if turn < 0:
                turn = runs
            if known:
                note_asking(work, runs)
        work.runs[runs] = computation
        runs += 1
    work.facts[TURN] = runs if turn < 0 else turn
    return -1 if known and _in_vain(state, work) else runs


@inlined
def _in_vain(state: JointState, work: Scratch) -> bool:
    """Return whether an outermost segment, or one in which something is kept, never runs again."""
    for segment in range(state.number[0]):
        if work.phase[segment] != _DONE:
            if work.parent[segment] < 0:
                return True
            for computation in range(state.first[segment], state.last[segment] + 1):
                if work.innermost[computation] == segment and state.kept[computation]:
                    return True
    return False


@inlined
def _prepare(tables: Tables, state: JointState, work: Scratch) -> bool:
    """Find which segments lie in which; the outermost ones wait, in their order.

    Return whether all that is kept lies in a segment together with all that changes it in place.
    """
    for computation in range(work.innermost.size):
        work.innermost[computation] = -1
    for segment in range(state.number[0]):
        above = segment - 1
        while above >= 0 and state.last[above] < state.first[segment]:
            above = work.parent[above]
        work.parent[segment] = above
        work.phase[segment] = _WAITING if above < 0 else _INSIDE
        work.stamp[segment] = segment
        for computation in range(state.first[segment], state.last[segment] + 1):
            work.innermost[computation] = segment
            if state.kept[computation] and last_of_group(tables, computation) > state.last[segment]:
                return False
    return True


@inlined
def last_of_group(tables: Tables, computation: int) -> int:
    """Return the last computation of those that run again together with one."""
    return int(tables.group[tables.group_first[computation + 1] - 1])


@inlined
def _needed(tables: Tables, state: JointState, work: Scratch, computation: int) -> int:
    """Return the segment that waits longest of those in which something was saved, or -1."""
    found = -1
    for place in range(tables.trigger_first[computation], tables.trigger_first[computation + 1]):
        trigger = tables.trigger[place]
        if tables.by_writer[computation] and state.kept[trigger]:
            continue
        segment = work.innermost[trigger]
        while segment >= 0 and work.phase[segment] != _WAITING:
            segment = work.parent[segment]
        if segment >= 0 and (found < 0 or work.stamp[segment] < work.stamp[found]):
            found = segment
    return found


@inlined
def _release(state: JointState, work: Scratch, segment: int, stamp: int) -> int:
    """Let the segments inside of a segment wait; return the next stamp."""
    work.phase[segment] = _DONE
    inside = segment + 1
    while inside < state.number[0] and state.first[inside] <= state.last[segment]:
        if work.parent[inside] == segment:
            work.phase[inside] = _WAITING
            work.stamp[inside] = stamp
            stamp += 1
        inside += 1
    return stamp


@inlined
def _stop(tables: Tables, state: JointState, work: Scratch, segment: int) -> tuple[int, int]:
    """Return the last computation that runs again so that all that is saved in a segment is there.

    And twice the computation in which the last is saved, and 1 more if it is over then.
    """
    for computation in range(state.last[segment], state.first[segment] - 1, -1):
        if tables.stop[computation] != NOTHING:
            stop, last_saved = tables.stop[computation], 2 * computation
            inside = work.innermost[computation]
            while inside != segment:
                # Of a segment inside, only its inputs are saved.
                stop, last_saved = state.first[inside] - 1, 2 * state.first[inside] - 1
                inside = work.parent[inside]
            return stop, last_saved
    return NOTHING, -1


@inlined
def _again(state: JointState, work: Scratch, segment: int, stop: int, runs: int) -> int:
    """Run a segment again, up to the last computation that has to."""
    for computation in range(state.first[segment], min(stop, state.last[segment]) + 1):
        if not state.kept[computation]:
            if runs >= work.runs.size - 1:
                return runs
            work.runs[runs] = computation
            runs += 1
    return runs
