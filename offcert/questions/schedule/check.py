"""The checker: examines a schedule event by event, in exact integers.

It shares no code with the simulator or any solver: it re-derives what is on the device from the
definition of the problem alone.

Only three kinds of event take memory: the start of the step, the start of an operation (its
outputs and workspace) and the start of a prefetch. Everything else releases it. So memory is within
its limit always if it is right after each of those events.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from itertools import accumulate, pairwise

from offcert.core.platform import Kind
from offcert.core.trace import Gap, Trace
from offcert.questions.schedule.presence import after, during, held_at_stations, sums_at
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer

# The place of the start, before the first operation. By definition.
_START = -1


def check(problem: Problem, schedule: Schedule) -> list[str]:
    """Return every reason why `schedule` is invalid for `problem`.

    Parameters
    ----------
    problem : Problem
        With any kind of transfers: what is valid for atomic transfers is valid for the others.
    schedule : Schedule
        Claimed times, in ticks.

    Returns
    -------
    list of str
        One sentence a violation; empty if the schedule is valid.
    """
    return _Checker(problem, schedule).run()


def peak(problem: Problem, schedule: Schedule) -> int:
    """Return the most bytes on the device at any moment of a schedule that `check` finds valid."""
    checker = _Checker(problem, schedule)
    checker._collect_transfers()
    return max(checker._occupied())


def shape_faults(trace: Trace, starts: Sequence[int], ends: Sequence[int]) -> list[str]:
    """Return where there is not one integer for the start and one for the end of each operation."""
    faults, count = [], len(trace.operations)
    for name, values in (("starts", starts), ("ends", ends)):
        if len(values) != count:
            faults.append(f"the schedule has {len(values)} operation {name} for {count} operations")
        faults += [
            f"operation {index}: {name} holds {value!r}, which is no integer"
            for index, value in enumerate(values)
            if type(value) is not int
        ]
    return faults


def operation_faults(trace: Trace, starts: Sequence[int], ends: Sequence[int]) -> list[str]:
    """Return every reason why the operations cannot run, one after the other, at these times."""
    faults = []
    free = 0
    for index, (operation, start, end) in enumerate(
        zip(trace.operations, starts, ends, strict=True)
    ):
        label = f"operation {index} ({operation.name})"
        if start < free:
            before = "the schedule begins" if index == 0 else f"operation {index - 1} ends"
            faults.append(f"{label} starts at {start}, before {before} at {free}")
        if end - start != operation.duration:
            faults.append(f"{label} lasts {end - start} ticks instead of {operation.duration}")
        free = max(free, end)
    return faults


def exact_durations(problem: Problem, schedule: Schedule) -> list[int]:
    """Return the ticks that each transfer has to last while those of the other direction last so.

    A transfer moves, in each tick, what its rate lets it: the one alone, or the lower one in ticks
    in which the other direction has the link, too. It lasts the fewest ticks in which all is moved.
    """
    trace, transfers = problem.trace, schedule.transfers
    found = []
    busy = {kind: BusyTicks(transfers, kind) for kind in Kind} if problem.platform.slows else {}
    for transfer in transfers:
        size = trace.tensors[trace.gaps[transfer.gap].tensor].size
        least, most = (
            _whole_ticks(size, problem.platform.rate(transfer.kind, busy=opposed))
            for opposed in (False, True)
        )
        if least < most:
            opposite = Kind.PREFETCH if transfer.kind is Kind.OFFLOAD else Kind.OFFLOAD
            rates = [problem.platform.rate(transfer.kind, busy=b) for b in (False, True)]
            least += busy[opposite].delay(transfer.start, size, least, most, rates)
        found.append(least)
    return found


def _whole_ticks(size: int, rate: Fraction) -> int:
    whole, rest = divmod(size * rate.denominator, rate.numerator)
    return whole + (rest > 0)


class BusyTicks:
    """The ticks in which one direction has the link, of transfers in both."""

    def __init__(self, transfers: Iterable[Transfer], kind: Kind) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        for start, end in sorted((t.start, t.end) for t in transfers if t.kind is kind):
            if self.ends and start <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], end)
            elif start < end:
                self.starts.append(start)
                self.ends.append(end)
        stretches = zip(self.starts, self.ends, strict=True)
        self.before = [0, *accumulate(end - start for start, end in stretches)]

    def until(self, time: int) -> int:
        """Return how many ticks of those before a time are busy."""
        begun = bisect_right(self.starts, time)
        return self.before[begun] - max(0, self.ends[begun - 1] - time if begun else 0)

    def delay(self, start: int, size: int, least: int, most: int, rates: list[Fraction]) -> int:
        """Return how many ticks more than the fewest possible a transfer needs to move all."""
        alone, opposed = rates

        def moved(ticks: int) -> int:
            slow = self.until(start + ticks) - self.until(start)
            return int((ticks - slow) * alone + slow * opposed)

        return bisect_left(range(least, most), size, key=moved)


def _first(tick: int) -> int:
    return 2 * tick


def _second(tick: int) -> int:
    return 2 * tick + 1


class _Checker:
    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem = problem
        self.trace = problem.trace
        self.schedule = schedule
        self.faults: list[str] = []
        self.offload_of: dict[int, Transfer] = {}
        self.prefetch_of: dict[int, Transfer] = {}

    def run(self) -> list[str]:
        # Later checks index by operation and gap, so they need the earlier ones to have passed.
        for stage in (
            self._check_shape,
            self._check_operations,
            self._collect_transfers,
            self._check_transfers,
            self._check_link,
            self._check_memory,
        ):
            stage()
            if self.faults and stage in (self._check_shape, self._collect_transfers):
                break
        return self.faults

    def _check_shape(self) -> None:
        self.faults += shape_faults(self.trace, self.schedule.starts, self.schedule.ends)
        for transfer in self.schedule.transfers:
            if type(transfer.start) is not int or type(transfer.end) is not int:
                self.faults.append(f"{self._label(transfer)} has times that are no integers")

    def _check_operations(self) -> None:
        self.faults += operation_faults(self.trace, self.schedule.starts, self.schedule.ends)

    def _collect_transfers(self) -> None:
        for transfer in self.schedule.transfers:
            if not 0 <= transfer.gap < len(self.trace.gaps):
                self.faults.append(f"a transfer names gap {transfer.gap}, which does not exist")
                continue
            if transfer.kind is Kind.PREFETCH:
                if transfer.gap in self.prefetch_of:
                    self.faults.append(f"{self._label(transfer)} happens twice")
                self.prefetch_of[transfer.gap] = transfer
            else:
                tensor = self.trace.gaps[transfer.gap].tensor
                if tensor in self.offload_of:
                    self.faults.append(f"{self._label(transfer)}: its tensor leaves twice")
                self.offload_of[tensor] = transfer
        first_gap: dict[int, int] = {}
        for gap in sorted(self.prefetch_of):
            first_gap.setdefault(self.trace.gaps[gap].tensor, gap)
        for tensor, gap in first_gap.items():
            if tensor not in self.offload_of:
                self.faults.append(f"{self._label(self.prefetch_of[gap])} has no offload")
        for tensor, transfer in self.offload_of.items():
            if first_gap.get(tensor) != transfer.gap:
                self.faults.append(
                    f"{self._label(transfer)} does not name its tensor's first evicted gap"
                )

    def _check_transfers(self) -> None:
        for transfer, length in zip(
            self.schedule.transfers, exact_durations(self.problem, self.schedule), strict=True
        ):
            if transfer.end - transfer.start != length:
                self.faults.append(
                    f"{self._label(transfer)} lasts {transfer.end - transfer.start} ticks "
                    f"instead of {length}"
                )
        for tensor, transfer in self.offload_of.items():
            written = self._end(self.trace.tensors[tensor].uses[0])
            if transfer.start < written:
                self.faults.append(
                    f"{self._label(transfer)} starts at {transfer.start}, before its tensor is "
                    f"written at {written}"
                )
        for gap, transfer in self.prefetch_of.items():
            released = self._released(gap)
            if transfer.start < released:
                self.faults.append(
                    f"{self._label(transfer)} starts at {transfer.start}, before its tensor has "
                    f"left at {released}"
                )
            needed = self.schedule.starts[self.trace.gaps[gap].after]
            if transfer.end > needed:
                self.faults.append(
                    f"{self._label(transfer)} ends at {transfer.end}, after its tensor is needed "
                    f"at {needed}"
                )

    def _check_link(self) -> None:
        directions = [[kind] for kind in Kind] if self.problem.platform.duplex else [list(Kind)]
        for kinds in directions:
            queue = sorted(
                (t for t in self.schedule.transfers if t.kind in kinds), key=lambda t: t.start
            )
            for first, second in pairwise(queue):
                if second.start < first.end:
                    self.faults.append(
                        f"{self._label(second)} starts at {second.start} while "
                        f"{self._label(first)} uses the link until {first.end}"
                    )

    def _check_memory(self) -> None:
        limit = self.problem.platform.memory
        for number, occupied in enumerate(self._occupied()):
            if occupied > limit:
                self.faults.append(
                    f"memory at {self._moment(number)} holds {occupied}, "
                    f"{occupied - limit} over the limit of {limit}"
                )

    def _occupied(self) -> list[int]:
        """Return the bytes at every moment at which memory is taken, numbered as in `_moment`.

        Each tick counts as two moments: at the first, memory is released and operations of no
        duration run; at the second, prefetches and all other operations take memory.
        """
        schedule = self.schedule
        prefetches = list(self.prefetch_of.items())
        places = [(after(_START), _second(0))]
        for index, (start, end) in enumerate(zip(schedule.starts, schedule.ends, strict=True)):
            places.append((during(index), _second(start) if end > start else _first(start)))
        stations = self._stations_at([transfer.start for _, transfer in prefetches])
        places += [
            (station, _second(transfer.start))
            for station, (_, transfer) in zip(stations, prefetches, strict=True)
        ]
        absent = sums_at(self._absences(), places, 0)
        held = held_at_stations(self.trace)
        return [
            held[station] - missing for (station, _), missing in zip(places, absent, strict=True)
        ]

    def _moment(self, number: int) -> str:
        """Name a moment: the start, then one an operation, then one a prefetch."""
        operations = self.trace.operations
        if number == 0:
            return "the start of the step"
        if number <= len(operations):
            index = number - 1
            return f"operation {index} ({operations[index].name}) at {self.schedule.starts[index]}"
        transfer = list(self.prefetch_of.values())[number - 1 - len(operations)]
        return f"{self._label(transfer)} at {transfer.start}"

    def _absences(self) -> Iterator[tuple[Gap, int, int]]:
        """Yield changes of absence: a gap, a moment, and bytes, negative if they return."""
        for number, transfer in self.prefetch_of.items():
            gap = self.trace.gaps[number]
            gone, back = _first(self._released(number)), _second(transfer.start)
            if gone < back:
                size = self.trace.tensors[gap.tensor].size
                yield gap, gone, size
                yield gap, back, -size

    def _stations_at(self, times: Sequence[int]) -> list[int]:
        """Return which operation runs at each time, the first if several do, or which has ended."""
        starts, ends = self.schedule.starts, self.schedule.ends
        order = sorted(range(len(starts)), key=starts.__getitem__)
        ended = sorted(ends)
        stations: dict[int, int] = {}
        running: list[int] = []
        begun = 0
        for time in sorted(set(times)):
            while begun < len(order) and starts[order[begun]] <= time:
                heappush(running, order[begun])
                begun += 1
            while running and ends[running[0]] <= time:
                heappop(running)
            last = bisect_right(ended, time) - 1
            stations[time] = during(running[0]) if running else after(last)
        return [stations[time] for time in times]

    def _released(self, gap: int) -> int:
        opened = self.trace.gaps[gap]
        return max(self.offload_of[opened.tensor].end, self._end(opened.before))

    def _end(self, operation: int) -> int:
        return 0 if operation == _START else self.schedule.ends[operation]

    def _label(self, transfer: Transfer) -> str:
        if not 0 <= transfer.gap < len(self.trace.gaps):
            return f"the {transfer.kind} of gap {transfer.gap}"
        tensor = self.trace.tensors[self.trace.gaps[transfer.gap].tensor]
        return f"the {transfer.kind} of {tensor.name} (gap {transfer.gap})"
