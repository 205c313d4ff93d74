"""Executions of small networks that take least time or memory, by a search over labels.

From the labels of a shortest one come the execution itself, and its schedule.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import pairwise

from offcert.core.errors import MethodError
from offcert.core.execution import Execution
from offcert.core.platform import Kind
from offcert.core.result import EXECUTIONS, Bound, Infeasibility
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.labels.joint.model import NOTHING, JointModel, Label, OpenRun, bits
from offcert.formulations.labels.joint.search import search
from offcert.proofs.kinds.computed import Computed
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Minimise, Problem, Transfers
from offcert.questions.schedule.schedule import Schedule, Transfer


class _NoExecutionError(Exception):
    """The labels allow something that no execution can do."""


@dataclass(eq=False)
class _Copy:
    """One copy of a value: becomes a tensor.

    ``returns`` holds the start and the end of each, and the last use before it.
    """

    value: int
    uses: list[int]
    left: tuple[int, int] | None = None
    returns: list[tuple[int, int, int]] = field(default_factory=list)


def rebuilt(model: JointModel, path: tuple[Label, ...]) -> tuple[Execution, Schedule] | None:
    """Return the execution and the schedule that labels describe, or None if there is none.

    Labels allow a little more than executions can do (docs/theory/joint-labels.md): what has left
    and is changed later may return in either state, and a copy may be away between two operations
    one after the other that both use it.

    Parameters
    ----------
    model : JointModel
        If it is timeless, all of the schedule starts at 0: of use is the execution.
    path : tuple of Label
        From the beginning to the end.
    """
    replay = _Replay(model, path[0])
    try:
        for before, after in pairwise(path):
            replay.step(before, after)
        execution, schedule = replay.execution()
    except _NoExecutionError:
        return None
    if model.once is None:
        return execution, schedule
    runs, values = (tuple(range(len(each))) for each in (execution.runs, model.once.tensors))
    return Execution(model.once, runs, values), _renumbered(schedule, execution, model.once)


def _renumbered(schedule: Schedule, execution: Execution, trace: Trace) -> Schedule:
    """Return a schedule with the gaps of a trace of which an execution is another order."""
    gaps, values = execution.trace.gaps, execution.values
    numbers = [trace.gap_numbers[values[each.tensor], each.before, each.after] for each in gaps]
    moves = [replace(each, gap=numbers[each.gap]) for each in schedule.transfers]
    return Schedule(schedule.starts, schedule.ends, moves)


class _Replay:
    def __init__(self, model: JointModel, first: Label) -> None:
        self.model = model
        self.copies: list[_Copy] = []
        self.device = {content: self._new(content, -1) for content in bits(first.device)}
        self.host: dict[int, _Copy] = {}
        # The transfers under way: of one that leaves, the copy, and since when.
        self.leaving: tuple[_Copy, int] | None = None
        self.coming: _Copy | None = None
        self.runs: list[int] = []
        self.operations: list[Operation] = []
        self.starts: list[int] = []

    def _new(self, content: int, operation: int) -> _Copy:
        copy = _Copy(self.model.contents[content][0], [operation])
        self.copies.append(copy)
        return copy

    def step(self, before: Label, after: Label) -> None:
        """Go on from a label to the next one."""
        left = before.leaving != NOTHING and after.leaving == NOTHING
        back = before.coming != NOTHING and after.coming == NOTHING
        if after.time > before.time or left or back:
            self._end(before, after)
        elif after.latest is not before.latest:
            self._run(after.latest, before)
        elif after.leaving != before.leaving:
            copy = self.device[after.leaving]
            if copy.left is not None:
                raise _NoExecutionError
            self.leaving = copy, after.time
        else:
            returning = self.host.get(after.coming)
            if returning is None:
                raise _NoExecutionError
            returning.returns.append((after.time, after.back_at, returning.uses[-1]))
            self.coming = returning
        self.device = {
            content: copy for content, copy in self.device.items() if after.device >> content & 1
        }

    def _end(self, before: Label, after: Label) -> None:
        if before.leaving != NOTHING and after.leaving == NOTHING:
            assert self.leaving is not None
            copy, start = self.leaving
            copy.left = start, after.time
            self.host[self.model.settled[before.leaving]] = copy
            self.leaving = None
        if before.coming != NOTHING and after.coming == NOTHING:
            assert self.coming is not None
            self.device[before.coming] = self.coming
            self.coming = None

    def _run(self, run: OpenRun, before: Label) -> None:
        model, operation = self.model, len(self.runs)
        computation = model.network.computations[run.computation]
        again = self.runs.count(run.computation)
        name = computation.name if not again else f"{computation.name} (run {again + 1})"
        changed = 0
        for old, new in model.changes[run.computation]:
            self._change(old, new, operation)
            changed |= 1 << new
        for content in bits(run.busy & ~run.fresh & ~changed):
            self.device[content].uses.append(operation)
        for content in bits(run.fresh):
            settled = model.settled[content]
            if settled != content and content in self.device:
                self.device[settled] = self.device[content]
            self.device[content] = self._new(content, operation)
        self.runs.append(run.computation)
        self.operations.append(Operation(name, computation.duration, run.workspace))
        self.starts.append(before.time)

    def _change(self, old: int, new: int, operation: int) -> None:
        """Change a copy in place; unless it is empty, it has been at home since it was written."""
        settled, sizes = self.model.settled, self.model.sizes
        used = settled[old] if not sizes[old] and settled[old] in self.device else old
        copy = self.device.pop(used, None)
        if copy is None or copy.returns:
            raise _NoExecutionError
        first = copy.uses[0]
        copy.uses = list(range(first, operation)) if sizes[old] else copy.uses
        copy.uses.append(operation)
        if new in self.device:
            self.device[settled[new]] = self.device[new]
        self.device[new] = copy
        if self.host.get(settled[old]) is copy:
            del self.host[settled[old]]
            self.host[settled[new]] = copy

    def execution(self) -> tuple[Execution, Schedule]:
        """Return the execution that was replayed, and its schedule."""
        tensors = [self._tensor(copy) for copy in self.copies]
        trace = Trace(self.operations, tensors)
        transfers = [
            transfer
            for index, copy in enumerate(self.copies)
            if copy.returns
            for transfer in self._transfers(trace, index, copy)
        ]
        ends = [
            start + each.duration for start, each in zip(self.starts, self.operations, strict=True)
        ]
        values = tuple(copy.value for copy in self.copies)
        return Execution(trace, tuple(self.runs), values), Schedule(self.starts, ends, transfers)

    def _tensor(self, copy: _Copy) -> Tensor:
        value = self.model.network.values[copy.value]
        uses = tuple(copy.uses)
        if not value.evictable:
            uses = tuple(sorted({uses[0], uses[-1]}))
        return Tensor(value.name, value.size, uses, value.evictable)

    def _transfers(self, trace: Trace, index: int, copy: _Copy) -> list[Transfer]:
        assert copy.left is not None
        found: list[Transfer] = []
        for start, end, before in copy.returns:
            after = next((use for use in copy.uses if use > before), None)
            gap = None if after is None else trace.gap_numbers.get((index, before, after))
            if gap is None or any(gap == other.gap for other in found):
                raise _NoExecutionError
            found.append(Transfer(Kind.PREFETCH, gap, start, end))
        return [Transfer(Kind.OFFLOAD, min(each.gap for each in found), *copy.left), *found]


# Labels that a search may hold: with more, verification takes minutes. Measured; no record.
MOST_LABELS = 100_000


@dataclass(frozen=True)
class JointOutcome:
    """The outcome of a search for the shortest execution, or for the one of least memory."""

    # On the makespan, in ticks, or on the bytes; None if nothing was proved, or nothing can be
    # executed.
    bound: Bound | None
    # A best one, if one was found that is better than what was known; no schedule where time is no
    # matter.
    execution: Execution | None = None
    schedule: Schedule | None = None
    memory: int | None = None  # The bytes within which it stays, where memory is minimised.


def shortest_execution(
    problem: Problem, seconds: float, known: int | None = None, most: int = MOST_LABELS
) -> JointOutcome:
    """Return a shortest execution with its schedule, and the bound that it attains.

    Without time enough the bound is what all labels that are left would take at least.

    Parameters
    ----------
    problem : Problem
        In which computations may run again; its transfers are atomic, and none slows another down
        (`offcert.core.platform.Platform.alone`), or nothing may leave.
    seconds : float
        Time limit.
    known : int, optional
        Makespan of a schedule that is known: only shorter ones are looked for.
    most : int
        Labels that may be held.

    Raises
    ------
    MethodError
        If the problem is another.
    """
    _require_scope(problem)
    model = JointModel(problem)
    outcome = search(model, problem.platform.memory, known, seconds=seconds, most=most)
    bound = None
    if outcome.bound is not None:
        bound = proved("joint-labels", outcome.bound, Computed())
    found = rebuilt(model, outcome.path) if outcome.path else None
    return JointOutcome(bound, *(found or (None, None)))


def no_execution(problem: Problem, seconds: float, most: int = MOST_LABELS) -> Infeasibility | None:
    """Return the bytes that every execution needs at some moment, if more than there are.

    Parameters are those of `shortest_execution`. What is returned is the least memory of all
    executions, or, if time or labels run out, what is known to be too little, and a byte more.
    None says that something can be executed, or that this is not known.

    Raises
    ------
    MethodError
        If the problem is another.
    """
    _require_scope(problem)
    network = problem.computed
    assert network is not None
    end = time.monotonic() + seconds
    model = JointModel(problem, timeless=True)
    # Everything that runs once fits into the peak.
    too_little, enough = problem.platform.memory, network.trace().peak_memory
    if too_little >= enough or not _nothing_within(model, too_little, end, most):
        return None
    while enough - too_little > 1 and time.monotonic() < end:
        middle = (too_little + enough) // 2
        if _nothing_within(model, middle, end, most):
            too_little = middle
        else:
            enough = middle
    needed = too_little + 1
    return Infeasibility(-1, EXECUTIONS, needed, needed - problem.platform.memory)


def least_memory_execution(
    problem: Problem, seconds: float, known: tuple[int, int], most: int = MOST_LABELS
) -> JointOutcome:
    """Return the execution that takes least memory, within the deadline if there is one.

    Memory is halved between what is known; each limit is searched to the end. Without time or
    labels enough the bound is that of the last limit at which it ended.

    Parameters
    ----------
    problem : Problem
        A problem in which computations may run again, and memory is minimised.
    seconds : float
        Time limit.
    known : tuple of (int, int)
        Bytes below which nothing can be executed in time, and bytes within which something can.
    most : int
        Labels that may be held, at each limit.

    Raises
    ------
    MethodError
        If the problem is another.
    """
    _require_scope(problem, Minimise.MEMORY)
    end = time.monotonic() + seconds
    untimed = problem.deadline is None
    model = JointModel(problem, timeless=untimed)
    late = None if problem.deadline is None else problem.deadline + 1
    (low, high), best = known, JointOutcome(None)
    while low < high:
        middle = (low + high) // 2
        outcome = search(model, middle, late, seconds=end - time.monotonic(), most=most)
        if not outcome.finished:
            break
        if not outcome.path:
            low = middle + 1
            continue
        high, found = middle, rebuilt(model, outcome.path)
        if found is not None:
            best = JointOutcome(None, found[0], None if untimed else found[1], middle)
    bound = proved("joint-labels-memory", low, Computed()) if low > known[0] else None
    return replace(best, bound=bound)


def _nothing_within(model: JointModel, memory: int, end: float, most: int) -> bool:
    outcome = search(model, memory, seconds=end - time.monotonic(), most=most)
    return outcome.finished and not outcome.path


def _require_scope(problem: Problem, minimise: Minimise = Minimise.TIME) -> None:
    if problem.minimise is not minimise:
        raise MethodError(
            f"the search over labels of executions is asked for the least {minimise}, and the "
            f"problem minimises {problem.minimise}"
        )
    if problem.offload and problem.transfers is not Transfers.ATOMIC:
        raise MethodError(
            "the search over labels of executions is for atomic transfers, not "
            f"{problem.transfers} ones"
        )
    if problem.offload and problem.platform.slows:
        raise MethodError(
            "the search over labels of executions is for links whose directions do not slow each "
            "other down"
        )
