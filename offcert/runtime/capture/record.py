"""From a recording to what has to be known of a step so that parts of it can run again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from offcert.core.carried.record import Call, Sight, StepRecord
from offcert.core.trace import Operation
from offcert.runtime.capture.within import build_within
from offcert.runtime.events import ENTER, LEAVE

if TYPE_CHECKING:
    from offcert.runtime.capture.line import Group, Line
    from offcert.runtime.capture.moments import Seen
    from offcert.runtime.capture.recorder import Recorder
    from offcert.runtime.capture.stretch import Recording


def build_record(
    recorder: Recorder | Recording,
    line: Line,
    groups: Sequence[Group],
    operations: Sequence[Operation],
) -> StepRecord:
    """Return the record of a recorded step.

    Parameters
    ----------
    recorder : Recorder or Recording
        Finished.
    line : Line
        Its moments, cut into operations.
    groups : sequence of Group
        The storages of each value of the network.
    operations : sequence of Operation
        Of the trace.
    """
    return _Builder(recorder, line, groups).record(operations)


class _Builder:
    def __init__(self, recorder: Recorder | Recording, line: Line, groups: Sequence[Group]) -> None:
        self.recorder = recorder
        self.line = line
        self.value_of = {id(life): n for n, group in enumerate(groups) for life in group.lives}
        self.number_of: dict[Any, int] = {}
        self.storages: list[tuple[int, int]] = []

    def record(self, operations: Sequence[Operation]) -> StepRecord:
        line, recorder = self.line, self.recorder
        launches = [
            next(n for n in range(tick, len(line.moments)) if line.moments[n].launches)
            for tick in line.ticks
        ]
        calls = tuple(self._calls())
        saved, made = self._sights(recorder.packed), self._sights(recorder.made)
        within = build_within(recorder.lives, self.value_of, line, operations, recorder.unpacked)
        return StepRecord(
            tuple(line.ticks), tuple(launches), tuple(self.storages), calls, saved, made, within
        )

    def _calls(self) -> Iterable[Call]:
        given = dict(self.recorder.given)
        left = {
            (moment.event.path, moment.event.call): index
            for index, moment in enumerate(self.line.moments)
            if moment.event.kind == LEAVE
        }
        for index, moment in enumerate(self.line.moments):
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
