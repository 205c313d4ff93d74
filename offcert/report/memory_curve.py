"""Memory over time of a schedule in pieces, which is linear between events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, TransferPiece


def resident_changes(
    trace: Trace, starts: Sequence[int], ends: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield when the bytes on the device change, and by how much, if nothing leaves."""
    for tensor in trace.tensors:
        first = tensor.uses[0]
        yield starts[first] if first >= 0 else 0, tensor.size
        yield ends[tensor.uses[-1]], -tensor.size
    for operation, start, end in zip(trace.operations, starts, ends, strict=True):
        yield start, operation.workspace
        yield end, -operation.workspace


def memory_curve(problem: Problem, schedule: Schedule) -> tuple[list[int], list[int]]:
    """Return the bytes on the device over time, as the times of change and the bytes from then on.

    Changes at the same time are joined, so an operation of no duration does not show.
    """
    trace = problem.trace
    changes: dict[int, int] = {0: 0}

    def change(time: int, size: int) -> None:
        changes[time] = changes.get(time, 0) + size

    for time, size in resident_changes(trace, schedule.starts, schedule.ends):
        change(time, size)
    offloads = {trace.gaps[t.gap].tensor: t for t in schedule.transfers if t.kind is Kind.OFFLOAD}
    for transfer in schedule.transfers:
        if transfer.kind is Kind.PREFETCH:
            gap = trace.gaps[transfer.gap]
            left = schedule.ends[gap.before] if gap.before >= 0 else 0
            # What has not been verified may come back without having left.
            if gap.tensor in offloads:
                left = max(offloads[gap.tensor].end, left)
            change(left, -trace.gap_size(transfer.gap))
            change(transfer.start, trace.gap_size(transfer.gap))
    times = sorted(changes)
    held, total = [], 0
    for time in times:
        total += changes[time]
        held.append(total)
    return times, held


Point = tuple[Fraction, Fraction]


def fluid_memory_curve(problem: Problem, schedule: FluidSchedule) -> list[Point]:
    """Return the bytes on the device over time as the corners of a line: (time, bytes).

    A jump is two corners at the same time.
    """
    changes = _Changes()
    for time, size in resident_changes(problem.trace, schedule.starts, schedule.ends):
        changes.jump(time, size)
    changes.jump(0, 0)
    _add_absences(changes, problem, schedule)
    before, after = changes.around()
    times = sorted(before)
    points: list[Point] = []
    begin, place = Fraction(0), 0
    for first, last in zip(
        map(Fraction, schedule.starts), map(Fraction, schedule.ends), strict=True
    ):
        for start, end in ((begin, first), (first, last)):
            if end > start:
                points.append((start, after[start]))
                while times[place] < end:
                    if times[place] > start:
                        points.append((times[place], before[times[place]]))
                    place += 1
                points.append((end, before[end]))
        begin = last
    return [*points, (begin, Fraction(0))]


class _Changes:
    """When the bytes jump, by how much, and when they begin to grow faster, per tick."""

    def __init__(self) -> None:
        self.jumps: dict[Fraction, Fraction] = defaultdict(Fraction)
        self.bends: dict[Fraction, Fraction] = defaultdict(Fraction)

    def jump(self, time: Fraction | int, size: Fraction | int) -> None:
        self.jumps[Fraction(time)] += size

    def line(self, start: Point, end: Point) -> None:
        """Add bytes that grow evenly from none at `start` to the difference of sizes at `end`."""
        slope = (end[1] - start[1]) / (end[0] - start[0])
        self.bends[start[0]] += slope
        self.bends[end[0]] -= slope

    def around(self) -> tuple[dict[Fraction, Fraction], dict[Fraction, Fraction]]:
        """Return the bytes just before and just after each time of a change."""
        before, after = {}, {}
        last = held = slope = Fraction(0)
        for time in sorted({*self.jumps, *self.bends}):
            before[time] = held + slope * (time - last)
            held = after[time] = before[time] + self.jumps.get(time, 0)
            slope += self.bends.get(time, 0)
            last = time
        return before, after


def _add_absences(changes: _Changes, problem: Problem, schedule: FluidSchedule) -> None:
    """Take away what is off the device in each gap: what has been copied, up to what returns."""
    copied: dict[int, list[TransferPiece]] = {}
    returned: dict[int, list[TransferPiece]] = {}
    for piece in schedule.pieces:
        # Every piece shows as a corner, whether it releases anything or not.
        changes.jump(piece.start, 0)
        changes.jump(piece.end, 0)
        if piece.kind is Kind.OFFLOAD:
            copied.setdefault(problem.trace.gaps[piece.gap].tensor, []).append(piece)
        else:
            returned.setdefault(piece.gap, []).append(piece)
    for number, back in returned.items():
        gap = problem.trace.gaps[number]
        opened = Fraction(schedule.ends[gap.before] if gap.before >= 0 else 0)
        closed = Fraction(schedule.starts[gap.after])
        if closed > opened:
            corners = _absent(copied.get(gap.tensor, []), back, opened, closed)
            changes.jump(opened, -corners[0][1])
            for start, end in pairwise(corners):
                changes.line((start[0], -start[1]), (end[0], -end[1]))
            changes.jump(closed, corners[-1][1])


def _absent(
    out: list[TransferPiece], back: list[TransferPiece], opened: Fraction, closed: Fraction
) -> list[Point]:
    """Return the corners of the bytes that are off the device from `opened` to `closed`."""
    evicted = sum((piece.size for piece in back), Fraction(0))
    times = {time for piece in (*out, *back) for time in (piece.start, piece.end)}
    times = {time for time in times if opened < time < closed} | {opened, closed}
    ordered = sorted(times)
    for start, end in pairwise(ordered):
        # More is copied than is evicted in this gap: where that begins there is another corner.
        low, high = _moved(out, start), _moved(out, end)
        if low < evicted < high:
            times.add(start + (end - start) * (evicted - low) / (high - low))
    return [(time, min(_moved(out, time), evicted) - _moved(back, time)) for time in sorted(times)]


def _moved(pieces: Iterable[TransferPiece], time: Fraction) -> Fraction:
    total = Fraction(0)
    for piece in pieces:
        # What has not been verified may last no time.
        if time >= piece.end:
            total += piece.size
        elif time > piece.start:
            total += piece.size * (time - piece.start) / (piece.end - piece.start)
    return total
