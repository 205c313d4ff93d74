"""The state that the search changes, the program it stands for, and the evaluation's scratch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray, inlined
from offcert.core.program import Program, Segment
from offcert.heuristics.joint.tables import LONGEST, Tables

# Columns of `Scratch.facts`, by definition:
TURN = 0  # the first run of what cannot run again
RUNS = 1  # the number of runs
GAPS = 2  # the number of gaps over the turn
UNCOVERED = 3  # the most bytes that do not fit at a run
MOVED = 4  # bytes that leave
LACKING = 5  # bytes that do not fit at a run, on average
EVENTS = 6  # the number of entries in the lists of events
ASKS = 7  # how often something is asked to run again
PENDING = 8  # how many of those are not counted yet
# The number of these columns. By definition.
FACTS = 9

# Marks in `Scratch.part` of runs that are no other run of a segment: the first run of its
# computation (WHOLE), or a run in a line (LINE). By definition.
WHOLE, LINE = -1, -2

# Events that `Scratch` has room for, for each computation and value. Arbitrary: a program with more
# is not looked at.
_MOST_EVENTS = 12


class JointState(NamedTuple):
    """Segments, what is kept in them, and what may not move."""

    number: IntArray  # Shape (1,). Number of segments.
    # Their first and last computations, by increasing first and decreasing last one: a segment
    # comes before those inside of it. No two overlap unless one is inside of the other.
    first: IntArray
    last: IntArray
    # One entry a computation. 1 if it does not run again in the innermost segment that holds it.
    kept: IntArray
    stays: IntArray  # One entry a value. 1 if it may not leave.

    def copy(self) -> JointState:
        """Return a copy."""
        return JointState(*(array.copy() for array in self))


class Scratch(NamedTuple):
    """Scratch of the evaluation; what it says of the last program is described where it is made."""

    # Of `unrolling`.
    parent: IntArray
    innermost: IntArray
    phase: IntArray
    stamp: IntArray
    runs: IntArray  # The computation of each run.
    # Of `lives`.
    last: IntArray
    after: IntArray
    before: IntArray
    held: IntArray
    # What is held at a run, or at a computation that cannot run again, beyond its uses: lists of
    # values; ``-1 - p`` stands for part `p` of `Carrying.beside`.
    event_run: IntArray
    event_end: IntArray
    event_next: IntArray
    event_value: IntArray
    # One entry a run. The segment of which it is another run, `LINE` if that is a line, and
    # otherwise `WHOLE`.
    part: IntArray
    # One entry a value. By how many changes in place it has to be changed already, or -1 if nobody
    # cares.
    changed: IntArray
    # One entry a value. The run at which autograd's hooks hear of it as the input of a segment, or
    # -1.
    given: IntArray
    unread: IntArray  # One entry a value. 1 if it is kept, and nobody needs it.
    # One entry a segment. For those in no other, bytes of what is handed out in the place of such
    # values.
    stand_in: IntArray
    # One entry a run. Bytes of that which are there from then on, less those that are gone.
    scratch: IntArray
    opened: IntArray  # One entry for each of `Carrying.beside`. Whether that is counted already.
    # Of what runs again, in order: the row of `Carrying.asks` that says how it is asked for, its
    # first run, and the run that asks.
    ask_row: IntArray
    ask_begin: IntArray
    ask_run: IntArray
    # One entry a run. Bytes that it takes at least beside what stays, if what dies in it were dead
    # already.
    least: IntArray
    # One entry a value. The last run of the copy that is looked at, as far as that is known.
    ended: IntArray
    need: IntArray  # One entry a run. Bytes on the device during it if nothing leaves.
    # One entry a gap. The value, the runs between which it may be absent, the run that made it (-1
    # if it is there at the start), and whether it leaves.
    gap_value: IntArray
    gap_before: IntArray
    gap_after: IntArray
    gap_start: IntArray
    chosen: IntArray
    gap_of: IntArray  # One entry a value. Its gap, or -1.
    # The gaps in the order in which they leave, and in the reverse of that of their return.
    out: IntArray
    back: IntArray
    # Of `moving`.
    bucket: IntArray
    following: IntArray
    # Ticks from the start to each run, and from its start to the end; ends of transfers.
    front: IntArray
    rear: IntArray
    gap_end: IntArray
    facts: IntArray  # Numbers about the last program: its columns are `TURN` to `PENDING`.


# Arrays with an entry for each segment there can be, each run, and each value; others have one for
# each gap there can be, unless `new_work` says another number.
_OF_SEGMENTS = ("parent", "phase", "stamp", "stand_in", "ask_row", "ask_begin", "ask_run")
_OF_RUNS = ("event_run", "part", "scratch", "least", "need", "bucket", "front", "rear")
_OF_VALUES = ("last", "after", "before", "changed", "given", "unread", "ended", "gap_of")


def new_state(tables: Tables) -> JointState:
    """Return the state in which everything runs once and may leave."""
    computations, values = len(tables.duration), len(tables.size)
    # Segments that are inside of each other all differ: there are fewer than twice as many as ends.
    segments = 2 * computations + 2
    return JointState(
        np.zeros(1, dtype=np.int64),
        np.zeros(segments, dtype=np.int64),
        np.zeros(segments, dtype=np.int64),
        tables.frozen.copy(),
        np.zeros(values, dtype=np.int64),
    )


def new_work(tables: Tables) -> Scratch:
    """Return scratch for one thread."""
    computations, values = len(tables.duration), len(tables.size)
    segments, runs = 2 * computations + 2, int(tables.settings[LONGEST])
    events = _MOST_EVENTS * (computations + values) if tables.carrying.known[0] else 1
    sizes = dict.fromkeys(Scratch._fields, values + 1)
    sizes |= dict.fromkeys(_OF_SEGMENTS, segments) | dict.fromkeys(_OF_RUNS, runs + 2)
    sizes |= {"runs": runs, "innermost": computations + 1, "event_end": computations + 1}
    sizes |= {"event_next": events, "event_value": events, "opened": 2 * computations}
    sizes |= dict.fromkeys(_OF_VALUES, values) | {"facts": FACTS}
    arrays = {name: np.zeros(size, dtype=np.int64) for name, size in sizes.items()}
    arrays["part"] += WHOLE
    return Scratch(**arrays | {"held": np.zeros((values, 3), dtype=np.int64)})


@inlined
def range_of(tables: Tables, first: int, last: int) -> int:
    """Return the number of a range, or -1."""
    place = np.searchsorted(tables.range_first, first)
    while place < tables.range_first.size and tables.range_first[place] == first:
        if tables.range_last[place] == last:
            return int(place)
        place += 1
    return -1


@inlined
def allowed(tables: Tables, first: int, last: int) -> bool:
    """Return whether a range may be a segment."""
    if not 0 <= first <= last < tables.duration.size or last >= tables.beyond[first]:
        return False
    if tables.blocked[first] != tables.blocked[last + 1]:
        return False
    return tables.range_first.size == 0 or range_of(tables, first, last) >= 0


@inlined
def assign(state: JointState, other: JointState) -> None:
    """Make a state the same as another."""
    count = other.number[0]
    state.number[0] = count
    for index in range(count):
        state.first[index] = other.first[index]
        state.last[index] = other.last[index]
    for index in range(other.kept.size):
        state.kept[index] = other.kept[index]
    for index in range(other.stays.size):
        state.stays[index] = other.stays[index]


def program_of(state: JointState) -> Program:
    """Return the program that a state stands for."""
    count = int(state.number[0])
    spans = [(int(state.first[i]), int(state.last[i])) for i in range(count)]
    kept = {int(each) for each in np.flatnonzero(state.kept)}
    return Program(_nested(spans, kept))


def _nested(spans: list[tuple[int, int]], kept: set[int]) -> list[Segment]:
    """Return the outermost of some segments, with the others inside of them."""
    segments = []
    index = 0
    while index < len(spans):
        first, last = spans[index]
        end = index + 1
        while end < len(spans) and spans[end][0] <= last:
            end += 1
        inner = _nested(spans[index + 1 : end], kept)
        covered = {each for span in inner for each in range(span.first, span.last + 1)}
        own = sorted(kept.intersection(range(first, last + 1)) - covered)
        segments.append(Segment(first, last, tuple(own), tuple(inner)))
        index = end
    return segments


def with_segments(tables: Tables, segments: Sequence[tuple[int, int]]) -> JointState:
    """Return the state in which segments run again and none of their computations is kept.

    Each segment is given by its first and last computation; one inside of another comes after it.
    """
    state = new_state(tables)
    for index, (first, last) in enumerate(segments):
        state.first[index], state.last[index] = first, last
    state.number[0] = len(segments)
    return state


def state_of(program: Program, tables: Tables) -> JointState | None:
    """Return the state that stands for a program, or None if there is none.

    What is kept is kept in the innermost segment; what runs again together is kept together, and
    segments are among the ranges.
    """
    state = new_state(tables)

    def add(segments: tuple[Segment, ...]) -> bool:
        for segment in segments:
            index = int(state.number[0])
            if not may_be(tables, segment.first, segment.last) or index >= len(state.first):
                return False
            state.first[index], state.last[index] = segment.first, segment.last
            state.number[0] += 1
            state.kept[list(segment.kept)] = 1
            if not add(segment.inner):
                return False
        return True

    if not add(program.segments):
        return None
    for place in range(int(state.number[0])):
        for computation in range(state.first[place], state.last[place] + 1):
            row = slice(tables.group_first[computation], tables.group_first[computation + 1])
            if len(set(state.kept[tables.group[row]].tolist())) > 1:
                return None
    return state


def may_be(tables: Tables, first: int, last: int) -> bool:
    """Say the same as `allowed`, without compiling that for Python."""
    if not 0 <= first <= last < len(tables.duration) or last >= tables.beyond[first]:
        return False
    here = tables.range_last[tables.range_first == first]
    apart = tables.blocked[first] != tables.blocked[last + 1]
    return not apart and (not len(tables.range_first) or last in here.tolist())
