"""Values that training holds beyond their uses when segments run again, compiled.

The rules are those of `offcert.core.carried.carry`: inputs of a segment stay from its run to the
last computation that needs something saved in it; what is kept in it is handed out when it runs
again, and stays until then; variables of the program hold what is made in the segment, and what
cannot leave as long as in the first run. In a line only the call that runs holds anything.
"""

from __future__ import annotations

from offcert.core.compiled import inlined
from offcert.heuristics.joint.state import EVENTS, LINE, WHOLE, JointState, Scratch, range_of
from offcert.heuristics.joint.tables import Tables


@inlined
def forget_events(tables: Tables, state: JointState, work: Scratch) -> None:
    """Begin without events; note what is given to the outermost segments."""
    work.facts[EVENTS] = 0
    for run in range(work.event_run.size):
        work.event_run[run] = -1
        work.part[run] = WHOLE
        work.scratch[run] = 0
    for computation in range(work.event_end.size):
        work.event_end[computation] = -1
    for value in range(work.given.size):
        work.given[value] = -1
    for computation in range(work.opened.size):
        work.opened[computation] = 0
    for segment in range(state.number[0]):
        if work.parent[segment] >= 0:
            continue
        number = range_of(tables, state.first[segment], state.last[segment])
        if number < 0:
            continue
        begin, end = tables.carrying.input_first[number], tables.carrying.input_first[number + 1]
        for place in range(begin, end):
            value = tables.carrying.input[place]
            if work.given[value] < 0:
                work.given[value] = max(0, state.first[segment] - 1)
    _find_unread(tables, state, work)


@inlined
def _find_unread(tables: Tables, state: JointState, work: Scratch) -> None:
    """Find the values that are kept in vain, as `offcert.core.carried.unread` does."""
    carrying = tables.carrying
    for value in carrying.unread:
        work.unread[value] = _nobody_reads(tables, state, work, value)
    for segment in range(state.number[0]):
        work.stand_in[segment] = 0
        if work.parent[segment] >= 0:
            number = range_of(tables, state.first[segment], state.last[segment])
            if number >= 0:
                begin, end = carrying.input_first[number], carrying.input_first[number + 1]
                for place in range(begin, end):
                    work.unread[carrying.input[place]] = 0
    for value in carrying.unread:
        if work.unread[value]:
            segment = _outermost(work, carrying.writer[value])
            work.stand_in[segment] = max(work.stand_in[segment], carrying.largest[value])
    for computation in range(state.kept.size):
        segment = _outermost(work, computation)
        if segment >= 0 and state.kept[computation]:
            for part in range(2 * computation, 2 * computation + 2):
                largest = max(work.stand_in[segment], carrying.unread_beside[part])
                work.stand_in[segment] = largest


@inlined
def _nobody_reads(tables: Tables, state: JointState, work: Scratch, value: int) -> bool:
    """Return whether a value is kept in a segment with all in it that reads it."""
    carrying = tables.carrying
    writer = carrying.writer[value]
    segment = _outermost(work, writer)
    if segment < 0 or not state.kept[writer]:
        return False
    for place in range(carrying.reader_first[value], carrying.reader_first[value + 1]):
        reader = carrying.reader[place]
        if reader <= state.last[segment] and not state.kept[reader]:
            return False
    return True


@inlined
def _outermost(work: Scratch, computation: int) -> int:
    """Return the segment in no other that holds a computation, or -1."""
    segment = work.innermost[computation] if computation >= 0 else -1
    while segment >= 0 and work.parent[segment] >= 0:
        segment = work.parent[segment]
    return int(segment)


@inlined
def _add(work: Scratch, value: int, run: int, computation: int) -> None:
    """Note that a value is held at a run, or at a computation if that is not -1."""
    event = work.facts[EVENTS]
    work.event_value[event] = value
    if computation >= 0:
        work.event_next[event] = work.event_end[computation]
        work.event_end[computation] = event
    else:
        work.event_next[event] = work.event_run[run]
        work.event_run[run] = event
    work.facts[EVENTS] = event + 1


@inlined
def note_events(
    tables: Tables,
    state: JointState,
    work: Scratch,
    segment: int,
    last_saved: int,
    spans: tuple[int, int, int],
) -> bool:
    """Note the values that a segment holds once it has run again; return whether there was room.

    The last is saved in the computation that is half of `last_saved`, and it is odd if that is over
    then. The spans are the first run, the one after the last, and that during which the first
    results are handed out.
    """
    carrying = tables.carrying
    begin, end, told = spans
    first, last = state.first[segment], state.last[segment]
    number = range_of(tables, first, last)
    if number < 0:
        return True
    inputs = carrying.input_first[number + 1] - carrying.input_first[number]
    made = carrying.result_first[last + 1] - carrying.result_first[first]
    made += 2 * (last - first + 1) + tables.write_first[last + 1] - tables.write_first[first]
    if work.facts[EVENTS] + 2 * inputs + made >= work.event_value.size:
        return False
    until = carrying.end[number]
    for place in range(carrying.input_first[number], carrying.input_first[number + 1]):
        value = carrying.input[place]
        _add(work, value, begin, -1)
        if until >= 0:
            _add(work, value, begin, until)
    over = _over(tables, state, work, segment)
    line = _is_line(tables, state, work, segment)
    calls = (first, last) if line else (0, -1)
    run, lent = begin, -1
    for computation in range(first, last + 1):
        if run < end and work.runs[run] == computation:
            run += 1
        elif state.kept[computation]:
            handed = told if run == begin else run - 1
            runs = (handed, over, end)
            if _note_kept(tables, work, segment, computation, last_saved, runs, calls):
                lent = handed if lent < 0 else lent
                returned = max(handed, end - 1)
    for again in range(begin, end):
        work.part[again] = LINE if line else segment
    _note_variables(tables, work, begin, end, calls)
    if lent >= 0:
        size = work.stand_in[_outermost(work, first)]
        work.scratch[lent] += size
        work.scratch[returned + 1] -= size
    return True


@inlined
def _is_line(tables: Tables, state: JointState, work: Scratch, segment: int) -> bool:
    """Return whether its calls are made one after another when a segment runs again.

    In a line that is so of all that is more than one of its calls, which are an operation each.
    """
    several = state.first[segment] < state.last[segment]
    while segment >= 0:
        number = range_of(tables, state.first[segment], state.last[segment])
        if number >= 0 and tables.carrying.is_line[number] == 1:
            return True
        if not several:
            return False
        segment = work.parent[segment]
    return False


@inlined
def _over(tables: Tables, state: JointState, work: Scratch, segment: int) -> int:
    """Return the last computation that needs something saved in the outermost segment, or -1."""
    while work.parent[segment] >= 0:
        segment = work.parent[segment]
    number = range_of(tables, state.first[segment], state.last[segment])
    return -1 if number < 0 else int(tables.carrying.end[number])


@inlined
def _note_kept(
    tables: Tables,
    work: Scratch,
    segment: int,
    computation: int,
    last_saved: int,
    runs: tuple[int, int, int],
    calls: tuple[int, int],
) -> bool:
    """Note how long results stay: they are handed out during a run, or later if it stops before.

    Then it is until the outermost segment is over. The runs are that, the one in which that is
    over, or -1, and the one after the segment's last. Return whether anything is handed out in the
    place of what nobody needs.
    """
    run, until, end = runs
    lent = False
    carrying = tables.carrying
    own = work.innermost[computation] == segment and until >= 0
    for place in range(carrying.result_first[computation], carrying.result_first[computation + 1]):
        handed = 2 * computation + carrying.late[place] <= last_saved
        if work.unread[carrying.result[place]]:
            lent = lent or handed
        elif handed:
            _add(work, carrying.result[place], run, -1)
            # The result is in the program's variables again.
            _note_holder(tables, work, carrying.result[place], computation, (run, end), calls)
        elif own:
            _add(work, carrying.result[place], run, until)
    for part in range(2 * computation, 2 * computation + 2):
        if carrying.beside[part] > 0 and part <= last_saved:
            _add(work, -1 - part, run, -1)
        elif carrying.beside[part] > 0 and own:
            _add(work, -1 - part, run, until)
        lent = lent or (carrying.unread_beside[part] > 0 and part <= last_saved)
    return lent


@inlined
def _note_variables(
    tables: Tables, work: Scratch, begin: int, end: int, calls: tuple[int, int]
) -> None:
    """Note how long what runs again makes is held by the program's variables.

    In a line, if there is one, only until the last call that takes it has returned.
    """
    for run in range(begin, end):
        computation = work.runs[run]
        for place in range(tables.write_first[computation], tables.write_first[computation + 1]):
            _note_holder(tables, work, tables.write[place], computation, (run, end), calls)


@inlined
def _note_holder(
    tables: Tables,
    work: Scratch,
    value: int,
    computation: int,
    runs: tuple[int, int],
    calls: tuple[int, int],
) -> None:
    """Note the last run in which the program's variables hold a value that they hold since one."""
    run, end = runs
    until = tables.carrying.until[value]
    if until <= computation:
        return
    until = min(until, _returned(tables, value, computation, calls))
    holder = run
    while holder + 1 < end and work.runs[holder + 1] <= until:
        holder += 1
    if holder > run:
        _add(work, value, holder, -1)


@inlined
def _returned(tables: Tables, value: int, writer: int, calls: tuple[int, int]) -> int:
    """Return the place where a line's last call that takes a value returns, or a late one."""
    carrying = tables.carrying
    first, last = calls
    found = -1
    for place in range(carrying.take_first[value], carrying.take_first[value + 1]):
        if first < carrying.take[place] <= last:
            found = place
    return 2**40 if found < 0 else max(writer, carrying.taken[found])
