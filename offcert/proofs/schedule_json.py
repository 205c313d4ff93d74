"""Schedules as JSON: whole transfers with integer times, or pieces with rationals as strings."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from offcert.core.documents import Fields, show
from offcert.core.errors import InputError
from offcert.core.forms import TEXT, Form, Integer, Integers, Member, Rational, Record
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, Transfer, TransferPiece

# Times and amounts of pieces hold products of sizes and of both sides of the bandwidth.
_RATIONAL = Rational(re.compile(r"([0-9]{1,200})(?:/([0-9]{1,200}))?"))


class _Step(NamedTuple):
    name: str
    start: int
    end: int


class _Moved(NamedTuple):
    kind: Kind
    tensor: int
    name: str
    gap: tuple[int, int]
    start: Any
    end: Any
    size: Any = None


_STEP = Record(_Step, name=TEXT, start=Integer(), end=Integer())
_PLACE: dict[str, Form] = {
    "kind": Member(Kind),
    "tensor": Integer(0),
    "name": TEXT,
    "gap": Integers(),
}
_TRANSFER = Record(_Moved, **_PLACE, start=Integer(), end=Integer())
_PIECE = Record(_Moved, **_PLACE, start=_RATIONAL, end=_RATIONAL, size=_RATIONAL)


def schedule_to_json(schedule: Schedule | FluidSchedule, trace: Trace) -> dict[str, Any]:
    """Return a schedule as a JSON value: ``operations`` and either ``transfers`` or ``pieces``."""
    rows = zip(trace.operations, schedule.starts, schedule.ends, strict=True)
    document: dict[str, Any] = {
        "operations": [_STEP.write(_Step(o.name, start, end)) for o, start, end in rows]
    }
    if isinstance(schedule, FluidSchedule):
        pieces = [(_moved(p, trace)._replace(size=p.size)) for p in schedule.pieces]
        return document | {"pieces": [_PIECE.write(each) for each in pieces]}
    return document | {"transfers": [_TRANSFER.write(_moved(t, trace)) for t in schedule.transfers]}


def _moved(of: Transfer | TransferPiece, trace: Trace) -> _Moved:
    gap = trace.gaps[of.gap]
    name = trace.tensors[gap.tensor].name
    return _Moved(of.kind, gap.tensor, name, (gap.before, gap.after), of.start, of.end)


def schedule_from_json(value: Any, trace: Trace) -> Schedule | FluidSchedule:
    """Return the schedule that a JSON value describes, unchecked."""
    fields = Fields(value, "schedule")
    steps = _STEP.read_all(fields, "operations")
    starts, ends = [each.start for each in steps], [each.end for each in steps]
    if ("transfers" in value) == ("pieces" in value):
        raise InputError('schedule must have either "transfers" or "pieces"')
    if "pieces" in value:
        parts = [(_PIECE.read(item), item) for item in fields.each("pieces")]
        pieces = [
            TransferPiece(p.kind, _gap(p, trace, at), p.start, p.end, p.size) for p, at in parts
        ]
        schedule: Schedule | FluidSchedule = FluidSchedule(starts, ends, pieces)
    else:
        parts = [(_TRANSFER.read(item), item) for item in fields.each("transfers")]
        transfers = [Transfer(t.kind, _gap(t, trace, at), t.start, t.end) for t, at in parts]
        schedule = Schedule(starts, ends, transfers)
    fields.finish()
    if len(starts) != len(trace):
        raise InputError(
            f"schedule.operations must have {len(trace)} entries, as the problem has operations, "
            f"not {len(starts)}"
        )
    return schedule


def _gap(moved: _Moved, trace: Trace, item: Fields) -> int:
    number = trace.gap_numbers.get((moved.tensor, *moved.gap))
    if number is None:
        raise InputError(
            f"{item.path('gap')} must be a gap of tensor {moved.tensor} in the problem, not "
            f"{show(list(moved.gap))}"
        )
    return number
