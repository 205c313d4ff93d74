"""The record of a simulated execution: its schedule, and residences with addresses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from offcert.core.platform import Kind, Platform
from offcert.core.trace import Trace
from offcert.questions.placement.problem import Residence
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.split.menu import Alternative, Menu


class TaskView:
    """Tables of a trace with a menu, by task and by tensor.

    Attributes
    ----------
    ways : list of tuple of Alternative
        For each task, its alternatives.
    inputs, outputs, dying : list of list of int
        For each task, the tensors that it reads, those that it writes, and those that nobody needs
        after it.
    resident : list of int
        Tensors that are there at the start.
    out_time, back_time : list of int
        For each tensor, ticks of a transfer.
    fastest : list of int
        Ticks of all tasks before each one with their fastest alternatives, and of all of them.
    """

    def __init__(self, trace: Trace, menu: Menu, platform: Platform) -> None:
        self.trace = trace
        self.ways = [
            menu.of.get(index, (Alternative("", each.duration, each.workspace),))
            for index, each in enumerate(trace.operations)
        ]
        self.sizes = [tensor.size for tensor in trace.tensors]
        self.uses = [tensor.uses for tensor in trace.tensors]
        self.evictable = [tensor.evictable and tensor.size > 0 for tensor in trace.tensors]
        self.inputs: list[list[int]] = [[] for _ in trace.operations]
        self.outputs: list[list[int]] = [[] for _ in trace.operations]
        self.dying: list[list[int]] = [[] for _ in trace.operations]
        self.resident = []
        for index, tensor in enumerate(trace.tensors):
            first, *later = tensor.uses
            if first < 0:
                self.resident.append(index)
            else:
                self.outputs[first].append(index)
            for use in later:
                self.inputs[use].append(index)
            self.dying[tensor.uses[-1]].append(index)
        self.out_time, self.back_time = (
            [platform.transfer_time(size, kind) for size in self.sizes]
            for kind in (Kind.OFFLOAD, Kind.PREFETCH)
        )
        least = (min(way.duration for way in ways) for ways in self.ways)
        self.fastest = list(accumulate(least, initial=0))

    def next_use(self, tensor: int, task: int) -> int:
        """Return the first task from one on that uses a tensor; the number of tasks if none does.

        Without gaps, what may not leave is in use all the time.
        """
        uses = self.uses[tensor]
        place = bisect_left(uses, task)
        return uses[place] if place < len(uses) else len(self.ways)

    def is_due(self, task: int, later: int, missing: Iterable[int]) -> bool:
        """Return whether a later task would get tensors late if a task ended before they are sent.

        Eq. 9, with what the task at hand takes on both sides of it. What the link still has to
        carry does not count, as in the paper.
        """
        between = self.fastest[later] - self.fastest[task + 1]
        return sum(self.back_time[tensor] for tensor in missing) > between


class Record:
    """Times and addresses of one simulated execution.

    A tensor that is brought back and given up again before anybody used it was brought back for
    nothing: of the transfers for one gap only the last counts, and the link stands idle instead. So
    does it where everything is vacated and what the next task needs returns at once.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.offloads: dict[int, tuple[int, int]] = {}
        self.prefetches: dict[int, tuple[int, int]] = {}
        self.residences: list[Residence] = []
        self.addresses: list[int] = []
        self._begun: dict[int, tuple[int, int]] = {}

    def begin(self, block: int, address: int, start: int) -> None:
        """Note that a block lies at an address from a time on."""
        self._begun[block] = (address, start)

    def end(self, block: int, name: str, size: int, end: int) -> None:
        """Note until when a block lies where it is."""
        address, start = self._begun.pop(block)
        if start < end:
            self.residences.append(Residence(name, size, start, end))
            self.addresses.append(address)

    def returned(self, tensor: int, before: int, after: int, start: int, end: int) -> None:
        """Note that a tensor returns between two uses; what is no gap needs no transfer."""
        gap = self.trace.gap_numbers.get((tensor, before, after))
        if gap is not None:
            self.prefetches[gap] = (start, end)

    def schedule(self) -> Schedule:
        """Return the schedule, with the times of the simulation."""
        transfers = [Transfer(Kind.PREFETCH, gap, *times) for gap, times in self.prefetches.items()]
        first: dict[int, int] = {}
        for gap in sorted(self.prefetches):
            first.setdefault(self.trace.gaps[gap].tensor, gap)
        transfers += [
            Transfer(Kind.OFFLOAD, gap, *self.offloads[tensor]) for tensor, gap in first.items()
        ]
        return Schedule(self.starts, self.ends, transfers)


def bytes_of(transfers: Sequence[Transfer], trace: Trace) -> int:
    """Return the bytes that transfers move together."""
    return sum(trace.gap_size(transfer.gap) for transfer in transfers)
