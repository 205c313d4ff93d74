"""Segments inside of segments: the least time of running again, by a dynamic program over ranges.

A network is cut where segments may begin and end. A part between neighbouring cuts either keeps all
that the backward pass needs of it, or begins a segment, which keeps its inputs only and is looked
at again when the backward pass comes to it, with segments inside of it. On chains this is the
program of Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, *Optimal checkpointing for
heterogeneous chains* (2019). Bytes are counted as for a chain, so on other networks they are nearly
right: what a program lacks, valued to the byte, is taken off the room at that place, and the next
program is made. What the link can move counts as room beside the memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from offcert.core.compiled import IntArray, compiled
from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.parts import Parts
from offcert.heuristics.joint.state import (
    GAPS,
    RUNS,
    TURN,
    UNCOVERED,
    JointState,
    Scratch,
    with_segments,
)
from offcert.heuristics.joint.tables import MEMORY, OFFLOAD, Tables

# Slots into which the room is divided. Arbitrary.
_SLOTS = 80
# Shares of the bytes that the link moves by a time, and of the memory, that count as room in turn;
# and programs that are made for each. Arbitrary.
_MOVED, _BESIDE, _ROUNDS = (0.25, 0.5, 0.75, 1.0), (0.1, 0.35, 1.0), 5
# The part of the memory by which the room shrinks where something is lacking, beside that, for each
# round before. Arbitrary.
_SHRINKING = 0.025
# Ticks of what does not fit, and the mark of a part that keeps all. By definition.
_NEVER, _ALL = 2**60, -1


def nested(tables: Tables, parts: Parts | None, work: Scratch) -> Iterator[JointState]:
    """Yield programs of nested segments that fit into the memory or nearly do."""
    if parts is None:
        return
    for ahead, behind in _rooms(tables, parts):
        for number in range(_ROUNDS):
            state = _program(tables, parts, ahead, behind)
            if state is None:
                break
            yield state
            evaluate(tables, state, work, 0.0)
            if work.facts[RUNS] < 0 or not work.facts[UNCOVERED]:
                break
            more = int(_SHRINKING * number * tables.settings[MEMORY])
            for room, lacking in zip((ahead, behind), _lacking(tables, parts, work), strict=True):
                room -= lacking + more * (lacking > 0)


def _rooms(tables: Tables, parts: Parts) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield bytes of room by the cut that the forward and the backward pass have come to."""
    memory = tables.settings[MEMORY]
    # What is there at the start stays for what runs again first.
    whole = np.full(len(parts.cut), memory - tables.size[tables.source == 1].sum(), np.int64)
    yield whole.copy(), whole.copy()
    if not tables.settings[OFFLOAD] or not tables.offload.sum():
        return
    sent = parts.before * (tables.size.sum() / tables.offload.sum())
    due = np.minimum(parts.after * (tables.size.sum() / max(1, tables.prefetch.sum())), sent[-1])
    for share in _MOVED:
        yield whole + (share * sent).astype(np.int64), whole + (share * due).astype(np.int64)
    for share in _BESIDE:
        more = whole + int(share * memory)
        yield more, more.copy()


def _lacking(tables: Tables, parts: Parts, work: Scratch) -> tuple[IntArray, IntArray]:
    """Return the bytes that the program valued last lacks, by cuts as those of `_rooms`."""
    count, turn = work.facts[RUNS], work.facts[TURN]
    gaps = np.flatnonzero(work.chosen[: work.facts[GAPS]])
    size = tables.size[work.gap_value[gaps]]
    absent = np.zeros(count + 1, np.int64)
    np.add.at(absent, work.gap_before[gaps] + 1, size)
    np.add.at(absent, work.gap_after[gaps], -size)
    lack = work.need[:count] - np.cumsum(absent)[:count] - tables.settings[MEMORY]
    runs = work.runs[:count]
    backward = np.flatnonzero(runs >= parts.turn)
    ahead, behind = np.zeros_like(parts.cut), np.zeros_like(parts.cut)
    for run in np.flatnonzero(lack > 0).tolist():
        if run < turn:
            part = np.searchsorted(parts.cut, runs[run], side="right") - 1
            ahead[part] = max(ahead[part], lack[run])
            continue
        # The cut that the backward pass has come to: it runs before the next backward operation.
        place = min(int(np.searchsorted(backward, run)), len(backward) - 1)
        reached = int(np.argmax(parts.reached <= runs[backward[place]]))
        at = parts.reached == parts.reached[reached]
        if runs[run] >= parts.turn:
            at = np.arange(len(at)) == max(0, reached - 1)
        behind[at] = np.maximum(behind[at], lack[run])
    return ahead, behind


def _program(tables: Tables, parts: Parts, ahead: IntArray, behind: IntArray) -> JointState | None:
    """Return the program that takes least time in some room, or None if none fits."""
    unit = max(1, -(-int(max(ahead.max(), behind.max())) // _SLOTS))
    last = len(parts.cut) - 1
    times, choices = _fill(parts, ahead, behind, unit, _SLOTS)
    if times[0, last, 0] >= _NEVER:
        return None
    segments = []
    waiting = [(0, last, 0)]
    while waiting:
        begin, end, slot = waiting.pop()
        split = int(choices[begin, end, slot])
        if split == _ALL:
            if begin + 1 < end:
                waiting.append((begin + 1, end, slot + _slots(parts.stored[begin], unit)))
            continue
        segments.append((int(parts.cut[begin]), int(parts.cut[split]) - 1))
        slot += _slots(parts.inputs[begin], unit)
        waiting.append((begin, split, slot))
        waiting.append((split, end, slot + _slots(parts.output[begin, split], unit)))
    return with_segments(tables, sorted(segments, key=lambda each: (each[0], -each[1])))


def _slots(size: int, unit: int) -> int:
    """Return slots for some bytes, rounded to the nearest number."""
    return (2 * int(size) + unit) // (2 * unit)


@compiled
def _fill(
    parts: Parts, ahead: IntArray, behind: IntArray, unit: int, slots: int
) -> tuple[IntArray, IntArray]:
    """Return the least ticks of running again from a cut to another, by slots that are taken.

    And how it begins: with a part that keeps all, or with a segment up to some cut.
    """
    last = parts.cut.size - 1
    times = np.full((last + 1, last + 1, slots + 1), _NEVER, np.int64)
    choices = np.full((last + 1, last + 1, slots + 1), _ALL, np.int64)
    for length in range(1, last + 1):
        for begin in range(last + 1 - length):
            end = begin + length
            # The first run is in the forward pass; the next when the backward pass has come here.
            first = end == last
            room = (ahead[begin] if first else behind[end]) - parts.gradient[end]
            ticks = parts.needed[begin] if length == 1 else parts.forward[begin]
            row, choice = times[begin, end], choices[begin, end]
            most = min(room - parts.keeping[begin], behind[begin] - parts.turning[begin])
            kept = (2 * parts.stored[begin] + unit) // (2 * unit)
            shift = 0 if length == 1 else kept
            for slot in range(min(slots - shift, most // unit) + 1):
                rest = 0 if length == 1 else times[begin + 1, end, slot + shift]
                if rest < _NEVER:
                    row[slot] = rest + (0 if first else ticks)
            own = (2 * parts.inputs[begin] + unit) // (2 * unit)
            again = 0
            for split in range(begin + 1, end):
                again += 0 if first else parts.forward[split - 1]
                if not parts.may[begin, split]:
                    continue
                shift = own + (2 * parts.output[begin, split] + unit) // (2 * unit)
                most = (room - parts.passing[begin, split]) // unit
                for slot in range(min(slots - shift, most) + 1):
                    rest = times[split, end, slot + shift] + times[begin, split, slot + own] + again
                    if rest < row[slot]:
                        row[slot], choice[slot] = rest, split
    return times, choices
