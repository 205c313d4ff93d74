"""Algorithm 1 of the moDNN paper: transfers, addresses and convolution algorithms, task by task.

Chen et al., TPDS 2019, §5.2. It simulates the execution in the order of the tasks; before each it
makes room and loads what is missing (lines 3 to 8), chooses an alternative (9 to 14) and decides
what is prefetched for later tasks (15 to 27). How we read what the paper leaves open is in
docs/theory/modnn.md.

`upgraded` then takes faster alternatives where a schedule leaves room for their workspace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.core.units import Units
from offcert.heuristics.modnn.memory import Memory, SimulatedRun, TaskView
from offcert.heuristics.modnn.schemes import Scheme
from offcert.questions.placement.problem import Placement, PlacementProblem
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.split.menu import Alternative, Menu


def free_workspace(trace: Trace, schedule: Schedule, memory: int) -> list[int]:
    """Return the bytes that a schedule leaves free for the workspace of each operation."""
    operations = trace.operations
    room = [memory - need + o.workspace for need, o in zip(trace.demand, operations, strict=True)]
    copied = {
        trace.gaps[transfer.gap].tensor: transfer.end
        for transfer in schedule.transfers
        if transfer.kind is Kind.OFFLOAD
    }
    for transfer in schedule.transfers:
        if transfer.kind is not Kind.PREFETCH:
            continue
        gap = trace.gaps[transfer.gap]
        gone = copied[gap.tensor]
        for operation in range(gap.before + 1, gap.after):
            if gone <= schedule.starts[operation] and transfer.start >= schedule.ends[operation]:
                room[operation] += trace.tensors[gap.tensor].size
    return room


def upgraded(trace: Trace, menu: Menu, schedule: Schedule, memory: int) -> tuple[int, ...] | None:
    """Return the fastest alternatives that fit into what a schedule leaves free.

    The plan of the schedule can then still be followed: what returns may have to wait for an
    operation that now takes longer, but for nothing that comes after it.
    """
    room = free_workspace(trace, schedule, memory)
    choice = []
    for operation, row in menu.offers:
        fits = [number for number, way in enumerate(row) if way.workspace <= room[operation]]
        if not fits:
            return None
        choice.append(min(fits, key=lambda number: (row[number].duration, row[number].workspace)))
    return tuple(choice)


def gain(memory: Memory, task: int, now: int, way: Alternative, base: Alternative) -> int | None:
    """Return the gain of an alternative over the one of least workspace (Eq. 10), in ticks.

    None if there is no room for its workspace, whatever leaves.
    """
    scheme: Scheme | None = None
    delay = 0
    if way.workspace:
        segment = memory.pool.find(way.workspace)
        if segment is not None:
            delay = max(0, segment.since - now)
        else:
            scheme = memory.scheme(way.workspace, now, task, task)
            if scheme is None:
                return None
            delay = max(0, scheme.ready - now)
    late = _delayed(memory, task, way.workspace, scheme) if way.workspace else 0
    return base.duration - way.duration - delay - late


def _delayed(memory: Memory, task: int, size: int, scheme: Scheme | None) -> int:
    """Return the ticks of the prefetches for the next task in need that a workspace delays.

    Those are delayed that would start now (Eq. 9) and find room without the workspace only.
    """
    view = memory.view
    away = memory.absent(memory.blocks)
    if not away:
        return 0
    nearest = min(view.next_use(tensor, task + 1) for tensor in away)
    missing = [each for each in away if view.next_use(each, task + 1) == nearest]
    if not view.is_due(task, nearest, missing):
        return 0
    without = _fitting(_free(memory, None), missing, view.sizes)
    room = _free(memory, scheme)
    _fit(room, size)
    return sum(view.back_time[each] for each in without - _fitting(room, missing, view.sizes))


def _free(memory: Memory, scheme: Scheme | None) -> list[int]:
    """Return the sizes of the free segments, once a scheme has been carried out."""
    gone = frozenset(scheme.blocks) if scheme is not None else frozenset()
    sizes = [0]
    for segment in memory.pool.segments:
        if segment.block is None or segment.block in gone:
            sizes[-1] += segment.size
        elif sizes[-1]:
            sizes.append(0)
    return sizes


def _fitting(room: list[int], tensors: Iterable[int], sizes: list[int]) -> set[int]:
    """Return those of some tensors that fit into free segments, one after the other."""
    room = list(room)
    return {tensor for tensor in tensors if _fit(room, sizes[tensor])}


def _fit(room: list[int], size: int) -> bool:
    """Take a piece of the free segments: exact fit first, then first fit."""
    places = [place for place, free in enumerate(room) if free >= size]
    if not places:
        return False
    place = next((each for each in places if room[each] == size), places[0])
    room[place] -= size
    return True


@dataclass(frozen=True)
class ModnnOutcome:
    """The schedule and the algorithms that Algorithm 1 decides on."""

    choice: tuple[int, ...]  # The alternative of each operation on the menu.
    trace: Trace  # The trace with the workspaces and durations of the choice.
    # Of `trace`, with the times of the simulation. Its plan, simulated without waiting, may be
    # shorter, but then addresses need not fit.
    schedule: Schedule
    residences: PlacementProblem  # Who lies in the pool when.
    placement: Placement  # And where.
    # How often everything had to leave because no contiguous room could be made.
    defragmentations: int


def algorithm_1(problem: Problem, menu: Menu | None = None) -> ModnnOutcome:
    """Run Algorithm 1 on any trace, with or without alternatives of its operations.

    Transfers use one stream, as in the paper, also if the link is duplex. A `NoPlanError` says that
    what some task reads and writes does not fit, however the pool is arranged.
    """
    return _ScheduledRun(problem, menu or Menu()).run()


def modnn(problem: Problem) -> Plan:
    """Return the plan of Algorithm 1 for a trace whose algorithms are chosen."""
    outcome = algorithm_1(problem)
    return outcome.schedule.plan(outcome.trace)


class _ScheduledRun:
    def __init__(self, problem: Problem, menu: Menu) -> None:
        self.problem = problem
        self.menu = menu
        trace = problem.trace
        menu.require_fits(trace)
        self.view = TaskView(trace, menu, problem.platform)
        self.memory = Memory(self.view, problem.platform.memory)
        self.chosen: dict[int, int] = {}

    def run(self) -> ModnnOutcome:
        now = 0
        for task in range(len(self.view.ways)):
            now = self._prepare(task, now)
            way, now = self._choose(task, now)
            duration = self.view.ways[task][way].duration
            self._prefetch(task, now)
            self.memory.finish(task, now, now + duration)
            now += duration
        return self._outcome()

    def _prepare(self, task: int, now: int) -> int:
        """Make room for what a task reads and writes, and load what is missing (lines 3 to 8)."""
        memory, view = self.memory, self.view
        ready = now
        for tensor in memory.absent(view.inputs[task]):
            start = memory.allocate(tensor, view.sizes[tensor], now, task, task)
            if start is None:
                return memory.defragment(task, ready)
            ready = max(ready, memory.bring(tensor, task, start))
        for tensor in view.outputs[task]:
            start = memory.allocate(tensor, view.sizes[tensor], now, task, task)
            if start is None:
                return memory.defragment(task, ready)
            ready = max(ready, start)
        # What was sent for before may still be on its way.
        return max([ready, *(memory.blocks[each].arrived for each in view.inputs[task])])

    def _choose(self, task: int, now: int) -> tuple[int, int]:
        """Choose the alternative of the largest gain, and take its workspace (lines 9 to 14)."""
        ways = self.view.ways[task]
        base = min(ways, key=lambda way: (way.workspace, way.duration))
        gains = (
            (gain(self.memory, task, now, way, base), number) for number, way in enumerate(ways)
        )
        ranked = sorted(
            ((-each, ways[number].workspace, number) for each, number in gains if each is not None)
        )
        way = ranked[0][2] if ranked else ways.index(base)
        start = self.memory.hold_workspace(ways[way].workspace, now, task)
        if start is None:
            now = self.memory.defragment(task, now)
            start = self.memory.hold_workspace(ways[way].workspace, now, task)
            if start is None:
                raise self.memory.no_room(task)
        self.chosen[task] = way
        return way, max(now, start)

    def _prefetch(self, task: int, now: int) -> None:
        """Send for what later tasks read, if it is time and will be of use (lines 15 to 27)."""
        memory, view = self.memory, self.view
        away = memory.absent(memory.blocks)
        for later in sorted({view.next_use(tensor, task + 1) for tensor in away}):
            missing = memory.absent(view.inputs[later])
            if not view.is_due(task, later, missing) or not self._is_useful(task, later):
                return
            for tensor in missing:
                start = memory.allocate(tensor, view.sizes[tensor], now, task, later)
                if start is None:
                    return
                memory.bring(tensor, later, start)

    def _is_useful(self, task: int, later: int) -> bool:
        """Predict whether a later task finds room without everything having to leave (line 16).

        At best, all is gone by then that has been used by then and is not used at once; all that
        is sent for before has come and been used.
        """
        memory, view = self.memory, self.view
        held = 0
        for block in memory.pool.segment:
            if block < 0:
                continue
            following = view.next_use(block, task)
            stays = not view.evictable[block] and view.uses[block][-1] >= later
            # Used by then: by the task at hand, or by one between it and the later one.
            unused = following > later and following < len(view.ways)
            if stays or (unused and not self._used(block, task)):
                held += view.sizes[block]
        for between in range(task + 1, later):
            for tensor in view.outputs[between]:
                last = view.uses[tensor][-1]
                unused = view.next_use(tensor, between + 1) > later and last > later
                if unused or (not view.evictable[tensor] and last >= later):
                    held += view.sizes[tensor]
        wanted = sum(view.sizes[each] for each in view.inputs[later] if view.evictable[each])
        wanted += sum(view.sizes[each] for each in view.outputs[later])
        return held + wanted <= memory.pool.size

    def _used(self, block: int, task: int) -> bool:
        """Whether a block has been used since it came, when the task at hand has ended."""
        state = self.memory.blocks.get(block)
        return state is not None and (state.used or block in self.view.inputs[task])

    def _outcome(self) -> ModnnOutcome:
        record: SimulatedRun = self.memory.record
        choice = tuple(self.chosen[operation] for operation, _ in self.menu.offers)
        trace = self.menu.chosen(self.problem.trace, choice) if choice else self.problem.trace
        schedule = record.schedule()
        units = Units(self.problem.units.time, self.problem.units.size)
        residences = PlacementProblem(
            self.problem.name, record.residences, self.problem.platform.memory, units=units
        )
        placement = Placement(record.addresses)
        found = self.memory.defragmentations
        return ModnnOutcome(choice, trace, schedule, residences, placement, found)
