"""Execution of a checkpointed program, and the tensors that may be offloaded in it.

PyTorch's non-reentrant checkpointing is followed here, as `offcert.runtime.segments` uses it:

- A segment runs again right before the first backward computation that needs something saved in
  it, up to the last thing that was saved in it; what is nested in it is saved by itself, but for
  its inputs.
- Around the outermost segments, autograd's saved-tensor hooks hear of what is saved outside, of the
  inputs of segments, and of what is kept: that can leave. What is computed again cannot.
- Inputs of a segment stay until its last gradient is computed, results that are kept at least until
  the segment runs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offcert.core.carried.inside import Inside
from offcert.core.carried.ranges import Ranges
from offcert.core.carried.record import StepRecord
from offcert.core.carried.unread import entries, keeping, kept_in, outlasts
from offcert.core.carried.unroll import CarriedUnrolling, OtherRun, Tick, UnrolledClock
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.program import Program, Segment
from offcert.core.trace import Tensor, Trace

# Of what is saved: operation, bytes, data type, shape, and the tensor that it is a part of, if that
# can leave.
SavedRow = tuple[int, int, str, tuple[int, ...], int | None]


@dataclass(frozen=True)
class Carried:
    """A program as checkpointing executes it."""

    execution: Execution  # Its tensors may leave only when they really can.
    ticks: tuple[Tick, ...]  # The event with which each operation begins.
    saved: tuple[SavedRow, ...]  # The saved tensors that the hooks around the model hear of.
    # For each tensor that can leave the operation that changes it last, or makes it; what is kept
    # is saved before it is changed. Otherwise -1.
    settled: tuple[int, ...]
    # For each computation that is kept, which of its operators' results do not stay.
    unread: Mapping[int, tuple[int, ...]]


def carry(
    network: Network,
    program: Program,
    ranges: Ranges,
    record: StepRecord,
    ticks: Iterable[Sequence[Any]],
    stand_ins: bool = True,
) -> Carried:
    """Return the execution that training really runs for a program on a captured step.

    Network, ranges, record and ticks (the events with which operations begin) are the step's; every
    segment of the program must be one of the ranges. With `stand_ins`, kept results that nobody
    needs again are left out; PyTorch's policies hold them.
    """
    return _Carrier(network, program, ranges, record, ticks, stand_ins).carried()


class _Carrier:
    def __init__(
        self,
        network: Network,
        program: Program,
        ranges: Ranges,
        record: StepRecord,
        ticks: Iterable[Sequence[Any]],
        stand_ins: bool,
    ) -> None:
        self.network = network
        self.program = program
        self.record = record
        self.ticks: list[Tick] = [(k, p, int(c), int(a), int(b)) for k, p, c, a, b in ticks]
        self.unrolling = CarriedUnrolling(network, program, ranges, record)
        self.strategy = self.unrolling.strategy()
        inputs = {segment: span.inputs for segment, span in self.unrolling.spans.items()}
        self.keeping = keeping(network, record, program, inputs, stand_ins=stand_ins)
        self.order = self.strategy.order
        # The segments that run again.
        self.again = {group.segment for group in self.unrolling.groups}
        self.execution = self.strategy.expand(network, self._parts())
        tensors = self.execution.trace.tensors
        self.uses = [set(tensor.uses) for tensor in tensors]
        self.evictable = [False] * len(tensors)
        # Kept storages that the network does not know: computation, last operation, bytes.
        self.unknown: dict[int, tuple[int, int, int]] = {}
        # Bytes of stand-ins for results that nobody needs, by first and last operation.
        self.stand_ins: dict[tuple[int, int], int] = {}
        # Copies of what is held for segments that never run again.
        self.in_vain: set[int] = set()
        # For each value its copies, as they are made.
        self.copies: dict[int, list[int]] = {}
        for index, value in enumerate(self.execution.values):
            self.copies.setdefault(value, []).append(index)

    def carried(self) -> Carried:
        rows = self._saved()
        for group in self.unrolling.groups:
            self._hold(group)
        self._hold_in_vain()
        trace = self.execution.trace
        inside = self._inside()
        tensors = [
            Tensor(tensor.name, tensor.size, tuple(sorted(uses)), evictable)
            for tensor, uses, evictable in zip(
                trace.tensors, self.uses, self.evictable, strict=True
            )
        ]
        beside: dict[tuple[int, int], int] = {}
        for computation, handed, size in self.unknown.values():
            key = self.order.index(computation), handed
            beside[key] = beside.get(key, 0) + size
        tensors += [
            Tensor(f"{what} of {trace.operations[place].name}", size, tuple(sorted({*uses})), False)
            for what, place, uses, size in (
                *(("kept", uses[0], uses, size) for uses, size in beside.items()),
                *(("stand-in", uses[0], uses, size) for uses, size in self.stand_ins.items()),
                *(("begun", uses[1], uses, size) for uses, size in inside.waiting.items()),
            )
        ]
        execution = Execution(
            Trace(inside.operations(trace.operations), tensors),
            self.execution.runs,
            (*self.execution.values, *[-1] * (len(tensors) - len(trace.tensors))),
            self.program.to_json(),
        )
        settled, unread = self._settled(execution), self.keeping.places
        return Carried(execution, self._ticks(), tuple(rows), settled, unread)

    def _settled(self, execution: Execution) -> tuple[int, ...]:
        last = list(self.network.writer)
        for value, writer in zip(self.network.values, self.network.writer, strict=True):
            if value.base is not None and self.network.computations[writer].repeatable:
                last[value.base] = max(last[value.base], writer)
        # In the first runs, operations are computations.
        return tuple(
            last[value] if tensor.evictable else -1
            for value, tensor in zip(execution.values, execution.trace.tensors, strict=True)
        )

    def _inside(self) -> Inside:
        spans, groups = self.unrolling.spans, self.unrolling.groups
        return Inside(
            self.record.within,
            self.network,
            self.order,
            self.execution.values,
            self.uses,
            self.in_vain,
            groups,
            {
                place
                for group in groups
                if spans[group.segment].line
                for place in range(group.begin, group.end)
            },
        )

    # Tensors that can leave.

    def _saved(self) -> list[SavedRow]:
        """Return the saved tensors that hooks hear of; note which can leave, and from when on."""
        rows, lasting = entries(
            self.record, self.program.segments, self.unrolling.spans, self.keeping.stored
        )
        tensor_of: dict[int, int] = {}
        for value, storages in self.record.of_value.items():
            copies = self.copies.get(value, [])
            heard = [lasting[each][0] for each in storages if each in lasting]
            if not copies or len(heard) < len(storages):
                continue
            first = copies[0]
            if not self.network.values[value].evictable:
                continue
            self.evictable[first] = True
            born = self.execution.trace.tensors[first].uses[0]
            # Until it is saved nobody knows of it.
            self.uses[first].update(range(max(born, -1), max(heard) + 1))
            tensor_of |= {lasting[each][1]: first for each in storages}
        return [
            (operation, self.record.storages[sight.storage][0], sight.dtype, sight.shape,
             tensor_of.get(row))
            for row, (operation, sight) in enumerate(rows)
        ]  # fmt: skip

    # Tensors that stay.

    def _parts(self) -> dict[int, range]:
        """Return, for each run again, the computations whose results the program's variables hold.

        A call that is made again only knows what it is given, which stays anyway, and what it
        makes. In a line, nobody but the call that runs holds anything.
        """
        spans = self.unrolling.spans
        return {
            position: range(
                group.segment.first,
                group.segment.first if spans[group.segment].line else group.segment.last + 1,
            )
            for group in self.unrolling.groups
            for position in range(group.begin, group.end)
        }

    def _hold(self, group: OtherRun) -> None:
        """Note how long the inputs of a segment stay, and its kept results."""
        end = self._last_gradient(group)
        for value in self._values(
            sight.storage for sight in self.unrolling.spans[group.segment].inputs
        ):
            copy = self._copy(value, group.begin)
            if copy is not None:
                self.uses[copy].update(range(group.begin, end + 1))
        over = self._over(group)
        for computation in kept_in(group.segment):
            self._hold_kept(group, computation, over)
        self._stand_in(group)
        for copy, value in enumerate(self.execution.values):
            if group.begin <= min(self.uses[copy]) < group.end:
                self._hold_variables(group, copy, value)

    def _hold_variables(self, group: OtherRun, copy: int, value: int) -> None:
        """Note how long the program's own variables hold results that run again."""
        # Of what cannot leave, the network only says when it is given up at last.
        self.uses[copy].add(self._held_until(group, value, min(self.uses[copy])))

    def _held_until(self, group: OtherRun, value: int, since: int) -> int:
        """Return the last operation in which variables hold what they hold since an operation."""
        last = self._given_up(group, value)
        if self.network.values[value].evictable or not self.network.computations[last].repeatable:
            return since
        still = [place for place, run in enumerate(group.runs) if run <= last]
        return max(since, group.begin + still[-1]) if still else since

    def _given_up(self, group: OtherRun, value: int) -> int:
        """Return the computation in which the program gives up a value at last.

        What is computed in a line is held only until the last call in it that takes it has
        returned: when the line runs again, its calls are made one after another, not by the
        program's own code.
        """
        last = self.network.trace().tensors[value].uses[-1]
        line = self.unrolling.spans[group.segment].line
        record, storages = self.record, self.record.of_value.get(value, ())
        taking = [
            call
            for call in (record.call(*each) for each in line[1:])
            if any(sight.storage in storages for sight in call.inputs)
        ]
        if not taking:
            return last
        return min(last, max(self.network.writer[value], record.operation(taking[-1].leave)))

    def _hold_kept(self, group: OtherRun, computation: int, end: int) -> None:
        """Note how long results stay that are handed out when a segment runs again.

        What nobody asks for again is held as long as the outermost segment.
        """
        keeper = self._keeps(computation)
        for sight in self.keeping.stored[computation]:
            if sight.moment > group.stop and keeper != group.segment and keeper in self.again:
                # The segment inside that keeps it has it handed out later.
                continue
            size, value = self.record.storages[sight.storage]
            handed = self._handed(group, sight.moment) if sight.moment <= group.stop else end
            last = handed if keeper in self.again else end
            if value < 0:
                # It dies within the operation, if it is not kept.
                self.unknown[sight.storage] = (computation, last, size)
                continue
            copy = self._copy(value, group.begin)
            if copy is None:
                continue
            if sight.moment <= group.stop:
                # What is handed out is in the program's variables again.
                last = max(last, self._held_until(group, value, handed))
            self.uses[copy].update(range(handed, max(*self.uses[copy], last) + 1))

    def _stand_in(self, group: OtherRun) -> None:
        """Note how long a storage is there in which stand-ins lie: until all has run again."""
        handed = [
            self._handed(group, sight.moment)
            for computation in kept_in(group.segment)
            for sight in self.keeping.unread[computation]
            if sight.moment <= group.stop
        ]
        size = self.keeping.stand_in[self._outermost(group)]
        if handed:
            key = min(handed), max(*handed, group.end - 1)
            self.stand_ins[key] = self.stand_ins.get(key, 0) + size

    def _handed(self, group: OtherRun, moment: int) -> int:
        """Return the operation during which a result is handed out when a segment runs again.

        The first one begins with the segment, all others where they did in the first run.
        """
        begun = sum(self.record.begins[run] <= moment for run in group.runs)
        if begun == 0 and group.told == group.begin:
            return group.begin
        return group.begin + begun - 1

    def _keeps(self, computation: int) -> Segment:
        """Return the segment in which a computation is kept."""
        return next(each for each in self.unrolling.spans if computation in each.kept)

    def _over(self, group: OtherRun) -> int:
        """Return the last operation that needs something saved in the outermost segment."""
        segment = self._outermost(group)
        outermost = next(each for each in self.unrolling.groups if each.segment == segment)
        return max(self._last_gradient(outermost), group.end)

    def _outermost(self, group: OtherRun) -> Segment:
        return next(each for each in self.program.segments if group.segment.first in each)

    def _last_gradient(self, group: OtherRun) -> int:
        """Return the last operation that needs something saved in a segment."""
        last = group.end
        for position in range(last, len(self.order)):
            computation = self.network.computations[self.order[position]]
            if not computation.repeatable and self.unrolling.needs(computation, group.segment):
                last = position
        return last

    def _hold_in_vain(self) -> None:
        """Note how long the inputs of segments that never run again stay, and what is kept in them.

        Nobody holds them once the segment has returned if nothing was saved in it; otherwise
        autograd may to the end.
        """
        for segment in self.program.segments:
            if segment in self.again:
                continue
            span = self.unrolling.spans[segment]
            last = self.record.operation(span.leave)
            if outlasts(self.record, span):
                last = len(self.order) - 1
            for value in self._values(sight.storage for sight in span.inputs):
                self._hold_to(value, last)
            for computation in kept_in(segment):
                for sight in self.keeping.stored[computation]:
                    size, value = self.record.storages[sight.storage]
                    if value < 0:
                        self.unknown[sight.storage] = (computation, last, size)
                    else:
                        self._hold_to(value, last)

    def _hold_to(self, value: int, last: int) -> None:
        """Note that somebody holds the first copy of a value up to an operation."""
        for copy in self.copies.get(value, [])[:1]:
            self.uses[copy].update(range(min(self.uses[copy]), max(*self.uses[copy], last) + 1))
            self.in_vain.add(copy)

    def _values(self, storages: Iterable[int]) -> set[int]:
        numbers = {self.record.storages[each][1] for each in storages if each >= 0}
        return {value for value in numbers if value >= 0}

    def _copy(self, value: int, before: int) -> int | None:
        """Return the copy of a value that is there before an operation."""
        tensors = self.execution.trace.tensors
        found = [copy for copy in self.copies.get(value, []) if tensors[copy].uses[0] < before]
        return found[-1] if found else None

    # The clock.

    def _ticks(self) -> tuple[Tick, ...]:
        clock = UnrolledClock(self.ticks, self.network, self.unrolling)
        return tuple(map(clock.tick, range(len(self.order)), self.order))
