"""A replay of whole transfers on a device, tick by tick, that looks nothing up in advance.

In each tick first ends what is over, then operations that take no time run, then all else begins,
and each transfer moves what its rate lets it move in one tick. The replay notes which rules are
broken and how many bytes it holds whenever it takes memory. It shares no code with
`offcert.questions.schedule.check`, of which it is the oracle; of `offcert` it reads numbers.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import NamedTuple

from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, Transfer
from support.oracles.slow_links import rates_of


class Replayed(NamedTuple):
    """Names of the rules that are broken; moments over the limit, with the bytes held then."""

    broken: set[str]
    full: set[tuple[int, int]]


def replay(problem: Problem, schedule: Schedule) -> Replayed:
    """Replay a schedule.

    The device runs only if times are whole, operations are in order, and each tensor that returns
    leaves once; its bytes are of use only if it breaks no rule of transfers.
    """
    broken = wrong_numbers(problem, schedule)
    if any(type(time) is not int for each in schedule.transfers for time in (each.start, each.end)):
        broken.add("numbers")
    if not broken:
        broken = wrong_operations(problem, schedule) | _wrong_pairs(problem, schedule)
    if broken:
        return Replayed(broken, set())
    machine = _Machine(problem, schedule)
    machine.run()
    return Replayed(machine.broken, set() if machine.broken else machine.full)


def wrong_numbers(problem: Problem, schedule: Schedule | FluidSchedule) -> set[str]:
    """Say whether operations do not have one whole tick each at which they start and end."""
    rows = (schedule.starts, schedule.ends)
    counted = {len(row) for row in rows} == {len(problem.trace.operations)}
    return set() if counted and {type(t) for row in rows for t in row} == {int} else {"numbers"}


def wrong_operations(problem: Problem, schedule: Schedule | FluidSchedule) -> set[str]:
    """Say whether operations overlap, or do not last as long as they must."""
    broken = set()
    for number, operation in enumerate(problem.trace.operations):
        if schedule.starts[number] < max(0, 0, *schedule.ends[:number]):
            broken.add("order")
        if schedule.starts[number] + operation.duration != schedule.ends[number]:
            broken.add("duration")
    return broken


def _wrong_pairs(problem: Problem, schedule: Schedule) -> set[str]:
    """Say whether each tensor that returns does not leave once, in the first gap that it has."""
    gaps = problem.trace.gaps
    named = {kind: sorted(t.gap for t in schedule.transfers if t.kind is kind) for kind in Kind}
    back = set(named[Kind.PREFETCH])
    if not (back | set(named[Kind.OFFLOAD])) <= set(range(len(gaps))):
        return {"pairs"}
    first = sorted(
        g for g in back if not any(gaps[h].tensor == gaps[g].tensor for h in back if h < g)
    )
    once = len(named[Kind.PREFETCH]) == len(back)
    return set() if once and named[Kind.OFFLOAD] == first else {"pairs"}


class _Machine:
    """A device and its link."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem, self.trace, self.schedule = problem, problem.trace, schedule
        self.rates = rates_of(problem)
        self.broken: set[str] = set()
        self.full: set[tuple[int, int]] = set()
        self.here = {t for t, tensor in enumerate(self.trace.tensors) if tensor.uses[0] == -1}
        self.workspace = 0
        self.over: set[int] = set()
        self.copied: set[int] = set()
        # Gaps that are evicted, of which nothing is left to do once they have begun to return.
        self.evicted = {t.gap for t in schedule.transfers if t.kind is Kind.PREFETCH}
        self.back: set[int] = set()
        self.rest = [Fraction(self.trace.gap_size(t.gap)) for t in schedule.transfers]

    def run(self) -> None:
        begins: dict[int, list[int]] = defaultdict(list)
        times = {0}
        for number, row in enumerate(zip(self.schedule.starts, self.schedule.ends, strict=True)):
            begins[row[0]].append(number)
            times.update(row)
        for transfer in self.schedule.transfers:
            times |= {transfer.start, transfer.end}
        self._took(0)
        for now in range(min(times), max(times) + 1):
            if now == 0:
                self.over.add(-1)
            self._end(now)
            for number in begins[now]:
                if self.schedule.ends[number] <= now:
                    self._begin_operation(number)
                    self._took(now)
                    self._end_operation(number)
            began = [self._begin_transfer(n) for n, t in self._transfers() if t.start == now]
            for number in begins[now]:
                if self.schedule.ends[number] > now:
                    self._begin_operation(number)
                    began.append(True)
            if any(began):
                self._took(now)
            self._move(now)
        if any(rest > 0 for rest in self.rest):
            self.broken.add("length")

    def _transfers(self) -> list[tuple[int, Transfer]]:
        return list(enumerate(self.schedule.transfers))

    def _took(self, now: int) -> None:
        held = self.workspace + sum(self.trace.tensors[tensor].size for tensor in self.here)
        if held > self.problem.platform.memory:
            self.full.add((now, held))

    def _end(self, now: int) -> None:
        for number, end in enumerate(self.schedule.ends):
            if end == now and self.schedule.starts[number] < now:
                self._end_operation(number)
        for transfer in self.schedule.transfers:
            if transfer.end == now and transfer.kind is Kind.OFFLOAD:
                self.copied.add(self.trace.gaps[transfer.gap].tensor)
            elif transfer.end == now:
                self.back.add(transfer.gap)
        self._release()

    def _end_operation(self, number: int) -> None:
        self.over.add(number)
        self.workspace -= self.trace.operations[number].workspace
        self.here -= {t for t in self.here if self.trace.tensors[t].uses[-1] == number}
        self._release()

    def _release(self) -> None:
        """Give up what is to leave, has been copied and is no longer used."""
        for number in self.evicted:
            gap = self.trace.gaps[number]
            if gap.before in self.over and gap.tensor in self.copied:
                self.here.discard(gap.tensor)

    def _begin_operation(self, number: int) -> None:
        self.workspace += self.trace.operations[number].workspace
        self.here |= {t for t, each in enumerate(self.trace.tensors) if each.uses[0] == number}
        closed = {gap for gap, each in enumerate(self.trace.gaps) if each.after == number}
        prefetched = {t.gap for t in self.schedule.transfers if t.kind is Kind.PREFETCH}
        if closed & prefetched - self.back:
            self.broken.add("needed")

    def _begin_transfer(self, number: int) -> bool:
        """Begin a transfer; return whether it takes memory."""
        transfer = self.schedule.transfers[number]
        gap = self.trace.gaps[transfer.gap]
        if transfer.kind is Kind.OFFLOAD:
            if self.trace.tensors[gap.tensor].uses[0] not in self.over:
                self.broken.add("written")
            return False
        if gap.before not in self.over or gap.tensor not in self.copied:
            self.broken.add("left")
        self.evicted.discard(transfer.gap)
        self.here.add(gap.tensor)
        return True

    def _move(self, now: int) -> None:
        """Move bytes for a tick; nothing may still be on the link that had been moved before."""
        on_link = [(n, t) for n, t in self._transfers() if t.start <= now < t.end]
        ways = [list(Kind).index(transfer.kind) for _, transfer in on_link]
        if len(ways) > (len(set(ways)) if self.problem.platform.duplex else 1):
            self.broken.add("link")
        for (number, _), way in zip(on_link, ways, strict=True):
            if self.rest[number] <= 0:
                self.broken.add("length")
            self.rest[number] -= self.rates[way][1 - way in ways]
