"""From a recording to a network, and to what has to be known so that parts of it run again.

The network says what each operation of the trace reads, writes and changes; the record of the step
what is made and asked for within operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from offcert.core.carried.record import Ask, Call, Making, Sight, StepRecord, Within
from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.trace import Operation
from offcert.runtime.capture.moments import CutStep, Life, Seen, StorageGroup
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.watch.events import ENTER, LEAVE


def build_network(
    recorder: Recorder,
    cut: CutStep,
    groups: Sequence[StorageGroup],
    operations: Sequence[Operation],
) -> Network:
    """Return the network whose plain trace is the trace of a recorded step.

    Operations of the model's forward pass may run again; those of the loss and of the backward
    passes may not. What lives on after its last reader is held by the program.

    Values have the indices of the trace's tensors; after them come those that in-place changes make
    of others.
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
            for index, each in enumerate(operations)
        ],
        flow.values,
    )


def asked_of(cut: CutStep, unpacked: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield the operation that asks for a saved tensor, the one that saved it, and the moment."""
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

    def __init__(self, recorder: Recorder, cut: CutStep, groups: Sequence[StorageGroup]) -> None:
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

    def _follow(self, value: int, group: StorageGroup) -> None:
        born, died = group.uses[0], group.uses[-1]
        self.writes[born].add(value)
        touched = self._operations(group, "touched", born, died)
        # What a backward pass changes in place was saved before: it may leave, and come back, until
        # then, so it is the same value that this operation reads.
        changed = self._operations(group, "changed", born, died)
        touched |= changed
        made: list[int] = []
        for reader in sorted(touched):
            self.reads[reader] |= {value, *made}
            if reader in changed and self.repeatable[reader]:
                self.values.append(Value(f"{group.name}'", 0, evictable=False, base=value))
                made.append(len(self.values) - 1)
                self.writes[reader].add(made[-1])
        for holder in (set(group.uses) | {died}) - touched - {born}:
            self.holds[holder].add(value)

    def _operations(self, group: StorageGroup, kind: str, born: int, died: int) -> set[int]:
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


@dataclass
class _Inside:
    """The storages that an operation makes, and the older ones that die in it."""

    first: int  # Its first moment
    made: list[int]  # For each of its moments, the bytes alive of what it has made
    # A moment from which on something older is dead, its value, and bytes.
    gone: list[tuple[int, int, int]] = field(default_factory=list)

    @cached_property
    def net(self) -> list[int]:
        """For each moment, how many bytes more are alive than when the operation began."""
        dead = [0] * (len(self.made) + 1)
        for moment, _, size in self.gone:
            dead[moment - self.first] += size
        pairs = zip(self.made, accumulate(dead), strict=False)
        return [made - lost for made, lost in pairs]

    @cached_property
    def peaks(self) -> tuple[list[int], list[int]]:
        """The most of `net` and of `made` up to each moment."""
        return list(accumulate(self.net, max)), list(accumulate(self.made, max))

    def values(self, index: int) -> set[int]:
        """Return the values of which a part or all has died before a moment."""
        return {value for moment, value, _ in self.gone if moment <= self.first + index}


def build_within(
    lives: Sequence[Life],
    value_of: Mapping[int, int],
    cut: CutStep,
    operations: Sequence[Operation],
    unpacked: Iterable[tuple[int, int]],
) -> Within:
    """Return the events within the operations of a step: memory made, tensors asked for.

    `value_of` says, by `id`, which value of the network each life is a part of.
    """
    insides, surviving = _insides(lives, value_of, cut)
    makings = (
        _making(index, inside, surviving[index], operations[index].workspace)
        for index, inside in enumerate(insides)
    )
    return Within(
        tuple(each for each in makings if each is not None),
        tuple(_asks(insides, cut, unpacked)),
    )


def _insides(
    lives: Sequence[Life], value_of: Mapping[int, int], cut: CutStep
) -> tuple[list[_Inside], list[int]]:
    """Return the bytes that each operation makes, moment by moment, and those that survive it."""
    count, end = len(cut), len(cut.moments)
    starts = [0, *cut.ticks[1:], end]
    changes = [[0] * (after - first + 1) for first, after in pairwise(starts)]
    insides = [_Inside(starts[index], []) for index in range(count)]
    surviving = [0] * count
    for life in lives:
        record = life.record
        if record.size == 0 or record.born >= end:
            continue
        born, died = cut.operation(record.born), end if record.died is None else record.died
        changes[born][max(0, record.born - starts[born])] += record.size
        last = cut.operation(died) if died < end else count
        if last == born:
            # What dies at a moment was alive in it.
            changes[born][died + 1 - starts[born]] -= record.size
            continue
        surviving[born] += record.size
        value = value_of.get(id(life))
        if last < count and value is not None:
            insides[last].gone.append((died + 1, value, record.size))
    for inside, change in zip(insides, changes, strict=True):
        inside.made = list(accumulate(change))[:-1]
    return insides, surviving


def _making(index: int, inside: _Inside, surviving: int, workspace: int) -> Making | None:
    # Between two moments nothing is made.
    room = surviving + workspace
    tight = [place for place, made in enumerate(inside.made) if made > room]
    if not tight:
        return None
    values = set().union(*(inside.values(place) for place in tight))
    return Making(index, max(inside.made) - room, tuple(sorted(values)))


def _asks(
    insides: Sequence[_Inside], cut: CutStep, unpacked: Iterable[tuple[int, int]]
) -> Iterable[Ask]:
    first_at: dict[int, dict[int, int]] = {}
    for backward, forward, asked in asked_of(cut, unpacked):
        first_at.setdefault(backward, {}).setdefault(forward, asked)
    for backward, moments in sorted(first_at.items()):
        found = [_ask(backward, each, insides[backward], at) for each, at in moments.items()]
        if any(each.most_otherwise for each in found):
            yield from found


def _ask(computation: int, saver: int, inside: _Inside, moment: int) -> Ask:
    index = max(0, moment - inside.first)
    net, made = inside.peaks
    return Ask(
        computation,
        saver,
        max(0, inside.net[index]),
        max(0, net[index]),
        inside.made[index],
        made[index],
        tuple(sorted(inside.values(index))),
    )


class RecordBuilder:
    """Makes the record of a recorded step."""

    def __init__(self, recorder: Recorder, cut: CutStep, groups: Sequence[StorageGroup]) -> None:
        self.recorder = recorder
        self.cut = cut
        self.value_of = {id(life): n for n, group in enumerate(groups) for life in group.lives}
        self.number_of: dict[Any, int] = {}
        self.storages: list[tuple[int, int]] = []

    def record(self, operations: Sequence[Operation]) -> StepRecord:
        """Return the record."""
        cut, recorder = self.cut, self.recorder
        launches = [
            next(n for n in range(tick, len(cut.moments)) if cut.moments[n].launches)
            for tick in cut.ticks
        ]
        calls = tuple(self._calls())
        saved, made = self._sights(recorder.packed), self._sights(recorder.made)
        within = build_within(recorder.lives, self.value_of, cut, operations, recorder.unpacked)
        return StepRecord(
            tuple(cut.ticks), tuple(launches), tuple(self.storages), calls, saved, made, within
        )

    def _calls(self) -> Iterable[Call]:
        given = dict(self.recorder.given)
        left = {
            (moment.event.path, moment.event.call): index
            for index, moment in enumerate(self.cut.moments)
            if moment.event.kind == LEAVE
        }
        for index, moment in enumerate(self.cut.moments):
            event = moment.event
            key = event.path, event.call
            if event.kind == ENTER and not moment.backward and key in left:
                inputs = self._sights(given.get(index, []))
                yield Call(event.path, event.call, index, left[key], inputs)

    def _sights(self, seen: Iterable[Seen]) -> tuple[Sight, ...]:
        return tuple(
            Sight(each.moment, self._storage(each), each.dtype, each.shape) for each in seen
        )

    def _storage(self, seen: Seen) -> int:
        if seen.storage is None:
            return -1
        known = isinstance(seen.storage, int)
        key = seen.storage if known else id(seen.storage)
        number = self.number_of.get((known, key))
        if number is None:
            number = self.number_of[known, key] = len(self.storages)
            self.storages.append((seen.size, -1 if known else self.value_of.get(key, -1)))
        return number
