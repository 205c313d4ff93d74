"""From a recording to a network: what each operation of its trace reads, writes and changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.runtime.watch.events import ENTER, LEAVE

if TYPE_CHECKING:
    from offcert.runtime.capture.cut_step import CutStep, Group
    from offcert.runtime.capture.recorder import Recorder
    from offcert.runtime.capture.recording import Recording


def build_network(
    recorder: Recorder | Recording,
    cut: CutStep,
    groups: Sequence[Group],
    computations: Sequence[Computation],
) -> Network:
    """Return the network whose plain trace is the trace of a recorded step.

    Operations of the model's forward pass may run again; those of the loss and of the backward
    passes may not. What lives on after its last reader is held by the program.

    Returns
    -------
    Network
        Values have the indices of the trace's tensors; after them come those that in-place changes
        make of others.
    """
    flow = _Flow(recorder, cut, groups)
    return Network(
        [
            Computation(
                each.name,
                each.duration,
                each.workspace,
                tuple(sorted(flow.reads[index])),
                tuple(sorted(flow.writes[index])),
                flow.repeatable[index],
                tuple(sorted(flow.holds[index])),
                of=tuple(sorted(flow.of[index])),
            )
            for index, each in enumerate(computations)
        ],
        flow.values,
    )


def asked_of(cut: CutStep, unpacked: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield who asks, who has saved what is asked for, and the moment at which that is asked."""
    for asked, saved in unpacked:
        if asked < len(cut.moments):
            backward, forward = cut.operation(asked), cut.operation(saved)
            if forward < backward:
                yield backward, forward, asked


def _repeatable(cut: CutStep) -> list[bool]:
    """Return which operations lie in a forward pass of the model."""
    calls, inside = 0, []
    for moment in cut.moments:
        if not moment.event.path and moment.event.kind in (ENTER, LEAVE):
            calls += 1 if moment.event.kind == ENTER else -1
        inside.append(calls > 0 and not moment.backward)
    return [inside[tick] for tick in cut.ticks]


class _Flow:
    """Reads, writes, changes and holds of the operations of a recorded step."""

    def __init__(
        self, recorder: Recorder | Recording, cut: CutStep, groups: Sequence[Group]
    ) -> None:
        self.cut = cut
        self.repeatable = _repeatable(cut)
        count = len(cut)
        self.values = [Value(group.name, group.size, group.evictable) for group in groups]
        self.reads: list[set[int]] = [set() for _ in range(count)]
        self.writes: list[set[int]] = [set() for _ in range(count)]
        self.holds: list[set[int]] = [set() for _ in range(count)]
        self.of: list[set[int]] = [set() for _ in range(count)]
        for index, group in enumerate(groups):
            self._follow(index, group)
        self._pair(recorder.unpacked)

    def _follow(self, value: int, group: Group) -> None:
        born, died = group.uses[0], group.uses[-1]
        self.writes[born].add(value)
        touched = self._operations(group, "touched", born, died)
        # What a backward pass changes in place was saved before: it may leave, and come back, until
        # then, so it is the same value that this operation reads.
        changed = self._operations(group, "changed", born, died)
        touched |= changed
        changes = sorted(each for each in changed if self.repeatable[each])
        made: list[int] = []
        for reader in sorted(touched | set(changes)):
            self.reads[reader] |= {value, *made}
            if reader in changes:
                self.values.append(Value(f"{group.name}'", 0, evictable=False, base=value))
                made.append(len(self.values) - 1)
                self.writes[reader].add(made[-1])
        for holder in (set(group.uses) | {died}) - touched - set(changes) - {born}:
            self.holds[holder].add(value)

    def _operations(self, group: Group, kind: str, born: int, died: int) -> set[int]:
        """Return the operations after the first that touch or change a storage of a group."""
        last = len(self.cut.moments) - 1
        found = {
            self.cut.operation(moment)
            for life in group.lives
            for moment in getattr(life, kind)
            if moment <= last
        }
        return {operation for operation in found if born < operation <= died}

    def _pair(self, unpacked: Iterable[tuple[int, int]]) -> None:
        """Note whose gradients each operation of a backward pass computes."""
        for backward, forward, _ in asked_of(self.cut, unpacked):
            self.of[backward].add(forward)
