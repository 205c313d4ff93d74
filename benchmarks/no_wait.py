"""The no-wait policy to the letter: everything starts as soon as it can.

Offloading paper, Proposition 1. Given which tensors move and in which order, an operation or
transfer starts as soon as what came before it on the device or the link has ended, its data is
there and there is enough memory. Where an operation and a prefetch could start at the same time,
the operation does. The simulators of `offcert.core` are not this: their plans hold a prefetch back
until a given operation.
"""

from __future__ import annotations

from collections.abc import Sequence

from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem

Transfer = tuple[Kind, int]


def no_wait_makespan(problem: Problem, order: Sequence[Transfer]) -> int | None:
    """Return the length of the no-wait schedule, or None if it gets stuck before the end.

    Parameters
    ----------
    problem : Problem
        Atomic transfers, a link that serves one at a time, one gap a tensor.
    order : sequence of (Kind, int)
        Direction and gap of every transfer, in the order of the link.
    """
    state = _State(problem, order)
    while not state.finished:
        while state.start_operation() or state.start_transfer():
            pass
        if not state.advance():
            return None
    return state.time


class _State:
    """The operations that run and have ended, and the tensors that are absent, at a time."""

    def __init__(self, problem: Problem, order: Sequence[Transfer]) -> None:
        self.problem, self.order = problem, order
        self.trace = problem.trace
        self.time = 0
        self.operation = self.transfer = 0
        self.operation_end: int | None = None
        self.transfer_end: int | None = None
        self.copied: set[int] = set()
        self.absent: set[int] = set()

    @property
    def finished(self) -> bool:
        return self.operation == len(self.trace)

    def free(self) -> int:
        """Return the bytes that are free while what runs now runs."""
        missing = sum(self.trace.gap_size(gap) for gap in self.absent)
        if self.operation_end is not None:
            return self.problem.platform.memory - self.trace.demand[self.operation] + missing
        live = sum(
            tensor.size
            for tensor in self.trace.tensors
            if tensor.uses[0] < self.operation <= tensor.uses[-1]
        )
        return self.problem.platform.memory - live + missing

    def start_operation(self) -> bool:
        if self.finished or self.operation_end is not None:
            return False
        missing = sum(self.trace.gap_size(gap) for gap in self.absent)
        present = all(
            self.trace.gaps[gap].after != self.operation for gap in self.absent | self.moving_back
        )
        if not present:
            return False
        if self.trace.demand[self.operation] - missing > self.problem.platform.memory:
            return False
        self.operation_end = self.time + self.trace.durations[self.operation]
        return True

    @property
    def moving_back(self) -> set[int]:
        """The gap whose tensor is on its way to the device: it takes memory but is not there."""
        if self.transfer_end is None or self.order[self.transfer][0] is Kind.OFFLOAD:
            return set()
        return {self.order[self.transfer][1]}

    def start_transfer(self) -> bool:
        if self.transfer_end is not None or self.transfer == len(self.order):
            return False
        kind, gap = self.order[self.transfer]
        size = self.trace.gap_size(gap)
        if kind is Kind.OFFLOAD:
            writer = self.trace.tensors[self.trace.gaps[gap].tensor].uses[0]
            if writer >= self.operation:
                return False
        else:
            if gap not in self.absent or size > self.free():
                return False
            self.absent.remove(gap)
        self.transfer_end = self.time + self.problem.platform.transfer_time(size, kind)
        return True

    def advance(self) -> bool:
        """Go on to the next end of anything, or return False if nothing runs."""
        ends = [end for end in (self.operation_end, self.transfer_end) if end is not None]
        if not ends:
            return False
        self.time = min(ends)
        if self.operation_end == self.time:
            self.operation_end = None
            self.operation += 1
        if self.transfer_end == self.time:
            kind, gap = self.order[self.transfer]
            if kind is Kind.OFFLOAD:
                self.copied.add(gap)
            self.transfer_end = None
            self.transfer += 1
        for gap in [g for g in self.copied if self.trace.gaps[g].before < self.operation]:
            # Its memory is released once: a tensor that came back is no longer among the copied.
            self.copied.remove(gap)
            self.absent.add(gap)
        return True
