"""A network in parts, between the cuts where segments may begin and end: bytes and ticks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray, compiled
from offcert.heuristics.joint.tables import NOTHING, Tables

# The most cuts: the time of the dynamic program grows with their square at least. Arbitrary.
_MOST_CUTS = 180


class Parts(NamedTuple):
    """The parts of a network before the turn: cut `p` is where part `p` begins."""

    turn: int  # The first computation that cannot run again.
    cut: IntArray
    # One entry a cut. The first computation after the turn that needs something saved before it.
    reached: IntArray
    # One entry a cut. Ticks of all computations before it, and after the one that has reached it.
    before: IntArray
    after: IntArray
    # Shape (cuts, cuts). 1 if what lies from a cut to another one may be a segment.
    may: IntArray
    # One entry a part. Ticks of its run, and of the run up to what is saved last in it.
    forward: IntArray
    needed: IntArray
    stored: IntArray  # Bytes that stay for the backward pass.
    keeping: IntArray  # Bytes of its own while it runs and keeps all.
    inputs: IntArray  # Bytes of inputs that nobody needs but a segment that begins with it.
    turning: IntArray  # Bytes of its own while the backward pass goes through it.
    gradient: IntArray  # One entry a cut. Bytes of gradients when the backward pass has reached it.
    # Shape (cuts, cuts). Of a segment from a cut to another one: bytes while it runs, and of what
    # stays at its end.
    passing: IntArray
    output: IntArray


class _Uses(NamedTuple):
    """One entry a value. Who makes it, reads it last before the turn and at all, and saves it.

    It is -1 if nobody does.
    """

    writer: IntArray
    forward: IntArray
    last: IntArray
    saver: IntArray


def parts_of(tables: Tables) -> Parts | None:
    """Return the parts of a network, or None if no segment may be in it."""
    turn = int(np.argmin(np.append(tables.repeatable, 0)))
    cut = _cuts(tables, turn)
    may = _may(tables, cut)
    if not may.any():
        return None
    uses = _uses(tables, turn)
    reached = _reached(tables, turn, cut)
    total = np.concatenate(([0], np.cumsum(tables.duration)))
    live, own = _gradients(tables, turn, uses)
    stored, keeping, inputs = (np.zeros(len(cut) - 1, np.int64) for _ in range(3))
    passing, output = (np.zeros((len(cut), len(cut)), np.int64) for _ in range(2))
    writes = (tables.write_first, tables.write)
    arrays = (tables.size, tables.workspace, *writes, tables.read_first, tables.read)
    _sweep(cut, arrays, uses, stored, keeping, inputs, passing, output)
    return Parts(
        turn,
        cut,
        reached,
        total[cut],
        total[-1] - total[reached],
        may,
        np.diff(total[cut]),
        _needed(tables, cut, total),
        stored,
        keeping,
        inputs,
        _turning(tables, cut, reached, uses, own),
        live[reached],
        passing,
        output,
    )


def _row(first: IntArray, index: int) -> slice:
    return slice(int(first[index]), int(first[index + 1]))


def _cuts(tables: Tables, turn: int) -> IntArray:
    """Return where segments may begin and end, up to the turn; of many, those of long ones."""
    if len(tables.range_first):
        longest = np.zeros(turn + 1, np.int64)
        inside = tables.range_last < turn
        first, last = tables.range_first[inside], tables.range_last[inside]
        np.maximum.at(longest, first, last - first + 1)
        np.maximum.at(longest, last + 1, last - first + 1)
        places = np.argsort(-longest, kind="stable")[:_MOST_CUTS]
        places = places[longest[places] > 0]
    else:
        places = np.linspace(0, turn, min(turn + 1, _MOST_CUTS)).astype(np.int64)
    return np.unique(np.concatenate(([0], places, [turn]))).astype(np.int64)


def _may(tables: Tables, cut: IntArray) -> IntArray:
    may = np.zeros((len(cut), len(cut)), np.int64)
    if len(tables.range_first):
        ends = tables.range_last + 1
        chosen = np.isin(tables.range_first, cut) & np.isin(ends, cut)
        first, end = (np.searchsorted(cut, e[chosen]) for e in (tables.range_first, ends))
        may[first, end] = 1
        return may
    for place, first in enumerate(cut[:-1].tolist()):
        free = (cut <= tables.beyond[first]) & (tables.blocked[cut] == tables.blocked[first])
        may[place] = free & (cut > first)
    return may


def _uses(tables: Tables, turn: int) -> _Uses:
    uses = _Uses(*(np.full(len(tables.size), -1, np.int64) for _ in range(4)))
    for each in range(len(tables.duration)):
        uses.writer[tables.write[_row(tables.write_first, each)]] = each
    for each in range(len(tables.duration)):
        read = tables.read[_row(tables.read_first, each)]
        uses.last[read] = each
        if each < turn:
            uses.forward[read] = each
            continue
        for saver in tables.trigger[_row(tables.trigger_first, each)].tolist():
            used = tables.read[_row(tables.read_first, saver)]
            own = read[(uses.writer[read] == saver) | np.isin(read, used)]
            uses.saver[own] = np.maximum(uses.saver[own], saver)
    return uses


def _reached(tables: Tables, turn: int, cut: IntArray) -> IntArray:
    count = len(tables.duration)
    reached = np.full(len(cut), count, np.int64)
    place = len(cut) - 1
    for each in range(turn, count):
        triggers = tables.trigger[_row(tables.trigger_first, each)]
        while len(triggers) and place >= 0 and triggers.min() < cut[place]:
            reached[place] = each
            place -= 1
    return reached


def _gradients(tables: Tables, turn: int, uses: _Uses) -> tuple[IntArray, IntArray]:
    """Return bytes of what the backward pass has made, before and during each computation."""
    count = len(tables.duration)
    live, own = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    change = np.zeros(count + 2, np.int64)
    made = np.flatnonzero(uses.writer >= turn)
    np.add.at(change, uses.writer[made] + 1, tables.size[made])
    np.add.at(change, np.maximum(uses.last[made], uses.writer[made]) + 1, -tables.size[made])
    live[:] = np.cumsum(change)[: count + 1]
    for each in range(turn, count):
        written = tables.write[_row(tables.write_first, each)]
        own[each] = live[each] + tables.size[written].sum() + tables.workspace[each]
    return live, own


def _needed(tables: Tables, cut: IntArray, total: IntArray) -> IntArray:
    """Return the ticks of each part up to what is saved last in it."""
    needed = np.zeros(len(cut) - 1, np.int64)
    for part, (begin, end) in enumerate(zip(cut[:-1].tolist(), cut[1:].tolist(), strict=True)):
        stops = tables.stop[begin:end]
        last = stops[stops != NOTHING].max(initial=begin - 1)
        needed[part] = total[max(begin, min(last + 1, end))] - total[begin]
    return needed


def _turning(
    tables: Tables, cut: IntArray, reached: IntArray, uses: _Uses, own: IntArray
) -> IntArray:
    """Return the bytes of each part while the backward pass goes through it.

    These are gradients, what the part has stored and is still read, and what is read of later ones.
    """
    turning = np.zeros(len(cut) - 1, np.int64)
    for part in range(len(cut) - 1):
        stored = np.flatnonzero(
            (uses.writer >= cut[part]) & (uses.writer < cut[part + 1]) & (uses.saver >= 0)
        )
        for each in range(int(reached[part + 1]), int(reached[part])):
            read = tables.read[_row(tables.read_first, each)]
            maker = uses.writer[read]
            later = tables.size[read[(maker >= cut[part + 1]) & (maker < cut[-1])]].sum()
            kept = tables.size[stored[uses.last[stored] >= each]].sum()
            turning[part] = max(turning[part], own[each] + later + kept)
    return turning


@compiled
def _sweep(
    cut: IntArray,
    arrays: tuple[IntArray, IntArray, IntArray, IntArray, IntArray, IntArray],
    uses: _Uses,
    stored: IntArray,
    keeping: IntArray,
    inputs: IntArray,
    passing: IntArray,
    output: IntArray,
) -> None:
    """Write the bytes of parts that run, and of segments that begin with them."""
    size, workspace, write_first, write, read_first, read = arrays
    turn = cut[-1]
    # When values are given up: if all is kept, in a segment, and as the inputs of another one.
    ends = np.zeros((3, turn + 1), np.int64)
    seen = np.full(size.size, -1, np.int64)
    for part in range(cut.size - 1):
        begin, end = cut[part], cut[part + 1]
        ends[:] = 0
        through = 0
        for value in range(size.size):
            if -1 < uses.writer[value] < begin <= uses.forward[value] and uses.saver[value] < 0:
                through += size[value]
                ends[0, uses.forward[value]] += size[value]
                ends[1, uses.forward[value]] += size[value]
        live = np.array([through, through, 0])
        most, place = 0, part + 1
        for each in range(begin, turn):
            for index in range(write_first[each], write_first[each + 1]):
                value = write[index]
                live += size[value]
                until = max(uses.forward[value], each)
                ends[1, until] += size[value]
                ends[2, max(each, min(uses.forward[value], uses.saver[value]))] += size[value]
                if uses.saver[value] < 0:
                    ends[0, until] += size[value]
                elif each < end:
                    stored[part] += size[value]
            most = max(most, live[1] + workspace[each])
            if each < end:
                keeping[part] = max(keeping[part], live[0] + workspace[each])
                for index in range(read_first[each], read_first[each + 1]):
                    value = read[index]
                    outside = -1 < uses.writer[value] < begin and uses.saver[value] < 0
                    if outside and seen[value] != part:
                        seen[value] = part
                        inputs[part] += size[value]
            for way in range(3):
                live[way] -= ends[way, each]
            if each + 1 == cut[place]:
                passing[part, place], output[part, place] = most, live[2]
                place += 1
