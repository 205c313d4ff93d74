"""The combined paper's dynamic program, from a problem to an execution and its transfers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.execution import Execution
from offcert.core.platform import Kind
from offcert.core.strategy import Strategy
from offcert.heuristics.combined.decisions import Decisions, Sweep, Tables
from offcert.heuristics.combined.slots import grid, slotted
from offcert.heuristics.orders.ordered import ordered_orders, ordered_schedule
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, Piece, Schedule


@dataclass(frozen=True, slots=True)
class CombinedMove:
    """Something that leaves and returns: a gap of the trace, and its bytes.

    It can be copied once the operation `written` has ended, counts as absent for those after
    `opened`, and has to be back when `closed` starts.
    """

    gap: int
    size: int
    written: int
    opened: int
    closed: int


def turned_schedule(problem: Problem, moved: Sequence[CombinedMove], turn: int) -> FluidSchedule:
    """Return the shortest schedule that moves these, out before the turn and back after it."""
    trace = problem.trace
    last = len(trace) - 1
    lacking = [demand - problem.platform.memory for demand in trace.demand]
    front = _Side(trace.durations[: turn + 1], lacking[: turn + 1])
    back = _Side(trace.durations[:turn:-1], lacking[:turn:-1])
    # In reversed time: what is needed last comes first.
    returning = sorted(moved, key=lambda item: -item.closed)
    platform = problem.platform
    rates = {kind: platform.rate(kind) for kind in Kind}
    out = front.run(
        [(m.size / rates[Kind.OFFLOAD], m.size, m.written, m.opened, m.gap) for m in moved]
    )
    into = back.run(
        [
            (m.size / rates[Kind.PREFETCH], m.size, last - m.closed, last - m.closed, m.gap)
            for m in returning
        ]
    )
    if out is None or into is None:
        raise NoPlanError("what leaves is not enough for the memory")
    length = math.ceil(front.free + back.free)
    starts = front.starts + [
        length - start - duration
        for start, duration in zip(back.starts[::-1], trace.durations[turn + 1 :], strict=True)
    ]
    pieces = [Piece(Kind.OFFLOAD, g, begin, end, Fraction(size)) for g, begin, end, size in out]
    pieces += [
        Piece(Kind.PREFETCH, g, length - end, length - begin, Fraction(size))
        for g, begin, end, size in into
    ]
    ends = [start + duration for start, duration in zip(starts, trace.durations, strict=True)]
    return FluidSchedule(starts, ends, pieces)


class _Side:
    """One side of the turn, in its own time and its own numbers of operations.

    Attributes
    ----------
    starts : list of int
        The starts of the operations.
    free : Fraction
        When both the device and the link are done.
    """

    def __init__(self, durations: Sequence[int], lacking: Sequence[int]) -> None:
        self.durations, self.lacking = durations, lacking
        self.starts: list[int] = []
        self.free = Fraction(0)

    def run(
        self, moves: Sequence[tuple[Fraction, int, int, int, int]]
    ) -> list[tuple[int, Fraction, Fraction, int]] | None:
        """Return gap, begin, end and size of every transfer, or None if an operation never fits."""
        done: list[tuple[int, Fraction, Fraction, int]] = []
        opened: list[int] = []
        link, end = Fraction(0), 0
        # Behind the last operation, what is left is moved.
        stations = [*zip(self.durations, self.lacking, strict=True), (0, 0)]
        for o, (duration, lacking) in enumerate(stations):
            while len(done) < len(moves) and moves[len(done)][2] < o:
                ticks, size, written, since, gap = moves[len(done)]
                begin = link if written < 0 else max(link, Fraction(self._end(written)))
                link = begin + ticks
                done.append((gap, begin, link, size))
                opened.append(since)
            helping = [d for d, since in zip(done, opened, strict=True) if since < o]
            start = _when(helping, lacking)
            if start is None:
                return None
            if o == len(self.durations):
                break
            self.starts.append(max(end, math.ceil(start)))
            end = self.starts[-1] + duration
        self.free = max(Fraction(end), link)
        return done

    def _end(self, operation: int) -> int:
        return self.starts[operation] + self.durations[operation]


def _when(
    transfers: Sequence[tuple[int, Fraction, Fraction, int]], lacking: int
) -> Fraction | None:
    """Return when transfers have moved so many bytes, or None if they never have."""
    if lacking <= 0:
        return Fraction(0)
    for _, begin, end, size in transfers:
        if size >= lacking:
            return begin + (end - begin) * lacking / size
        lacking -= size
    return None


# Bytes that the tables may take, and slots unless the caller says otherwise. Arbitrary.
MOST_MEMORY = 3 * 2**30
SLOTS = 50


@dataclass(frozen=True)
class CombinedPlan:
    """The plan that the dynamic program found, and its value."""

    value: int  # Ticks, as the program counts them, in slots.
    execution: Execution  # The execution; its trace has everything that follows.
    # The inputs of stages that leave, as the paper counts their memory: what a stage keeps leaves
    # and returns with its output, though its backward operation needs it later.
    inputs: tuple[CombinedMove, ...]
    # The gaps of the trace that are evicted, in the order in which their tensors leave.
    gaps: tuple[int, ...]
    turn: int  # The last operation of the first forward pass.

    def counted(self, problem: Problem) -> FluidSchedule:
        """Return the schedule with interruptible transfers as the paper counts memory.

        If nothing was rounded, its makespan is `value`.
        """
        return turned_schedule(_pausing(problem, self.execution), self.inputs, self.turn)

    def fluid(self, problem: Problem) -> FluidSchedule:
        """Return the shortest schedule with interruptible transfers that turn with the computing.

        What a stage keeps beside its output is released as soon as it has left, and returns when it
        is needed itself.
        """
        trace = self.execution.trace
        moved = []
        for number in self.gaps:
            gap = trace.gaps[number]
            tensor = trace.tensors[gap.tensor]
            moved.append(CombinedMove(number, tensor.size, tensor.uses[0], gap.before, gap.after))
        return turned_schedule(_pausing(problem, self.execution), moved, self.turn)

    def atomic(self, problem: Problem) -> Schedule:
        """Return the shortest schedule of whole transfers, all out before all back, in order."""
        executed = problem.executed(self.execution)
        _, returning = ordered_orders(executed, self.gaps)
        return ordered_schedule(executed, self.gaps, returning)


def combined_plan(
    problem: Problem,
    slots: int | None = SLOTS,
    *,
    recompute: bool = True,
    offload: bool | None = None,
    bare: bool = False,
) -> CombinedPlan:
    """Run the combined paper's dynamic program (supplement, B: ``OC`` and ``C_A``).

    Parameters
    ----------
    problem : Problem
        A chain.
    slots : int or None
        Into how many slots the memory is divided; None for as many as make nothing round.
    recompute : bool
        Whether anything may run again.
    offload : bool, optional
        Whether anything may leave; by default if the problem lets it. Without, the link has rate 0.
    bare : bool
        Whether a stage may also keep all that it makes without its input, which has to be computed
        again then, but not the stage itself. The paper's operations cannot do that.

    Returns
    -------
    CombinedPlan
        Its execution is legal and fits into the memory however coarse the slots are.

    Raises
    ------
    NoPlanError
        If nothing fits in slots, where something may well fit in bytes.
    MethodError
        If the problem is no chain, there are no slots, or the tables would not fit into memory.
    """
    chain = problem.checkpoint_chain
    if chain is None:
        raise MethodError("the combined program needs a chain")
    if slots is not None and slots < 1:
        raise MethodError(f"the combined program needs at least 1 slot, not {slots}")
    offload = problem.offload if offload is None else offload
    count = grid(problem.platform, slots, offload)[-1]
    _require_room(len(chain), count, count if offload else 0, bare)
    scaled = slotted(chain, problem.platform, slots, offload)
    decisions = Tables(scaled, recompute, bare).decisions()
    if decisions is None:
        raise NoPlanError(
            f"the combined program found no plan at {scaled.slots} slots; rounding sizes up may be "
            "the only reason"
        )
    return _plan(chain, decisions)


def _require_room(stages: int, slots: int, most: int, bare: bool) -> None:
    planes = stages * (stages + 1) // 2 * (2 if bare else 1) + stages
    widths = [min(most, slots - kept) + 1 for kept in range(slots + 1)]
    size = 12 * planes * sum(widths) + 20 * stages * sum(width * width for width in widths)
    if size > MOST_MEMORY:
        raise MethodError(
            f"the tables for {stages} stages and {slots} slots take {size} bytes, and at most "
            f"{MOST_MEMORY} are allowed; use fewer slots"
        )


def _plan(chain: CheckpointChain, decisions: Decisions) -> CombinedPlan:
    network, stages = chain.network(), len(chain)
    runs = [each if each >= 0 else 2 * stages + each for each in decisions.order]
    execution = Strategy(runs).without_unread(network).expand(network)
    sweeps = decisions.sweeps
    inputs: list[CombinedMove] = []
    gaps: list[int] = []
    for number, sweep in enumerate(sweeps):
        if sweep.leaves:
            full = number > 0 and sweeps[number - 1].full
            moved, own = _input(chain, execution, sweep, full)
            inputs += moved
            gaps += own
    return CombinedPlan(decisions.value, execution, tuple(inputs), tuple(gaps), stages - 1)


def _input(
    chain: CheckpointChain, execution: Execution, sweep: Sweep, full: bool
) -> tuple[list[CombinedMove], list[int]]:
    """Return the moves of tensors with the input of a sweep, and the gaps that they evict."""
    trace, stage = execution.trace, sweep.first
    parts = [stage, len(chain) + stage] if full else [stage]
    tensors = [
        next(
            index
            for index, value in enumerate(execution.values)
            if value == part and trace.tensors[index].uses[0] <= stage
        )
        for part in parts
        if chain.network().values[part].size or part == stage
    ]
    # The next use of the output, after the stage that reads it in the first pass.
    closed = next(use for use in trace.tensors[tensors[0]].uses if use > stage)
    moved, gaps = [], []
    for index in tensors:
        for number, gap in enumerate(trace.gaps):
            if gap.tensor == index and gap.before < closed <= gap.after:
                size = trace.tensors[index].size
                moved.append(
                    CombinedMove(number, size, trace.tensors[index].uses[0], stage, closed)
                )
                gaps.append(number)
    return moved, gaps


def _pausing(problem: Problem, execution: Execution) -> Problem:
    executed = problem.executed(execution)
    platform = problem.platform.alone
    return replace(executed, platform=platform, transfers=Transfers.INTERRUPTIBLE)
