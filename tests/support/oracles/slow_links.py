"""Links whose directions slow each other down, tick by tick: a plan, and the least makespan.

At every tick what is over is over, what may begin begins, and then each transfer moves what its
rate lets it move in that tick. Nobody looks ahead: when a transfer will end is not computed. Shares
no code with the simulator, the checker, or any search; of `offcert` it reads the problem's numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem

OUT, BACK = 0, 1


class Followed(NamedTuple):
    """Starts of operations; and start and end of each transfer, by direction and gap."""

    starts: list[int]
    transfers: dict[tuple[Kind, int], tuple[int, int]]


def rates_of(problem: Problem) -> list[list[Fraction]]:
    """Return the rates to the host and from it, each alone and while both run."""
    platform = problem.platform
    out = platform.bandwidth
    back = platform.prefetch_bandwidth or out
    return [
        [rate / platform.sharing, (busy or rate) / platform.sharing]
        for rate, busy in (
            (out, platform.busy_bandwidth),
            (back, platform.busy_prefetch_bandwidth),
        )
    ]


def _held(problem: Problem, operation: int, running: bool) -> int:
    """Return the bytes of all that is needed during an operation, or between it and the next."""
    trace = problem.trace
    held = sum(
        tensor.size
        for tensor in trace.tensors
        if tensor.uses[0] <= operation <= tensor.uses[-1] - (not running)
    )
    return held + (trace.operations[operation].workspace if running else 0)


def follow(problem: Problem, plan: Plan, most: int = 100_000) -> Followed:
    """Follow a plan that does not get stuck: everything begins as soon as its turn has come."""
    run = _Run(problem, plan)
    for _ in range(most):
        while run.end_transfers() or run.start_offload() or run.claim():
            pass
        if run.over:
            return Followed(run.starts, run.transfers)
        run.tick()
    raise AssertionError("the plan gets stuck")


class _Run:
    """A plan at a tick."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.trace, self.rates = problem, problem.trace, rates_of(problem)
        self.now = 0
        self.evicted = {move.gap for move in plan.moves if move.kind is Kind.PREFETCH}
        self.offloads = [move.gap for move in plan.moves if move.kind is Kind.OFFLOAD]
        # What takes memory, in order: prefetches by their gaps, and operations.
        self.claims: list[tuple[bool, int]] = []
        for operation in range(len(self.trace)):
            for move in plan.moves:
                if move.kind is Kind.PREFETCH and move.before == operation:
                    self.claims.append((True, move.gap))
            self.claims.append((False, operation))
        self.starts: list[int] = []
        self.transfers: dict[tuple[Kind, int], tuple[int, int]] = {}
        self.copied: set[int] = set()
        self.returned: set[int] = set()
        self.claimed: set[int] = set()
        # In each direction: the gap, when it began, the bytes that are still to be moved.
        self.active: list[tuple[int, int, Fraction] | None] = [None, None]

    @property
    def done(self) -> int:
        """How many operations have ended."""
        rows = zip(self.starts, self.trace.operations, strict=False)
        return sum(start + operation.duration <= self.now for start, operation in rows)

    @property
    def over(self) -> bool:
        return not self.claims and self.done == len(self.trace)

    def away(self) -> set[int]:
        """Return the evicted gaps whose memory has been released."""
        gaps, done = self.trace.gaps, self.done
        return {g for g in self.evicted if gaps[g].tensor in self.copied and gaps[g].before < done}

    def fits(self, held: int) -> bool:
        gone = sum(self.trace.gap_size(gap) for gap in self.away() - self.claimed)
        return held - gone <= self.problem.platform.memory

    def end_transfers(self) -> bool:
        ended = False
        for way, kind in enumerate(Kind):
            job = self.active[way]
            if job is not None and job[2] <= 0:
                self.transfers[kind, job[0]] = job[1], self.now
                if kind is Kind.OFFLOAD:
                    self.copied.add(self.trace.gaps[job[0]].tensor)
                else:
                    self.returned.add(job[0])
                self.active[way] = None
                ended = True
        return ended

    def start_offload(self) -> bool:
        if self.active[OUT] is not None or not self.offloads:
            return False
        gap = self.offloads[0]
        if self.trace.tensors[self.trace.gaps[gap].tensor].uses[0] >= self.done:
            return False
        self.active[OUT] = gap, self.now, Fraction(self.trace.gap_size(gap))
        del self.offloads[0]
        return True

    def claim(self) -> bool:
        """Start the operation or the prefetch whose turn it is, if it can start."""
        if not self.claims:
            return False
        fetch, number = self.claims[0]
        if fetch:
            size, begun = self.trace.gap_size(number), len(self.starts)
            held = self.trace.resident_at_start
            if begun:
                held = _held(self.problem, begun - 1, self.done < begun)
            may = self.active[BACK] is None and number in self.away()
            if not may or not self.fits(held + size):
                return False
            self.active[BACK] = number, self.now, Fraction(size)
            self.claimed.add(number)
        else:
            needed = {gap for gap in self.evicted if self.trace.gaps[gap].after == number}
            may = self.done == number and needed <= self.returned
            if not may or not self.fits(_held(self.problem, number, True)):
                return False
            self.starts.append(self.now)
        del self.claims[0]
        return True

    def tick(self) -> None:
        both = None not in self.active
        for way, job in enumerate(self.active):
            if job is not None:
                self.active[way] = (job[0], job[1], job[2] - self.rates[way][both])
        self.now += 1


class _State(NamedTuple):
    """How many operations have begun, the ticks until the last ends, and where tensors are.

    ``host`` has, by tensor, the parts of bytes that are still to be copied: 0 if the host has it,
    None if nothing has begun. ``device`` has those that are still to come back: 0 if it is there,
    None if it is away.
    """

    begun: int
    running: int
    host: tuple[int | None, ...]
    device: tuple[int | None, ...]


def least_makespan(problem: Problem) -> int | None:
    """Return the least makespan of all schedules, also of those that wait for nothing; or None.

    For two to four stages, a few ticks each.
    """
    return _Ticks(problem).run()


class _Ticks:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.trace, rates = problem, problem.trace, rates_of(problem)
        # So many parts of a byte that a tick moves a whole number of them.
        self.parts = lcm(*(rate.denominator for each in rates for rate in each))
        self.rates = [[int(rate * self.parts) for rate in each] for each in rates]
        self.memory = problem.platform.memory
        spans = {gap.tensor for gap in self.trace.gaps}
        self.moving = [tensor for tensor in sorted(spans) if self.trace.tensors[tensor].size]

    def run(self) -> int | None:
        if self.trace.resident_at_start > self.memory:
            return None
        count = len(self.moving)
        there: tuple[int | None, ...] = (0,) * count
        now, seen, time = {_State(0, 0, (None,) * count, there)}, set[_State](), 0
        while now:
            waiting, reached = list(now), set[_State]()
            while waiting:
                state = waiting.pop()
                if state in reached or state in seen:
                    continue
                reached.add(state)
                if state.begun == len(self.trace) and not state.running:
                    return time
                waiting += self._actions(state)
            seen |= reached
            now = {self._tick(state) for state in reached} - seen
            time += 1
        return None

    def _tick(self, state: _State) -> _State:
        both = any(state.host) and any(state.device)

        def less(rest: int | None, rate: int) -> int | None:
            return rest if rest is None else max(0, rest - rate)

        host = tuple(less(rest, self.rates[OUT][both]) for rest in state.host)
        device = tuple(less(rest, self.rates[BACK][both]) for rest in state.device)
        return _State(state.begun, max(0, state.running - 1), host, device)

    def _in_use(self, state: _State, tensor: int) -> bool:
        uses = self.trace.tensors[tensor].uses
        return state.running > 0 and state.begun - 1 in uses

    def _fits(self, state: _State) -> bool:
        if state.begun == 0:
            held = self.trace.resident_at_start
        else:
            held = _held(self.problem, state.begun - 1, state.running > 0)
        away = zip(self.moving, state.device, strict=True)
        held -= sum(self.trace.tensors[t].size for t, where in away if where is None)
        return held <= self.memory

    def _actions(self, state: _State) -> Iterator[_State]:
        ended = state.begun - (state.running > 0)
        for place, tensor in enumerate(self.moving):
            uses = self.trace.tensors[tensor].uses
            size = self.trace.tensors[tensor].size * self.parts
            host, device = state.host[place], state.device[place]
            spanned = any(
                gap.tensor == tensor and gap.before < ended and gap.after >= state.begun
                for gap in self.trace.gaps
            )
            if host is None and uses[0] < ended and not any(state.host):
                yield state._replace(host=_set(state.host, place, size))
            if host == 0 and device == 0 and spanned and not self._in_use(state, tensor):
                yield state._replace(device=_set(state.device, place, None))
            if device is None and not any(state.device):
                back = state._replace(device=_set(state.device, place, size))
                if self._fits(back):
                    yield back
        if state.running or state.begun == len(self.trace):
            return
        number = state.begun
        wheres = zip(self.moving, state.device, strict=True)
        if all(where == 0 for t, where in wheres if number in self.trace.tensors[t].uses):
            duration = self.trace.operations[number].duration
            # It is checked as one that runs, even if that takes no time.
            if self._fits(state._replace(begun=number + 1, running=1)):
                yield state._replace(begun=number + 1, running=duration)


def _set(values: tuple[int | None, ...], place: int, value: int | None) -> tuple[int | None, ...]:
    return (*values[:place], value, *values[place + 1 :])
