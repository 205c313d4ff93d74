"""The checker for pieces as it is defined; `questions.schedule.check_fluid` must find the same."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, Piece
from support.oracles.check import operation_faults


def check_fluid(problem: Problem, schedule: FluidSchedule) -> list[str]:
    """Return every reason why `schedule` is not a schedule of `problem`.

    Parameters
    ----------
    problem : Problem
        With interruptible or fractional transfers.
    schedule : FluidSchedule
        Claimed times, in ticks, and amounts, in bytes.

    Returns
    -------
    list of str
        One sentence a violation; empty if the schedule is valid.
    """
    return _FluidChecker(problem, schedule).run()


class _FluidChecker:
    def __init__(self, problem: Problem, schedule: FluidSchedule) -> None:
        self.problem = problem
        self.trace = problem.trace
        self.schedule = schedule
        self.faults: list[str] = []
        # Pieces of offloads by tensor, of prefetches by gap.
        self.leaving: dict[int, list[Piece]] = {}
        self.returning: dict[int, list[Piece]] = {}

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
        count = len(self.trace.operations)
        for name, values in (("starts", self.schedule.starts), ("ends", self.schedule.ends)):
            if len(values) != count:
                self.faults.append(
                    f"the schedule has {len(values)} operation {name} for {count} operations"
                )
            self.faults += [
                f"operation {index}: {name} holds {value!r}, which is no integer"
                for index, value in enumerate(values)
                if type(value) is not int
            ]
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
            most = self._bandwidth(piece.kind) * (piece.end - piece.start)
            if piece.size > most:
                self.faults.append(
                    f"{self._label(piece)} moves {piece.size} where the link can move {most}"
                )

    def _bandwidth(self, kind: Kind) -> Fraction:
        """Return the bytes per tick that the link can move in a direction."""
        return self.problem.platform.rate(kind)

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
        for tensor, pieces in self.leaving.items():
            written = self._end(self.trace.tensors[tensor].uses[0])
            dead = self._end(self.trace.tensors[tensor].uses[-1])
            evicted = [gap for gap in self.returning if self.trace.gaps[gap].tensor == tensor]
            for piece in pieces:
                if piece.start < written:
                    self.faults.append(
                        f"{self._label(piece)} begins before its tensor is written at {written}"
                    )
                if piece.end > dead:
                    self.faults.append(
                        f"{self._label(piece)} ends after its tensor is gone at {dead}"
                    )
                if piece.gap != min(evicted, default=None):
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
            for time in sorted({end for p in copies + pieces for end in (p.start, p.end)}):
                left, back = self._moved(copies, time), self._moved(pieces, time)
                if back > left:
                    self.faults.append(
                        f"{back} of {self.trace.tensors[tensor].name} have come back at {time}, "
                        f"when {left} have left"
                    )
                    break

    def _check_amount(self, pieces: list[Piece], verb: str, size: int) -> None:
        total = sum(piece.size for piece in pieces)
        whole = self.problem.transfers is Transfers.INTERRUPTIBLE
        name = self.trace.tensors[self.trace.gaps[pieces[0].gap].tensor].name
        if total > size or (whole and total != size):
            self.faults.append(f"{total} of the {size} of {name} are {verb}")

    def _check_memory(self) -> None:
        times = {end for piece in self.schedule.pieces for end in (piece.start, piece.end)}
        ended = Fraction(0)
        for index, operation in enumerate(self.trace.operations):
            start, end = (
                Fraction(row[index]) for row in (self.schedule.starts, self.schedule.ends)
            )
            self._check_stretch(f"before operation {index}", index, 0, ended, start, times)
            place = f"during operation {index} ({operation.name})"
            self._check_stretch(place, index, 1, start, end, times)
            ended = end

    def _check_stretch(
        self,
        place: str,
        operation: int,
        running: int,
        begin: Fraction,
        end: Fraction,
        times: set[Fraction],
    ) -> None:
        """Report the fullest moment in which the memory overflows, of one operation or idle time.

        ``running`` is 1 while `operation` runs and 0 in the idle time before it.
        """
        held = sum(
            tensor.size
            for tensor in self.trace.tensors
            if tensor.uses[0] < operation + running and operation <= tensor.uses[-1]
        )
        held += running * self.trace.operations[operation].workspace
        evicted = [
            gap
            for gap in self.returning
            if self.trace.gaps[gap].before < operation
            and operation <= self.trace.gaps[gap].after - running
        ]
        limit = self.problem.platform.memory
        moments = {begin, end} | {time for time in times if begin < time < end}
        full, when = max(
            (held - sum((self._absent(gap, time) for gap in evicted), Fraction(0)), time)
            for time in moments
        )
        if full > limit:
            self.faults.append(
                f"memory {place} at {when} holds {full}, {full - limit} over the limit of {limit}"
            )

    def _absent(self, gap: int, time: Fraction) -> Fraction:
        copies = self.leaving.get(self.trace.gaps[gap].tensor, [])
        pieces = self.returning[gap]
        evicted = sum((piece.size for piece in pieces), Fraction(0))
        return min(self._moved(copies, time), evicted) - self._moved(pieces, time)

    def _moved(self, pieces: list[Piece], time: Fraction) -> Fraction:
        """Return the bytes that `pieces` have moved by `time`."""
        total = Fraction(0)
        for piece in pieces:
            if time >= piece.end:
                total += piece.size
            elif time > piece.start:
                total += piece.size * (time - piece.start) / (piece.end - piece.start)
        return total

    def _end(self, operation: int) -> int:
        return 0 if operation < 0 else self.schedule.ends[operation]

    def _label(self, piece: Piece) -> str:
        name = self.trace.tensors[self.trace.gaps[piece.gap].tensor].name
        return f"the {piece.kind} of {name} (gap {piece.gap}) from {piece.start} to {piece.end}"
