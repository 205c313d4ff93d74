"""The memory of the device while Algorithm 1 simulates an execution: tensors at addresses.

The record of a simulated execution is its schedule, and its residences with addresses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from offcert.core.errors import NoPlanError
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Trace
from offcert.heuristics.modnn.schemes import MemoryPool, PoolPart, Scheme, best_scheme
from offcert.questions.placement.problem import Residence
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.split.menu import Alternative, Menu


class TaskView:
    """Tables of a trace with a menu, by task and by tensor."""

    def __init__(self, trace: Trace, menu: Menu, platform: Platform) -> None:
        self.trace = trace
        # For each task, its alternatives.
        self.ways = [
            menu.of.get(index, (Alternative("", each.duration, each.workspace),))
            for index, each in enumerate(trace.operations)
        ]
        self.sizes = [tensor.size for tensor in trace.tensors]
        self.uses = [tensor.uses for tensor in trace.tensors]
        self.evictable = [tensor.evictable and tensor.size > 0 for tensor in trace.tensors]
        # For each task, the tensors that it reads, those that it writes, and those that nobody
        # needs after it.
        self.inputs: list[list[int]] = [[] for _ in trace.operations]
        self.outputs: list[list[int]] = [[] for _ in trace.operations]
        self.dying: list[list[int]] = [[] for _ in trace.operations]
        self.resident = []  # Tensors that are there at the start.
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
        # Ticks of all tasks before each one with their fastest alternatives, and of all of them.
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


class SimulatedRun:
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
        transfers += [
            Transfer(Kind.OFFLOAD, gap, *self.offloads[tensor])
            for tensor, gap in self.trace.first_gaps(self.prefetches).items()
        ]
        return Schedule(self.starts, self.ends, transfers)


def bytes_of(transfers: Sequence[Transfer], trace: Trace) -> int:
    """Return the bytes that transfers move together."""
    return sum(trace.gap_size(transfer.gap) for transfer in transfers)


WORKSPACE = -2
"""The block of the workspace of the task at hand. By definition."""


@dataclass(slots=True)
class Block:
    """A tensor that has been made and is needed again.

    It arrived when it was made or came back, and has been used since or not. It settled when nobody
    was using it any more: at the end of its last use so far. Its copy on the host may be complete.
    """

    arrived: int
    settled: int
    used: bool = False
    copied: int | None = None


class Memory:
    """The pool, the tensors in it and on the host, and the link."""

    def __init__(self, view: TaskView, size: int) -> None:
        self.view = view
        self.pool = MemoryPool(size)
        # Every tensor that is alive, wherever it is.
        self.blocks: dict[int, Block] = {}
        # Until when the link is busy: the paper has one stream for both directions.
        self.link = 0
        self.record = SimulatedRun(view.trace)
        self.defragmentations = 0  # How often everything was vacated.
        # Held ones first, so that they cut nothing in two.
        for tensor in sorted(view.resident, key=lambda each: view.evictable[each]):
            self.blocks[tensor] = Block(0, 0)
            if self._place(tensor, view.sizes[tensor], 0) is None:
                raise NoPlanError("what is resident at the start does not fit into the memory")

    def absent(self, tensors: Iterable[int]) -> list[int]:
        """Return those of some tensors that are alive and on the host only."""
        return [
            each
            for each in tensors
            if each not in self.pool and self.view.sizes[each] and each in self.blocks
        ]

    def _place(self, block: int, size: int, start: int) -> int | None:
        """Put a block somewhere; return from when on it may lie there, or None."""
        if size == 0:
            return start
        segment = self.pool.find(size)
        if segment is None:
            return None
        return self._put(segment, block, size, start)

    def _put(self, segment: PoolPart, block: int, size: int, start: int) -> int:
        start = max(start, self.pool.take(segment, block, size))
        self.record.begin(block, segment.address, start)
        return start

    def allocate(self, block: int, size: int, now: int, task: int, until: int) -> int | None:
        """Put a block into the pool, and vacate room for it if there is none; return from when on.

        Blocks that are needed no later than by task `until` stay. None if there is no scheme.
        """
        start = self._place(block, size, now)
        if start is not None:
            return start
        scheme = self.scheme(size, now, task, until)
        if scheme is None:
            return None
        # What is vacated may be joined to a free segment that is free only later.
        address, start = scheme.first.address, max(now, scheme.ready)
        for each in scheme.blocks:
            self.vacate(each)
        self.pool.take_at(address, block, size)
        self.record.begin(block, address, start)
        return start

    def scheme(self, size: int, now: int, task: int, until: int) -> Scheme | None:
        """Return the offloading scheme of least delay (§5.2.1)."""

        def leaving(block: int, link: int) -> tuple[int, int] | None:
            if not self._may_leave(block, task, until):
                return None
            state = self.blocks[block]
            if state.copied is not None:
                return max(state.settled, state.copied), link
            link = max(link, state.arrived) + self.view.out_time[block]
            return max(state.settled, link), link

        def rank(blocks: tuple[int, ...]) -> tuple[int, int]:
            needed = min(
                (self.view.next_use(each, task) for each in blocks), default=len(self.view.ways)
            )
            return -needed, sum(map(self._moved, blocks))

        return best_scheme(self.pool, size, leaving, self.link, now, rank)

    def _may_leave(self, block: int, task: int, until: int) -> bool:
        """Apply the two criteria: it has been used, and is not about to be used."""
        # What the task at hand writes is not among the blocks yet.
        state = self.blocks.get(block)
        if state is None or not state.used or not self.view.evictable[block]:
            return False
        return self.view.next_use(block, task) > until

    def _moved(self, block: int) -> int:
        return 0 if self.blocks[block].copied is not None else self.view.sizes[block]

    def vacate(self, block: int) -> None:
        """Let a tensor leave: its first copy is written to the host, later ones are given up."""
        state = self.blocks[block]
        if state.copied is None:
            start = max(self.link, state.arrived)
            self.link = state.copied = start + self.view.out_time[block]
            self.record.offloads[block] = (start, state.copied)
        self._release(block, max(state.settled, state.copied, state.arrived))

    def _release(self, block: int, since: int) -> None:
        if block not in self.pool:
            return
        self.pool.release(block, since)
        name = "workspace" if block == WORKSPACE else self.view.trace.tensors[block].name
        size = self.view.sizes[block] if block >= 0 else self._workspace
        self.record.end(block, name, size, since)

    def bring(self, tensor: int, task: int, start: int) -> int:
        """Bring a tensor back for a task; return when it has arrived."""
        start = max(self.link, start)
        self.link = start + self.view.back_time[tensor]
        state = self.blocks[tensor]
        state.arrived = state.settled = self.link
        state.used = False
        uses = self.view.uses[tensor]
        before = max(use for use in uses if use < task)
        self.record.returned(tensor, before, task, start, self.link)
        return self.link

    def hold_workspace(self, size: int, now: int, task: int) -> int | None:
        """Take a workspace for a task; return from when on it is there, or None."""
        self._workspace = size
        return self.allocate(WORKSPACE, size, now, task, task) if size else now

    def finish(self, task: int, start: int, end: int) -> None:
        """Note that a task has run, and free what nobody needs after it (lines 28 to 31)."""
        self.record.starts.append(start)
        self.record.ends.append(end)
        for tensor in self.view.outputs[task]:
            self.blocks[tensor] = Block(end, end)
        for tensor in self.view.inputs[task]:
            state = self.blocks[tensor]
            state.used, state.settled = True, end
        self._release(WORKSPACE, end)
        for tensor in self.view.dying[task]:
            self._release(tensor, end)
            del self.blocks[tensor]

    def defragment(self, task: int, now: int) -> int:
        """Vacate everything but what is held from the start, then bring back what has to be there.

        That is what a task reads, and what may not leave, such as a chain's gradients: for these
        the schedule has no transfer, but they come to lie elsewhere.
        """
        self.defragmentations += 1
        view = self.view
        outputs = view.outputs[task]
        for tensor in outputs:
            if tensor in self.pool:
                self._release(tensor, now)
        # Held ones lie side by side at the lowest addresses.
        held = {each for each in view.resident if not view.evictable[each]}
        there = [each for each in self.blocks if each in self.pool and each not in held]
        kept = [each for each in there if not view.evictable[each]]
        for tensor in sorted(there, key=lambda each: self.pool.segment[each].address):
            self.vacate(tensor)
        end = max(now, self.link)
        for tensor in self.absent(dict.fromkeys([*kept, *view.inputs[task]])):
            start = self._place(tensor, view.sizes[tensor], max(end, self.link))
            if start is None:
                raise self.no_room(task)
            end = self.bring(tensor, task, start)
        for tensor in outputs:
            if self._place(tensor, view.sizes[tensor], end) is None:
                raise self.no_room(task)
        return end

    def no_room(self, task: int) -> NoPlanError:
        """Return the error that a task does not fit, whatever leaves."""
        name = self.view.trace.operations[task].name
        return NoPlanError(f"moDNN finds no room for what {name} reads and writes")
