"""The checker for schedules whose transfers are pieces, in exact rationals.

It shares no code with what builds such schedules. Why finitely many times are enough: between two
neighbouring ends of pieces or of operations, what has been copied and what has come back are linear
in time. So bytes that come back never exceed those that have left if they do not at the ends. What
is off the device in a gap is the smaller of two linear functions (bytes copied, bytes evicted),
less a linear one: it is concave, so what is *on* the device is convex and largest at the ends. It
jumps only where operations start and end; there both sides are examined, as each operation and
each idle time is a closed interval with its own set of tensors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

from offcert.core.platform import Kind
from offcert.questions.schedule.check import check, operation_faults, shape_faults
from offcert.questions.schedule.presence import (
    ByteFlow,
    CommonDenominator,
    Rational,
    absent_at,
    after,
    during,
    held_at_stations,
)
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, TransferPiece


def schedule_faults(problem: Problem, schedule: Schedule | FluidSchedule) -> list[str]:
    """Return every reason why a schedule, whole or in pieces, is invalid for a problem."""
    if isinstance(schedule, FluidSchedule):
        return check_fluid(problem, schedule)
    return check(problem, schedule)


def check_fluid(problem: Problem, schedule: FluidSchedule) -> list[str]:
    """Return every reason why a schedule in pieces is invalid for a problem; empty without any."""
    return _FluidChecker(problem, schedule).run()


def _speeds(pieces: list[TransferPiece]) -> Iterator[tuple[Fraction, Fraction, Fraction]]:
    """Yield the stretches of time in which pieces move something: start, end, bytes per tick."""
    changes = []
    for piece in pieces:
        rate = piece.size / (piece.end - piece.start)
        changes += [(piece.start, rate), (piece.end, -rate)]
    changes.sort()
    rate = Fraction(0)
    for (start, change), (end, _) in pairwise(changes):
        rate += change
        if rate and start < end:
            yield start, end, rate


def moved_by(pieces: list[TransferPiece], times: Sequence[Fraction]) -> Iterator[Fraction]:
    """Yield the bytes that pieces have moved by each of some times, in order of time."""
    speeds = list(_speeds(pieces))
    number = 0
    moved = Fraction(0)
    for time in times:
        while number < len(speeds) and speeds[number][1] <= time:
            start, end, rate = speeds[number]
            moved += rate * (end - start)
            number += 1
        part = Fraction(0)
        if number < len(speeds) and speeds[number][0] < time:
            start, _, rate = speeds[number]
            part = rate * (time - start)
        yield moved + part


def _all_before(copies: list[TransferPiece], pieces: list[TransferPiece]) -> bool:
    """Whether enough has left before anything returns, as it nearly always has."""
    return (
        bool(copies)
        and max(piece.end for piece in copies) <= min(piece.start for piece in pieces)
        and sum(piece.size for piece in copies) >= sum(piece.size for piece in pieces)
    )


class _FluidChecker:
    def __init__(self, problem: Problem, schedule: FluidSchedule) -> None:
        self.problem = problem
        self.trace = problem.trace
        self.schedule = schedule
        self.faults: list[str] = []
        # Pieces of offloads by tensor, of prefetches by gap.
        self.leaving: dict[int, list[TransferPiece]] = {}
        self.returning: dict[int, list[TransferPiece]] = {}

    def run(self) -> list[str]:
        if self.problem.transfers is Transfers.ATOMIC:
            return ["the schedule has pieces, but the problem has atomic transfers"]
        self._check_shape()
        if self.faults:
            return self.faults
        self._collect()
        for stage in (
            self._check_operations,
            self._check_rates,
            self._check_link,
            self._check_offloads,
            self._check_prefetches,
            self._check_memory,
        ):
            stage()
        return self.faults

    def _check_shape(self) -> None:
        self.faults += shape_faults(self.trace, self.schedule.starts, self.schedule.ends)
        for index, piece in enumerate(self.schedule.pieces):
            numbers = (piece.start, piece.end, piece.size)
            if any(type(number) is not Fraction for number in numbers):
                self.faults.append(f"piece {index} has numbers that are no rationals")
            elif not isinstance(piece.kind, Kind):
                self.faults.append(f"piece {index} has the unknown kind {piece.kind!r}")
            elif type(piece.gap) is not int or not 0 <= piece.gap < len(self.trace.gaps):
                self.faults.append(f"piece {index} names gap {piece.gap}, which does not exist")
            elif piece.end <= piece.start or piece.size <= 0:
                self.faults.append(
                    f"piece {index} moves {piece.size} from {piece.start} to {piece.end}"
                )

    def _collect(self) -> None:
        for piece in self.schedule.pieces:
            if piece.kind is Kind.OFFLOAD:
                self.leaving.setdefault(self.trace.gaps[piece.gap].tensor, []).append(piece)
            else:
                self.returning.setdefault(piece.gap, []).append(piece)

    def _check_operations(self) -> None:
        self.faults += operation_faults(self.trace, self.schedule.starts, self.schedule.ends)

    def _check_rates(self) -> None:
        for piece in self.schedule.pieces:
            most = self.problem.platform.rate(piece.kind) * (piece.end - piece.start)
            if piece.size > most:
                self.faults.append(
                    f"{self._label(piece)} moves {piece.size} where the link can move {most}"
                )

    def _check_link(self) -> None:
        directions = [[kind] for kind in Kind] if self.problem.platform.duplex else [list(Kind)]
        for kinds in directions:
            queue = [piece for piece in self.schedule.pieces if piece.kind in kinds]
            queue.sort(key=lambda piece: piece.start)
            for first, second in pairwise(queue):
                if second.start < first.end:
                    self.faults.append(
                        f"{self._label(second)} begins while {self._label(first)} uses the link "
                        f"until {first.end}"
                    )

    def _check_offloads(self) -> None:
        first: dict[int, int] = {}
        for gap in sorted(self.returning):
            first.setdefault(self.trace.gaps[gap].tensor, gap)
        for tensor, pieces in self.leaving.items():
            written = self._end(self.trace.tensors[tensor].uses[0])
            dead = self._end(self.trace.tensors[tensor].uses[-1])
            for piece in pieces:
                if piece.start < written:
                    self.faults.append(
                        f"{self._label(piece)} begins before its tensor is written at {written}"
                    )
                if piece.end > dead:
                    self.faults.append(
                        f"{self._label(piece)} ends after its tensor is gone at {dead}"
                    )
                if piece.gap != first.get(tensor):
                    self.faults.append(
                        f"{self._label(piece)} does not name its tensor's first evicted gap"
                    )
            self._check_amount(pieces, "offloaded", self.trace.tensors[tensor].size)

    def _check_prefetches(self) -> None:
        for gap, pieces in self.returning.items():
            opened = self._end(self.trace.gaps[gap].before)
            needed = self.schedule.starts[self.trace.gaps[gap].after]
            for piece in pieces:
                if piece.start < opened:
                    self.faults.append(f"{self._label(piece)} begins before its gap at {opened}")
                if piece.end > needed:
                    self.faults.append(
                        f"{self._label(piece)} ends after its tensor is needed at {needed}"
                    )
            tensor = self.trace.gaps[gap].tensor
            self._check_amount(pieces, "prefetched", self.trace.tensors[tensor].size)
            copies = self.leaving.get(tensor, [])
            if _all_before(copies, pieces):
                continue
            times = sorted({end for p in copies + pieces for end in (p.start, p.end)})
            for time, left, back in zip(
                times, moved_by(copies, times), moved_by(pieces, times), strict=True
            ):
                if back > left:
                    self.faults.append(
                        f"{back} of {self.trace.tensors[tensor].name} have come back at {time}, "
                        f"when {left} have left"
                    )
                    break

    def _check_amount(self, pieces: list[TransferPiece], verb: str, size: int) -> None:
        total = sum(piece.size for piece in pieces)
        whole = self.problem.transfers is Transfers.INTERRUPTIBLE
        name = self.trace.tensors[self.trace.gaps[pieces[0].gap].tensor].name
        if total > size or (whole and total != size):
            self.faults.append(f"{total} of the {size} of {name} are {verb}")

    def _check_memory(self) -> None:
        """Report the fullest moment of each operation and idle time in which memory overflows."""
        flows = [flow for gap in self.returning for flow in self._flows(gap)]
        times = {end for piece in self.schedule.pieces for end in (piece.start, piece.end)}
        inside_flows = {end for flow in flows for end in (flow.start, flow.end)}
        clock = CommonDenominator(times | inside_flows)
        stretches = self._stretches(clock, sorted(map(clock.number, times)))
        places = [(station, time) for station, moments in stretches for time in moments]
        absent = iter(absent_at(flows, places, clock))
        held = held_at_stations(self.trace)
        limit = self.problem.platform.memory
        for station, moments in stretches:
            most, when = max((held[station] - next(absent), time) for time in moments)
            if most > limit:
                full = Fraction(most)
                self.faults.append(
                    f"memory {self._place(station)} at {clock.value(when)} holds {full}, "
                    f"{full - limit} over the limit of {limit}"
                )

    def _stretches(
        self, clock: CommonDenominator, times: Sequence[Rational]
    ) -> list[tuple[int, list[Rational]]]:
        """Return the moments to look at in each idle time and operation, as the clock has them."""
        stretches = []
        ended = clock.number(Fraction(0))
        for index in range(len(self.trace.operations)):
            start, end = (
                clock.number(Fraction(row[index]))
                for row in (self.schedule.starts, self.schedule.ends)
            )
            for station, first, last in (
                (after(index - 1), ended, start),
                (during(index), start, end),
            ):
                inside = times[bisect_right(times, first) : bisect_left(times, last)]
                stretches.append((station, [first, *inside, last]))
            ended = end
        return stretches

    def _place(self, station: int) -> str:
        index = station // 2
        if station == during(index):
            return f"during operation {index} ({self.trace.operations[index].name})"
        return f"before operation {index}"

    def _flows(self, number: int) -> Iterator[ByteFlow]:
        """Yield when how many bytes go off the device in a gap, or with a minus, return to it.

        What is off is what has been copied, up to the bytes that return, less those that have.
        """
        gap = self.trace.gaps[number]
        pieces = self.returning[number]
        rest = sum((piece.size for piece in pieces), Fraction(0))
        for start, end, rate in _speeds(self.leaving.get(gap.tensor, [])):
            amount = rate * (end - start)
            if amount >= rest:
                yield ByteFlow(gap, start, start + rest / rate, rest)
                break
            rest -= amount
            yield ByteFlow(gap, start, end, amount)
        for piece in pieces:
            yield ByteFlow(gap, piece.start, piece.end, -piece.size)

    def _end(self, operation: int) -> int:
        return 0 if operation < 0 else self.schedule.ends[operation]

    def _label(self, piece: TransferPiece) -> str:
        name = self.trace.tensors[self.trace.gaps[piece.gap].tensor].name
        return f"the {piece.kind} of {name} (gap {piece.gap}) from {piece.start} to {piece.end}"
