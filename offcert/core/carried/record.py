"""`StepRecord`: what a recorded step calls, saves and computes, moment by moment.

Two things lie deeper than its operations (`Within`). Something may die in the midst of an
operation, before the operation takes the most: where a segment does not save it, or keeps it for
longer, the operation takes more beside what the trace counts. And a segment runs again when a
backward computation asks for something saved in it, whose own results by then wait meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from offcert.core.carried.ranges import RANGES, Ranges
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.forms import TEXT, Absent, Integer, Integers, Object, Record, RefusedError
from offcert.core.list_forms import Each, InOrder


@dataclass(frozen=True, slots=True)
class Making:
    """A computation whose results fit only because other values are freed while it runs."""

    computation: int  # Number of the computation.
    more: int  # Bytes that it takes beside its workspace if one of the values does not die then.
    values: tuple[int, ...]  # Values that die.


@dataclass(frozen=True, slots=True)
class Ask:
    """The first time that a backward computation asks for a saved result of another."""

    # Who asks for what who has saved.
    computation: int
    saver: int
    left: int  # Bytes by which more is alive then than when the computation began.
    most: int  # The same at any time until then.
    # The same if one of the values does not die on the way.
    left_otherwise: int
    most_otherwise: int
    values: tuple[int, ...]  # Values that die on the way.


@dataclass(frozen=True)
class Within:
    """Events within operations of a recorded step."""

    makings: tuple[Making, ...] = ()  # At most one for each computation.
    # Of each computation in the order in which it asks, as often as it asks for what somebody else
    # has saved; none of computations that have made nothing by the last of them.
    asks: tuple[Ask, ...] = ()

    @cached_property
    def making_of(self) -> dict[int, Making]:
        """The entry of each computation that has one."""
        return {each.computation: each for each in self.makings}

    @cached_property
    def asks_of(self) -> dict[int, tuple[Ask, ...]]:
        """The requests of each computation that has any."""
        found: dict[int, tuple[Ask, ...]] = {}
        for each in self.asks:
            found[each.computation] = (*found.get(each.computation, ()), each)
        return found

    def first_ask(self, computation: int, first: int, last: int) -> Ask | None:
        """Return a computation's first ask for values saved by a range of others, or None."""
        for each in self.asks_of.get(computation, ()):
            if first <= each.saver <= last:
                return each
        return None


# Of what was profiled before anything was recorded of that.
NOTHING_WITHIN = Within()


class _Ask(InOrder):
    """Form of an `Ask`: where a value does not die on the way, no fewer bytes may be alive."""

    def read(self, fields: Fields, name: str) -> Ask:
        ask: Ask = super().read(fields, name)
        if _too_little(ask):
            raise InputError(
                f"{fields.path(name)} must not have less alive where a value does not die on the "
                f"way: {ask.left_otherwise} and {ask.most_otherwise}, not {ask.left} and {ask.most}"
            )
        return ask

    def quickly(self, value: Any) -> Ask:
        ask: Ask = super().quickly(value)
        if _too_little(ask):
            raise RefusedError
        return ask


def _too_little(ask: Ask) -> bool:
    return ask.left_otherwise < ask.left or ask.most_otherwise < ask.most


WITHIN = Record(
    Within,
    makings=Each(InOrder(Making, Integer(0), Integer(0), Integers(0))),
    asks=Each(_Ask(Ask, *[Integer(0)] * 6, Integers(0))),
)


@dataclass(frozen=True, slots=True)
class Sight:
    """A tensor at some moment."""

    moment: int  # Events and operators are numbered together.
    # Which of the storages it lies in; -1 for what the model holds, which is never moved.
    storage: int
    dtype: str  # Its data type.
    shape: tuple[int, ...]  # Its shape.


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a module in a forward pass."""

    path: str  # Path of the module.
    call: int  # Number of the module's call.
    # Its first and last moment.
    enter: int
    leave: int
    inputs: tuple[Sight, ...]  # The tensors that it is given.


@dataclass(frozen=True)
class StepRecord:
    """The record of a step beside its trace: its moments, storages, calls and saved tensors."""

    begins: tuple[int, ...]  # The moment with which each operation begins.
    launches: tuple[int, ...]  # The moment of the first operator in it that computes something.
    # Bytes of each storage, and the value that it is a part of, or -1.
    storages: tuple[tuple[int, int], ...]
    calls: tuple[Call, ...]  # Of modules in forward passes, as they are entered.
    saved: tuple[Sight, ...]  # Tensors that autograd saves there, in order, as often as it does.
    results: tuple[Sight, ...]  # Tensors that operators make there.
    # What happens within operations. Empty in what was profiled before it was recorded: then peaks
    # of what runs again may lie above those that are foreseen.
    within: Within = NOTHING_WITHIN

    def operation(self, moment: int) -> int:
        """Return the operation that a moment belongs to; what comes too early goes to the first."""
        return max(bisect_right(self.begins, moment) - 1, 0)

    @cached_property
    def _call_of(self) -> Mapping[tuple[str, int], Call]:
        return {(each.path, each.call): each for each in self.calls}

    def call(self, path: str, call: int) -> Call:
        """Return a call of a module."""
        found = self._call_of.get((path, call))
        if found is None:
            raise InputError(f"the captured step makes no call {call + 1} of {path or 'the model'}")
        return found

    @cached_property
    def all_made_in(self) -> Mapping[int, tuple[Sight, ...]]:
        """All results that operators make, by operation."""
        found: dict[int, list[Sight]] = {}
        for sight in self.results:
            found.setdefault(self.operation(sight.moment), []).append(sight)
        return {operation: tuple(sights) for operation, sights in found.items()}

    @cached_property
    def made_in(self) -> Mapping[int, tuple[Sight, ...]]:
        """The movable results that operators make, by operation."""
        movable = {
            operation: tuple(sight for sight in sights if sight.storage >= 0)
            for operation, sights in self.all_made_in.items()
        }
        return {operation: sights for operation, sights in movable.items() if sights}

    @cached_property
    def of_value(self) -> Mapping[int, tuple[int, ...]]:
        """The storages of each value."""
        found: dict[int, tuple[int, ...]] = {}
        for storage, (_, value) in enumerate(self.storages):
            if value >= 0:
                found[value] = (*found.get(value, ()), storage)
        return found


class _StepRecords(Record[StepRecord]):
    """Records whose tensors lie in storages that they list."""

    def read(self, fields: Fields) -> StepRecord:
        record = super().read(fields)
        inputs = (sight for call in record.calls for sight in call.inputs)
        for sight in (*record.saved, *record.results, *inputs):
            if sight.storage >= len(record.storages):
                raise InputError(
                    f"{fields.path('storages')} lacks storage {sight.storage}, in which a tensor "
                    "lies"
                )
        return record


_SIGHTS = Each(InOrder(Sight, Integer(), Integer(-1), TEXT, Integers(0)))
RECORD = _StepRecords(
    StepRecord,
    begins=Integers(0),
    launches=Integers(0),
    storages=Each(InOrder(tuple, Integer(0), Integer(-1))),
    calls=Each(InOrder(Call, TEXT, Integer(0), Integer(), Integer(), _SIGHTS)),
    saved=_SIGHTS,
    results=_SIGHTS,
    # Older captures leave it out.
    within=Absent(Object(WITHIN), NOTHING_WITHIN, always=True),
)


_TICKS = Each(InOrder(tuple, TEXT, TEXT, Integer(), Integer(), Integer()))


def captured(source: Mapping[str, Any] | None) -> tuple[Ranges, StepRecord, tuple[Any, ...]] | None:
    """Return ranges, record and ticks of a captured step from its problem's source, or None."""
    capture = (source or {}).get("capture")
    if not isinstance(capture, dict) or "record" not in capture:
        return None
    fields = Fields(capture, "source.capture")
    ranges, record = RANGES.read_in(fields, "ranges"), RECORD.read_in(fields, "record")
    return ranges, record, _TICKS.read(fields, "ticks")
