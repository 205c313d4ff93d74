"""The combined paper's dynamic program, from a problem to an execution and its transfers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.compiled import IntArray
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.execution import Execution
from offcert.core.strategy import Strategy
from offcert.heuristics.combined.kernels import NEVER, Shorts, cells, fill_forward, fill_recompute
from offcert.heuristics.combined.slots import SlottedChain, grid, slotted
from offcert.heuristics.orders.ordered import ordered_orders, ordered_schedule
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule


class Sweep(NamedTuple):
    """A sweep of the first forward pass, from a first stage to a last one.

    It is full if everything that the last one makes is kept, and not its output alone; the input of
    the first one may be offloaded.
    """

    first: int
    last: int
    full: bool
    leaves: bool


@dataclass(frozen=True)
class Decisions:
    """The decisions of the dynamic program, and their ticks in slots.

    Sweeps are those of the first forward pass, without the last stage. The order is of stages whose
    forward operation runs; those of backward operations stand as ``-1 - i``.
    """

    value: int
    sweeps: tuple[Sweep, ...]
    order: tuple[int, ...]


class CombinedTables:
    """The filled tables of one chain.

    A bare stage keeps all that it makes without its input, which the paper's operations do not do.
    """

    def __init__(self, chain: SlottedChain, again: bool, bare: bool) -> None:
        self.chain = chain
        self.bases = (cells(chain.slots, chain.most, 1), cells(chain.slots, chain.most, 2))
        self.planes = _planes(chain.stages, again, bare)
        count = int(self.planes.max()) + 1
        self.cost: IntArray = np.full((count, self.bases[0][-1]), NEVER, dtype=np.int64)
        self.moved: Shorts = np.zeros(self.cost.shape, dtype=np.int16)
        self.later: Shorts = np.zeros(self.cost.shape, dtype=np.int16)
        shape = (2, chain.stages, int(self.bases[1][-1]))
        self.value: IntArray = np.full(shape, NEVER, dtype=np.int64)
        self.first: Shorts = np.zeros(shape, dtype=np.int16)
        fill_recompute(self.planes, self.bases[0], chain, self.cost, self.moved, self.later)
        again_table = (self.cost, self.moved)
        fill_forward(
            self.planes, self.bases, chain, again, bare, again_table, self.value, self.first
        )

    def decisions(self) -> Decisions | None:
        """Return the best decisions, or None if nothing fits."""
        value = int(self.value[0, 0, 0])
        if value >= NEVER:
            return None
        sweeps, backward = [], []
        x = i = kept = front = back = 0
        chain = self.chain
        while i < chain.stages - 1:
            width = min(chain.most, chain.slots - kept) + 1
            code = int(self.first[x, i, self.bases[1][kept] + front * width + back])
            sweep = Sweep(i, i + code // 4, bool(code & 2), bool(code & 1))
            z, j, size = int(sweep.full), sweep.last, int(chain.input[x, i])
            sweeps.append(sweep)
            backward.append((z, i, j, kept + size, back))
            cell = self.bases[0][kept + size] + back
            back = max(0, back - int(self.moved[self.planes[z, i, j], cell]))
            passed = int(chain.out.passed[j + 1] - chain.out.passed[i])
            passed += int(chain.moved[0, self._lacking(sweep, kept + front, size)])
            front = max(0, front + (size if sweep.leaves else 0) - passed)
            if sweep.leaves:
                back += size
            else:
                kept += size
            x, i = z, j + 1
        order = [*range(chain.stages), -chain.stages]
        for state in reversed(backward):
            order += self._again(*state)
        return Decisions(value, tuple(sweeps), tuple(order))

    def _lacking(self, sweep: Sweep, held: int, size: int) -> int:
        chain = self.chain
        pressed = int(chain.out.pressed[int(sweep.full), sweep.first, sweep.last])
        return max(0, -(-pressed // chain.unit) + size - chain.slots + held)

    def _again(self, y: int, i: int, j: int, kept: int, late: int) -> Iterator[int]:
        """Yield the operations from the input of stage i back to it."""
        if i == j:
            yield from () if y else (i,)
            yield -1 - i
            return
        plane, cell = self.planes[y, i, j], self.bases[0][kept] + late
        code = int(self.later[plane, cell])
        z, k = code % 2, i + code // 2
        yield from range(i, k + 1)
        last = self.planes[z, i, k]
        back = max(0, late - int(self.moved[last, cell]))
        yield from self._again(y, k + 1, j, kept + int(self.chain.output[z, k]), back)
        yield from self._again(z, i, k, kept, late)


def _planes(stages: int, again: bool, bare: bool) -> IntArray:
    """Number the planes that are needed."""
    planes = np.full((2, stages, stages), -1, dtype=np.int64)
    count = 0
    for y in range(2):
        for i in range(stages - 1):
            for j in range(i, stages - 1):
                if (y == 1 and i == j) or (again and (y == 0 or bare)):
                    planes[y, i, j] = count
                    count += 1
    return planes


# Bytes that the tables may take, and slots unless the caller says otherwise. Arbitrary.
MOST_MEMORY = 3 * 2**30
SLOTS = 50


@dataclass(frozen=True)
class CombinedPlan:
    """The plan that the dynamic program found, and its value."""

    value: int  # Ticks, as the program counts them, in slots.
    execution: Execution  # The execution; its trace has everything that follows.
    # The inputs of stages that leave, in that order, as the paper counts their memory: a gap, the
    # stage that reads it before, and the operation for which it is back. What a stage keeps leaves
    # and returns with its output, though its backward operation needs it later.
    inputs: tuple[tuple[int, int, int], ...]

    @property
    def gaps(self) -> tuple[int, ...]:
        """The gaps of the trace that are evicted, in the order in which their tensors leave."""
        return tuple(gap for gap, _, _ in self.inputs)

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
    """Run the combined paper's dynamic program (supplement, B: ``OC`` and ``C_A``) on a chain.

    With None for the slots, there are as many as make nothing round. Whether anything may leave is
    said by the problem unless it is given; without, the link has rate 0. With `bare`, a stage may
    also keep all that it makes without its input, which has to be computed again then, but not the
    stage itself; the paper's operations cannot do that. The execution is legal and fits into the
    memory however coarse the slots are.

    A `NoPlanError` says that nothing fits in slots, where something may well fit in bytes; a
    `MethodError` that the problem is no chain, there are no slots, or the tables would not fit into
    memory.
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
    decisions = CombinedTables(scaled, recompute, bare).decisions()
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
    inputs: list[tuple[int, int, int]] = []
    for number, sweep in enumerate(sweeps):
        if sweep.leaves:
            full = number > 0 and sweeps[number - 1].full
            inputs += _input(chain, execution, sweep, full)
    return CombinedPlan(decisions.value, execution, tuple(inputs))


def _input(
    chain: CheckpointChain, execution: Execution, sweep: Sweep, full: bool
) -> list[tuple[int, int, int]]:
    """Return the gaps in which tensors leave with the input of a sweep, as `CombinedPlan` does."""
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
    return [
        (number, stage, closed)
        for index in tensors
        for number, gap in enumerate(trace.gaps)
        if gap.tensor == index and gap.before < closed <= gap.after
    ]
