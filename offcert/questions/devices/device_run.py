"""`DeviceRun`: one device's step, run operation by operation between transfers that others allow.

The same rules as `offcert.questions.schedule.simulate`: what takes memory (operations and
prefetches) happens in the plan's order, each as early as its predecessors, its data, the link and
the memory allow.
"""

from __future__ import annotations

from bisect import insort
from collections import deque

from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer


class DeviceRun:
    """A device in the middle of its step, which follows a plan of its own problem.

    A `PlanError` says that the plan is inconsistent, or that what is resident at the start does not
    fit.
    """

    def __init__(self, problem: Problem, plan: Plan) -> None:
        trace = problem.trace
        plan.require_consistent(trace)
        memory = problem.platform.memory
        if trace.resident_at_start > memory:
            raise PlanError("what is resident at the start does not fit into the memory")
        self._trace = trace
        self._platform = problem.platform
        self._starts: list[int] = []
        self._required = [demand - memory for demand in trace.demand]
        self._idle_required = [live - memory for live in trace.live_before]
        moves = {kind: [move for move in plan.moves if move.kind is kind] for kind in Kind}
        self._offloads = deque(moves[Kind.OFFLOAD])
        self._prefetches = deque(moves[Kind.PREFETCH])
        self._evicted = set(plan.evicted)
        self._opened: dict[int, list[int]] = {}
        self._closed: dict[int, list[int]] = {}
        self._of_tensor: dict[int, list[int]] = {}
        for gap in self._evicted:
            found = trace.gaps[gap]
            self._opened.setdefault(found.before, []).append(gap)
            self._closed.setdefault(found.after, []).append(gap)
            self._of_tensor.setdefault(found.tensor, []).append(gap)
        self._copied: dict[int, int] = {}
        self._released: dict[int, int] = {}
        self._returned: dict[int, int] = {}
        # Releases to come, by time, and bytes that have been released and not claimed again.
        self._pending: list[tuple[int, int]] = []
        self._absent = 0
        self._claim = 0
        self._transfers: list[Transfer] = []

    def end_of(self, operation: int) -> int | None:
        """Return when an operation ends (-1: the start); None if it is not known yet."""
        if operation < 0:
            return 0
        if operation >= len(self._starts):
            return None
        return self._starts[operation] + self._trace.durations[operation]

    @property
    def _end(self) -> int:
        found = self.end_of(len(self._starts) - 1)
        assert found is not None
        return found

    def waiting(self) -> list[Move]:
        """Return the next offload and the next prefetch of the plan."""
        return [queue[0] for queue in (self._offloads, self._prefetches) if queue]

    def advance(self) -> None:
        """Run operations until one needs a transfer that has not been granted."""
        trace = self._trace
        while len(self._starts) < len(trace):
            operation = len(self._starts)
            if self._prefetches and self._prefetches[0].before <= operation:
                return
            earliest = max(self._claim, self._end)
            for gap in self._closed.get(operation, ()):
                if gap not in self._returned:
                    return
                earliest = max(earliest, self._returned[gap])
            start = self._settle(earliest, self._required[operation])
            if start is None:
                return
            self._claim = start
            self._starts.append(start)
            end = start + trace.durations[operation]
            for gap in self._opened.get(operation, ()):
                copied = self._copied.get(trace.gaps[gap].tensor)
                if copied is not None:
                    self._release(gap, max(end, copied))

    def earliest(self, move: Move, free: int) -> int | None:
        """Return when a transfer can start on a link that is free from `free` on; None: unknown."""
        gap = self._trace.gaps[move.gap]
        if move.kind is Kind.OFFLOAD:
            if not self._offloads or self._offloads[0] is not move:
                return None
            written = self.end_of(self._trace.tensors[gap.tensor].uses[0])
            return None if written is None else max(free, written)
        if not self._prefetches or self._prefetches[0] is not move:
            return None
        if move.before != len(self._starts) or move.gap not in self._released:
            return None
        return self._room(max(self._claim, self._released[move.gap], free), move.gap)

    def take(self, move: Move, start: int) -> int:
        """Do a transfer at a time that `earliest` has named; return its end."""
        size = self._trace.gap_size(move.gap)
        end = start + self._platform.transfer_time(size, move.kind)
        self._transfers.append(Transfer(move.kind, move.gap, start, end))
        if move.kind is Kind.PREFETCH:
            self._prefetches.popleft()
            self._absorb(start)
            self._absent -= size
            self._claim = start
            self._returned[move.gap] = end
            return end
        self._offloads.popleft()
        tensor = self._trace.gaps[move.gap].tensor
        self._copied[tensor] = end
        for gap in self._of_tensor.get(tensor, ()):
            opened = self.end_of(self._trace.gaps[gap].before)
            if opened is not None:
                self._release(gap, max(end, opened))
        return end

    def trouble(self) -> str | None:
        """Return the operation or transfer that can never happen; None if the step has ended."""
        operation = len(self._starts)
        if operation < len(self._trace):
            name = self._trace.operations[operation].name
            return f"operation {operation} ({name}) waits for memory or a transfer that never comes"
        if self._offloads or self._prefetches:
            return f"the {self.waiting()[0].kind} of gap {self.waiting()[0].gap} never happens"
        return None

    def schedule(self) -> Schedule:
        """Return the schedule of a step that has ended."""
        pairs = zip(self._starts, self._trace.durations, strict=True)
        return Schedule(self._starts, [start + ticks for start, ticks in pairs], self._transfers)

    # Memory.

    def _release(self, gap: int, time: int) -> None:
        self._released[gap] = time
        insort(self._pending, (time, self._trace.gap_size(gap)))

    def _settle(self, earliest: int, need: int) -> int | None:
        """Return from when on `need` bytes are absent; take note of all released until then."""
        time = self._when(earliest, need)
        if time is not None:
            self._absorb(time)
        return time

    def _when(self, earliest: int, need: int) -> int | None:
        absent = self._absent
        for time, size in self._pending:
            if time > earliest and absent >= need:
                break
            earliest = max(earliest, time)
            absent += size
        return earliest if absent >= need else None

    def _absorb(self, time: int) -> None:
        while self._pending and self._pending[0][0] <= time:
            self._absent += self._pending.pop(0)[1]

    def _room(self, earliest: int, gap: int) -> int | None:
        """Return when a prefetch before the next operation finds room."""
        operation, size = len(self._starts), self._trace.gap_size(gap)
        if earliest < self._end:
            # While the previous operation runs, its workspace is in the way.
            time = self._when(earliest, self._required[operation - 1] + size)
            if time is not None and time < self._end:
                return time
        return self._when(max(earliest, self._end), self._idle_required[operation] + size)
