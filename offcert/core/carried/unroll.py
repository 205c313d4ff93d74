"""The order in which segments are recomputed, how far, and when that begins."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from offcert.core.carried.ranges import Called, Range, Ranges
from offcert.core.carried.record import Call, Sight, StepRecord
from offcert.core.computations import Computation
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.program import BackwardUnrolling, Program, Segment

# An event of the clock: kind, path, call, part, again (`offcert.runtime.watch.events.Event`).
Tick = tuple[str, str, int, int, int]


class UnrolledClock:
    """Counter of module calls when segments run again; `tick` in the order of operations.

    The first operation of a segment that runs again begins when the segment says so, what the
    backward pass goes on with when it says that it has; all others as when they ran first, with the
    next numbers of calls.
    """

    def __init__(
        self, ticks: Sequence[Tick], network: Network, unrolling: CarriedUnrolling
    ) -> None:
        self._plain = ticks
        self._network = network
        self._unrolling = unrolling
        self._counts = Counter(("call", each.path) for each in unrolling.record.calls)
        self._waiting = list(reversed(unrolling.groups))
        self._group: OtherRun | None = None
        # Of the calls in it that it makes again.
        self._numbers: dict[tuple[str, int], int] = {}
        # The events by which a group begins to run again, and has run if nothing came after.
        self._again: Tick | None = None
        self._resumed: Tick | None = None

    def tick(self, position: int, computation: int) -> Tick:
        """Return the event with which an operation begins."""
        self._move_on(position)
        plain = self._plain[computation]
        if self._group is not None:
            event = self._again or (*plain[:2], self._numbers[plain[1], plain[2]], *plain[3:])
        elif self._network.computations[computation].repeatable:
            return plain
        else:
            event = self._again or self._resumed or plain
        self._again = self._resumed = None
        return event

    def _move_on(self, position: int) -> None:
        """End the segment that has run again, and begin the next ones."""
        while True:
            if self._group is not None and position >= self._group.end:
                self._resumed = self._event("resume", self._group)
                self._group = None
            if self._group is not None or not self._waiting:
                return
            if self._waiting[-1].begin != position:
                return
            self._begin(self._waiting.pop())

    def _begin(self, group: OtherRun) -> None:
        if not group.nested:
            # An inner group asks first, and for that the group around it.
            chain = [group]
            for following in reversed(self._waiting):
                if not following.nested:
                    break
                chain.append(following)
            for each in reversed(chain):
                event = self._event("again", each)
                self._again = self._again or event
        span = self._unrolling.spans[group.segment]
        self._group = group
        self._numbers = {
            (call.path, call.call): self._count("call", call.path)
            for call in self._unrolling.record.calls
            if span.enter <= call.enter <= min(group.stop, span.leave)
            and (not span.line or (call.path, call.call) in span.line)
        }

    def _event(self, kind: str, group: OtherRun) -> Tick:
        path = self._unrolling.spans[group.segment].path
        return kind, path, self._count(kind, path), 0, 0

    def _count(self, kind: str, path: str) -> int:
        number = self._counts[kind, path]
        self._counts[kind, path] = number + 1
        return number


@dataclass(frozen=True, slots=True)
class Span:
    """The first run of a segment."""

    path: str  # Path of the module that is called, or of the container.
    # Its first and last moment.
    enter: int
    leave: int
    inputs: tuple[Sight, ...]  # The tensors that it is given.
    # The calls that are made again, if the segment is a line; otherwise all between its first and
    # its last moment are.
    line: tuple[Called, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherRun:
    """Another run of a segment."""

    segment: Segment  # The segment.
    begin: int  # Its first operation in the execution.
    runs: tuple[int, ...]  # The computations that run again.
    # The moment of its first run up to which it runs again; before its first one if nothing is
    # saved in it.
    stop: int
    # Whether it runs again because a segment inside of it, or around it, does at the same time, and
    # that one has been told first.
    nested: bool
    # The operation that begins when it is told: its first one, or that of what is told first.
    told: int

    @property
    def end(self) -> int:
        """The operation after its last one."""
        return self.begin + len(self.runs)


class CarriedUnrolling(BackwardUnrolling):
    """Unrolling of a backward pass in which a record says where recomputation stops."""

    def __init__(
        self, network: Network, program: Program, ranges: Ranges, record: StepRecord
    ) -> None:
        super().__init__(network, program)
        self.ranges = ranges
        self.record = record
        # In the order in which segments run again; known once `strategy` has been called.
        self.groups: list[OtherRun] = []
        self.spans: dict[Segment, Span] = {}  # The first run of each segment.
        for segment in program.segments:
            self._find_spans(segment, ())

    def needs(self, computation: Computation, segment: Segment) -> bool:
        """Whether a backward computation needs tensors that were saved in a segment."""
        return bool(self._savers(computation, segment))

    def _needed_by(self, computation: int) -> Segment | None:
        # Whatever is asked for makes a segment run again, weights of the model too.
        needing = self.network.computations[computation]
        return next((each for each in self.waiting if self.needs(needing, each)), None)

    def _find_spans(self, segment: Segment, line: tuple[Called, ...]) -> None:
        """Note the first run of a segment, in a line or not, and of those inside."""
        span = self.spans[segment] = self.first_run(segment, line)
        for inner in segment.inner:
            self._find_spans(inner, span.line or line)

    def first_run(self, segment: Segment, line: tuple[Called, ...] = ()) -> Span:
        """Return the first run of a segment, which need not be one of the program's."""
        found = self.ranges.find(segment.first, segment.last, line)
        if found is None:
            names = [self.network.computations[n].name for n in (segment.first, segment.last)]
            raise InputError(
                f"nothing runs from {names[0]} to {names[1]} that could run again as one: neither "
                "a call of a module, nor consecutive children of an nn.Sequential, nor calls in a "
                "line"
            )
        call = self.record.call(found.path, found.call)
        if found.line:
            end = self.record.call(*found.line[-1])
            return Span(found.path, call.enter, end.leave, call.inputs, found.line)
        if found.children is None:
            return Span(found.path, call.enter, call.leave, call.inputs)
        first, last = self._children(found, call)
        return Span(found.path, first.enter, last.leave, first.inputs)

    @cached_property
    def _calls_of(self) -> dict[str, list[Call]]:
        """The calls of each path."""
        calls: dict[str, list[Call]] = defaultdict(list)
        for each in self.record.calls:
            calls[each.path].append(each)
        return calls

    def _children(self, found: Range, container: Call) -> tuple[Call, Call]:
        """Return the calls of the first and the last child of a run."""
        assert found.children is not None
        above = f"{found.path}." if found.path else ""
        calls = []
        for child in found.children:
            inside = [
                each
                for each in self._calls_of.get(above + child, ())
                if container.enter <= each.enter and each.leave <= container.leave
            ]
            if not inside:
                raise InputError(f"the captured step does not call {above}{child}")
            calls.append(inside[0])
        return calls[0], calls[1]

    def _again(self, segment: Segment) -> list[int]:
        stop = max((*self._moments(segment), -1))
        runs = [each for each in segment.again if self.record.launches[each] <= stop]
        before = self.groups[-1] if self.groups else None
        nested = (
            before is not None and before.end == len(self.runs) and segment in before.segment.inner
        )
        begin = len(self.runs)
        told = before.told if nested and before is not None else begin
        self.groups.append(OtherRun(segment, begin, tuple(runs), stop, nested, told))
        return runs

    def _moments(self, segment: Segment) -> Iterator[int]:
        """Yield the moments at which something is saved in a segment, not in those inside."""
        span = self.spans[segment]
        inner = [self.spans[each] for each in segment.inner]
        for sight in self.record.saved:
            moment = sight.moment
            if span.enter <= moment < span.leave and not any(
                each.enter <= moment < each.leave for each in inner
            ):
                yield moment
        for each in inner:
            if each.inputs:
                yield each.enter - 1
