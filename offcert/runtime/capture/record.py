"""From a recording to what has to be known of a step so that parts of it can run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from offcert.core.carried.record import Ask, Call, Making, Sight, StepRecord, Within
from offcert.core.trace import Operation
from offcert.runtime.capture.network import asked_of
from offcert.runtime.watch.events import ENTER, LEAVE

if TYPE_CHECKING:
    from offcert.runtime.capture.cut_step import CutStep, Group
    from offcert.runtime.capture.moments import Life, Seen
    from offcert.runtime.capture.recorder import Recorder
    from offcert.runtime.capture.recording import Recording


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


def build_record(
    recorder: Recorder | Recording,
    cut: CutStep,
    groups: Sequence[Group],
    operations: Sequence[Operation],
) -> StepRecord:
    """Return the record of a recorded step."""
    return _Builder(recorder, cut, groups).record(operations)


class _Builder:
    def __init__(
        self, recorder: Recorder | Recording, cut: CutStep, groups: Sequence[Group]
    ) -> None:
        self.recorder = recorder
        self.cut = cut
        self.value_of = {id(life): n for n, group in enumerate(groups) for life in group.lives}
        self.number_of: dict[Any, int] = {}
        self.storages: list[tuple[int, int]] = []

    def record(self, operations: Sequence[Operation]) -> StepRecord:
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
