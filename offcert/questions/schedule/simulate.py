"""The no-wait simulator: a plan becomes the earliest schedule that follows it.

A plan orders the *claims* (starts of operations and of prefetches, which take memory) totally, and
the transfers on each link. Releases happen as soon as they can. Executing the claims in order, each
as early as its predecessors, its data, the link and the memory allow, is then optimal for the plan:
starting one later delays everything after it and releases nothing earlier (Prop. 1 of the
offloading paper, which needs the claims' order besides the transfers' to hold). Where the two
directions of the link slow each other down, starting later may pay, and the schedule is one that
is possible, not always the shortest; searches count with rates that nothing slows down.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from offcert.core.compiled import BoolArray, IntArray, inlined, inlined_and_entered
from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.slowing import Lasting, settled

# Outcomes of the kernel that are no makespan. By definition.
_OUT_OF_TURN = -1
_NOT_BACK = -2
_NO_MEMORY = -3
_NO_MEMORY_FOR_PREFETCH = -4
_NO_ROOM_AT_START = -5

# The end of a transfer that is not known yet. By definition.
_UNKNOWN = -1


class Simulator:
    """Evaluates plans on one problem, whose transfers are taken as atomic."""

    def __init__(self, problem: Problem) -> None:
        trace = problem.trace
        gaps = trace.gaps
        memory = problem.platform.memory
        self.problem = problem
        self.trace = trace
        # An entry a gap: index of its tensor, its bytes, and the ticks of a transfer in either
        # direction while the other does not run.
        self.gap_tensor = _array(gap.tensor for gap in gaps)
        self.gap_size = _array(trace.gap_size(index) for index in range(len(gaps)))
        self.offload_time, self.prefetch_time = (
            _array(
                problem.platform.transfer_time(trace.gap_size(index), kind)
                for index in range(len(gaps))
            )
            for kind in (Kind.OFFLOAD, Kind.PREFETCH)
        )
        self._fits_at_start = trace.resident_at_start <= memory
        # The problem's numbers, as `run_claims` reads them.
        self.tables = (
            _array(trace.durations),
            _array(trace.demand) - memory,
            _array(trace.live_before) - memory,
            _array(gap.before for gap in gaps),
            self.gap_tensor,
            _array(trace.tensors[gap.tensor].uses[0] for gap in gaps),
            self.gap_size,
            self.offload_time,
            self.prefetch_time,
            *_by_operation([gap.before for gap in gaps], len(trace)),
            *_by_operation([gap.after for gap in gaps], len(trace)),
        )
        # `run_claims` writes the operations' starts to the first; the rest is its own.
        self.scratch: tuple[IntArray, ...] = (
            np.zeros(len(trace), dtype=np.int64),
            np.zeros((5, len(gaps) + 1), dtype=np.int64),
            np.zeros(len(trace.tensors), dtype=np.int64),
            np.zeros(2, dtype=np.int64),
        )

    def evaluate(self, prefetch: BoolArray, gap: IntArray, before: IntArray) -> int:
        """Return the makespan of a plan given as arrays, or a negative number if it gets stuck.

        No transfer is slowed down: where the link can do that, the plan's schedule may take longer.

        There is an entry a move: whether it is a prefetch, and as in `Move`. The plan must be
        consistent (`Plan.require_consistent`).
        """
        return self._run(prefetch, gap, before, np.empty(len(gap), dtype=np.int64), self.tables)

    def _run(
        self,
        prefetch: BoolArray,
        gap: IntArray,
        before: IntArray,
        move_start: IntArray,
        tables: tuple[IntArray, ...],
    ) -> int:
        if not self._fits_at_start:
            return _NO_ROOM_AT_START
        return int(
            run_claims(
                tables,
                self.problem.platform.duplex,
                prefetch,
                gap,
                before,
                move_start,
                *self.scratch,
            )
        )

    def run(self, plan: Plan) -> Schedule:
        """Return the schedule of `plan`.

        A `PlanError` says that the plan is inconsistent or gets stuck; the message says where.
        """
        plan.require_consistent(self.trace)
        return settled(self.problem, partial(self.timed, plan))

    def timed(self, plan: Plan, lasts: Lasting) -> Schedule:
        """Return the schedule in which transfers last as long as is said, or else alone.

        A `PlanError` says that the plan, which is consistent, gets stuck; the message says where.
        """
        ticks = {Kind.OFFLOAD: self.offload_time, Kind.PREFETCH: self.prefetch_time}
        if lasts:
            ticks = {kind: alone.copy() for kind, alone in ticks.items()}
            for (kind, gap), duration in lasts.items():
                ticks[kind][gap] = duration
        tables = (*self.tables[:7], *ticks.values(), *self.tables[9:])
        move_start = np.zeros(len(plan.moves), dtype=np.int64)
        code = self._run(*moves_to_arrays(plan.moves), move_start, tables)
        if code < 0:
            raise PlanError(self._explain(code))
        starts = [int(start) for start in self.scratch[0]]
        ends = [
            start + duration for start, duration in zip(starts, self.trace.durations, strict=True)
        ]
        transfers = [
            Transfer(move.kind, move.gap, int(start), int(start + ticks[move.kind][move.gap]))
            for move, start in zip(plan.moves, move_start, strict=True)
        ]
        return Schedule(starts, ends, transfers)

    def _explain(self, code: int) -> str:
        if code == _NO_ROOM_AT_START:
            return "what is resident at the start does not fit into the memory"
        index, lacking = map(int, self.scratch[3])
        operation = f"operation {index} ({self.trace.operations[index].name})"
        if code == _OUT_OF_TURN:
            return f"a prefetch due before {operation} has to wait for something that comes later"
        if code == _NOT_BACK:
            return f"{operation} needs a tensor that has left and is not on its way back"
        whom = operation if code == _NO_MEMORY else f"a prefetch due before {operation}"
        return f"{whom} lacks {lacking} bytes and nothing more will be released before it"


def simulate(problem: Problem, plan: Plan) -> Schedule:
    """Return the no-wait schedule of `plan` on `problem`, with atomic transfers.

    Raises
    ------
    PlanError
        If the plan is inconsistent or gets stuck; the message says where.
    """
    return Simulator(problem).run(plan)


def moves_to_arrays(moves: tuple[Move, ...]) -> tuple[BoolArray, IntArray, IntArray]:
    """Return moves as arrays (is a prefetch, gap, before), for `Simulator.evaluate`."""
    return (
        np.array([move.kind is Kind.PREFETCH for move in moves], dtype=np.bool_),
        _array(move.gap for move in moves),
        _array(move.before for move in moves),
    )


def _array(values: Iterable[int]) -> IntArray:
    return np.array(list(values), dtype=np.int64)


def _by_operation(keys: list[int], operations: int) -> tuple[IntArray, IntArray]:
    """Group indices by key: those of key `k` are ``members[first[k + 1]:first[k + 2]]``.

    Keys run from -1 to ``operations - 1``.
    """
    members = sorted(range(len(keys)), key=lambda index: keys[index])
    first = np.searchsorted([keys[index] for index in members], np.arange(-1, operations + 1))
    return first.astype(np.int64), _array(members)


@inlined_and_entered
def run_claims(
    tables: tuple[IntArray, ...],
    duplex: bool,
    prefetch: BoolArray,
    move_gap: IntArray,
    move_before: IntArray,
    move_start: IntArray,
    starts: IntArray,
    state: IntArray,
    copied: IntArray,
    trouble: IntArray,
) -> int:
    """Execute the claims in order; return the makespan or a negative code.

    ``absent`` counts the bytes that have been released and not claimed again. Releases that are
    known but lie in the future wait, ordered by time, in ``times`` and ``sizes`` between ``head``
    and ``tail``, until a claim reaches or needs them; so every claim costs little.
    """
    durations, required, idle_required, gap_before, gap_tensor, gap_writer = tables[:6]
    gap_size, offload_time, prefetch_time = tables[6:9]
    open_first, open_member, close_first, close_member = tables[9:]
    times, sizes, evicted, released, returned = state
    for index in range(len(evicted)):
        evicted[index] = 0
    for index in range(len(move_gap)):
        if prefetch[index]:
            evicted[move_gap[index]] = 1
            released[move_gap[index]] = _UNKNOWN
            returned[move_gap[index]] = _UNKNOWN
        else:
            copied[gap_tensor[move_gap[index]]] = _UNKNOWN
    moves = len(move_gap)
    offload = _following(prefetch, -1, False)
    fetch = _following(prefetch, -1, True)
    head = tail = 0
    absent = claim = end = free = free_back = 0
    for operation in range(len(durations)):
        while True:
            if offload < moves and (duplex or offload < fetch):
                gap = move_gap[offload]
                writer = gap_writer[gap]
                if writer < operation:
                    written = starts[writer] + durations[writer] if writer >= 0 else 0
                    move_start[offload] = max(free, written)
                    free = move_start[offload] + offload_time[gap]
                    tensor = gap_tensor[gap]
                    copied[tensor] = free
                    while gap < len(gap_tensor) and gap_tensor[gap] == tensor:
                        opened = gap_before[gap]
                        if evicted[gap] and opened < operation:
                            at = starts[opened] + durations[opened] if opened >= 0 else 0
                            released[gap] = max(free, at)
                            tail = _insert(times, sizes, head, tail, released[gap], gap_size[gap])
                        gap += 1
                    offload = _following(prefetch, offload, False)
                    continue
            if fetch < moves and (duplex or fetch < offload):
                gap = move_gap[fetch]
                if move_before[fetch] < operation:
                    trouble[0] = move_before[fetch]
                    return _OUT_OF_TURN
                if move_before[fetch] == operation and released[gap] != _UNKNOWN:
                    earliest = max(claim, released[gap], free_back if duplex else free)
                    size = gap_size[gap]
                    # While the previous operation still runs its workspace is in the way; after
                    # that, only what lives on is.
                    time = _UNKNOWN
                    if earliest < end:
                        need = required[operation - 1] + size
                        at, to, sum_ = _settle(times, sizes, head, tail, absent, earliest, need)
                        if at != _UNKNOWN and at < end:
                            time, head, absent = at, to, sum_
                    if time == _UNKNOWN:
                        need = idle_required[operation] + size
                        time, head, absent = _settle(
                            times, sizes, head, tail, absent, max(earliest, end), need
                        )
                        if time == _UNKNOWN:
                            trouble[0] = operation
                            trouble[1] = need - absent
                            return _NO_MEMORY_FOR_PREFETCH
                    absent -= size
                    claim = time
                    move_start[fetch] = time
                    returned[gap] = time + prefetch_time[gap]
                    if duplex:
                        free_back = returned[gap]
                    else:
                        free = returned[gap]
                    fetch = _following(prefetch, fetch, True)
                    continue
            break
        earliest = max(claim, end)
        for place in range(close_first[operation + 1], close_first[operation + 2]):
            gap = close_member[place]
            if evicted[gap]:
                if returned[gap] == _UNKNOWN:
                    trouble[0] = operation
                    return _NOT_BACK
                earliest = max(earliest, returned[gap])
        claim, head, absent = _settle(
            times, sizes, head, tail, absent, earliest, required[operation]
        )
        if claim == _UNKNOWN:
            trouble[0] = operation
            trouble[1] = required[operation] - absent
            return _NO_MEMORY
        starts[operation] = claim
        end = claim + durations[operation]
        for place in range(open_first[operation + 1], open_first[operation + 2]):
            gap = open_member[place]
            if evicted[gap] and copied[gap_tensor[gap]] != _UNKNOWN:
                released[gap] = max(end, copied[gap_tensor[gap]])
                tail = _insert(times, sizes, head, tail, released[gap], gap_size[gap])
    return end


@inlined
def _following(prefetch: BoolArray, index: int, kind: bool) -> int:
    """Return the first move after `index` of the given kind, or the number of moves."""
    index += 1
    while index < len(prefetch) and prefetch[index] != kind:
        index += 1
    return index


@inlined
def _settle(
    times: IntArray, sizes: IntArray, head: int, tail: int, absent: int, time: int, need: int
) -> tuple[int, int, int]:
    """Absorb releases up to `time`, and on until `need` bytes are absent.

    It returns time, head and absent; time is -1 if that never happens.
    """
    while head < tail and (times[head] <= time or absent < need):
        time = max(time, times[head])
        absent += sizes[head]
        head += 1
    if absent < need:
        time = _UNKNOWN
    return time, head, absent


@inlined
def _insert(times: IntArray, sizes: IntArray, head: int, tail: int, time: int, size: int) -> int:
    """Insert a release into the pending ones, which stay ordered by time; return the new tail."""
    place = tail
    while place > head and times[place - 1] > time:
        times[place] = times[place - 1]
        sizes[place] = sizes[place - 1]
        place -= 1
    times[place] = time
    sizes[place] = size
    return tail + 1
