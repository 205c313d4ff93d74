"""Plans followed in their fixed order on a problem: the earliest times, or where they get stuck.

The simulator does the same, compiled, for who searches. This is the definition read again for who
verifies: what takes memory does so in the plan's order, transfers use the link in the plan's order,
and everything is as early as that lets it be. Then all starts can only grow with durations and
transfer times, and fall with memory; whether the plan gets stuck does not depend on times at all
(docs/theory/uncertain-times.md). Where the directions of the link slow each other down, transfers
last as long as the checker says (docs/theory/slowing-links.md); starts may fall then.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.questions.schedule.check import BusyTicks, exact_durations
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.presence import after, during, held_at_stations
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer


def replay(problem: Problem, plan: Plan, handed: Sequence[int] = ()) -> Schedule:
    """Return the earliest schedule of `problem` that has the order of a plan.

    Everything runs once in the problem, and its transfers are taken as atomic. The host may have
    `handed` each operation over at a time before which it does not end: the schedule is then one of
    longer operations. Raises `PlanError`, which says where, if the plan makes no sense for the
    trace, or gets stuck.
    """
    plan.require_consistent(problem.trace)
    schedule = _Replay(problem, plan, {}, handed).run()
    while problem.platform.slows:
        # The first time at which something is wrong is later each time.
        lasts = {
            (each.kind, each.gap): ticks
            for each, ticks in zip(
                schedule.transfers, exact_durations(problem, schedule), strict=True
            )
        }
        again = _Replay(problem, plan, lasts, handed).run()
        if again == schedule:
            break
        schedule = again
    return schedule


def replay_latest(slowest: Problem, fastest: Problem, plan: Plan) -> Schedule:
    """Return times of a plan that are later at no point between two corners of a box.

    `slowest` and `fastest` are the corners. If the link of the slowest does not slow down, the
    times are those of its `replay`, which says what is raised.
    """
    if not slowest.platform.slows:
        return replay(slowest, plan)
    plan.require_consistent(slowest.trace)
    alone, busiest = slowest.platform.alone, slowest.platform.always_busy
    begins = {(t.kind, t.gap): t.start for t in replay(fastest, plan).transfers}
    slowed = set(begins)
    while True:
        lasts = {
            (kind, gap): (busiest if (kind, gap) in slowed else alone).transfer_time(
                slowest.trace.gap_size(gap), kind
            )
            for kind, gap in begins
        }
        found = _Replay(slowest, plan, lasts).run()
        # All the time in which a transfer may be under way, wherever in the box.
        spans = [Transfer(t.kind, t.gap, begins[t.kind, t.gap], t.end) for t in found.transfers]
        ticks = {kind: BusyTicks(spans, kind) for kind in Kind}
        met = {
            (span.kind, span.gap)
            for span in spans
            for kind in Kind
            if kind is not span.kind and ticks[kind].until(span.start) < ticks[kind].until(span.end)
        }
        if slowed <= met:
            return found
        slowed = met


class _Replay:
    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        lasts: dict[tuple[Kind, int], int],
        handed: Sequence[int] = (),
    ) -> None:
        self.lasts = lasts
        self.handed = handed
        self.platform = problem.platform
        self.trace = trace = problem.trace
        self.held = held_at_stations(trace)
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.transfers: list[Transfer] = []
        # One queue, or one a direction; the time at which each is free; how far each has come.
        queues = [[m for m in plan.moves if m.kind is kind] for kind in Kind]
        self.queues = queues if self.platform.duplex else [list(plan.moves)]
        self.free = [0] * len(self.queues)
        self.served = [0] * len(self.queues)
        self.claims: list[list[Move]] = [[] for _ in trace.operations]
        for move in plan.moves:
            if move.kind is Kind.PREFETCH:
                self.claims[move.before].append(move)
        self.opened: list[list[int]] = [[] for _ in range(len(trace) + 1)]
        self.closed: list[list[int]] = [[] for _ in trace.operations]
        self.gaps_of: dict[int, list[int]] = {}
        for number in plan.evicted:
            gap = trace.gaps[number]
            self.opened[gap.before].append(number)
            self.closed[gap.after].append(number)
            self.gaps_of.setdefault(gap.tensor, []).append(number)
        self.copied: dict[int, int] = {}
        self.released: dict[int, int] = {}
        self.returned: dict[int, int] = {}
        # Bytes that are away; those that will be, by time; the last moment that took memory.
        self.absent = 0
        self.pending: list[tuple[int, int]] = []
        self.claim = 0

    def run(self) -> Schedule:
        excess = self.held[after(-1)] - self.platform.memory
        if excess > 0:
            raise PlanError(f"what is resident at the start needs {excess} bytes more")
        for operation in range(len(self.trace)):
            for move in self.claims[operation]:
                self._prefetch(operation, move)
            self._operation(operation)
        return Schedule(self.starts, self.ends, self.transfers)

    def _end(self, operation: int) -> int:
        return 0 if operation < 0 else self.ends[operation]

    def _offload_what_can(self) -> None:
        """Serve offloads whose turn it is and whose tensors have been written."""
        for number, queue in enumerate(self.queues):
            while self.served[number] < len(queue):
                move = queue[self.served[number]]
                tensor = self.trace.gaps[move.gap].tensor
                writer = self.trace.tensors[tensor].uses[0]
                if move.kind is Kind.PREFETCH or writer >= len(self.ends):
                    break
                self.copied[tensor] = self._transfer(number, move, self._end(writer))
                for gap in self.gaps_of[tensor]:
                    if self.trace.gaps[gap].before < len(self.ends):
                        self._release(gap)

    def _transfer(self, queue: int, move: Move, earliest: int) -> int:
        start = max(self.free[queue], earliest)
        alone = self.platform.transfer_time(self.trace.gap_size(move.gap), move.kind)
        end = start + self.lasts.get((move.kind, move.gap), alone)
        self.transfers.append(Transfer(move.kind, move.gap, start, end))
        self.free[queue] = end
        self.served[queue] += 1
        return end

    def _release(self, gap: int) -> None:
        opened = self.trace.gaps[gap]
        time = max(self._end(opened.before), self.copied[opened.tensor])
        self.released[gap] = time
        heappush(self.pending, (time, self.trace.gap_size(gap)))

    def _absorb(self, time: int) -> None:
        while self.pending and self.pending[0][0] <= time:
            self.absent += heappop(self.pending)[1]

    def _prefetch(self, operation: int, move: Move) -> None:
        self._offload_what_can()
        queue = len(self.queues) - 1
        waiting = self.queues[queue]
        turn = self.served[queue]
        name = f"operation {operation} ({self.trace.operations[operation].name})"
        if turn == len(waiting) or waiting[turn] != move or move.gap not in self.released:
            raise PlanError(
                f"a prefetch due before {name} has to wait for something that comes later"
            )
        size = self.trace.gap_size(move.gap)
        end = self._end(operation - 1)
        time = max(self.claim, self.free[queue], self.released[move.gap])
        while True:
            self._absorb(time)
            station = during(operation - 1) if time < end else after(operation - 1)
            lacking = self.held[station] - self.absent + size - self.platform.memory
            if lacking <= 0:
                break
            chances = [self.pending[0][0]] if self.pending else []
            chances += [end] if time < end else []
            if not chances:
                raise PlanError(f"a prefetch due before {name} lacks {lacking} bytes for good")
            time = min(chances)
        self.absent -= size
        self.claim = time
        self.returned[move.gap] = self._transfer(queue, move, time)

    def _operation(self, operation: int) -> None:
        self._offload_what_can()
        name = f"operation {operation} ({self.trace.operations[operation].name})"
        time = max(self.claim, self._end(operation - 1))
        for gap in self.closed[operation]:
            if gap not in self.returned:
                raise PlanError(f"{name} needs a tensor that has left and is not on its way back")
            time = max(time, self.returned[gap])
        self._absorb(time)
        while self.held[during(operation)] - self.absent > self.platform.memory:
            if not self.pending:
                lacking = self.held[during(operation)] - self.absent - self.platform.memory
                raise PlanError(f"{name} lacks {lacking} bytes, and nothing else will leave first")
            time = self.pending[0][0]
            self._absorb(time)
        self.claim = time
        self.starts.append(time)
        end = time + self.trace.operations[operation].duration
        self.ends.append(max(end, self.handed[operation]) if self.handed else end)
        for gap in self.opened[operation]:
            if self.trace.gaps[gap].tensor in self.copied:
                self._release(gap)
