"""From the labels of a shortest execution to the execution itself, and its schedule."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from offcert.core.execution import Execution
from offcert.core.platform import Kind
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.labels.joint.model import JointModel, bits
from offcert.formulations.labels.joint.search import NOTHING, Label, Running
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
        return replay.execution()
    except _NoExecutionError:
        return None


class _Replay:
    def __init__(self, model: JointModel, first: Label) -> None:
        self.model = model
        self.copies: list[_Copy] = []
        self.device = {content: self._new(content, -1) for content in bits(first.device)}
        self.host: dict[int, _Copy] = {}
        # What is under way: the copy, and since when.
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

    def _run(self, run: Running, before: Label) -> None:
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
        """Return what has run, and when."""
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
