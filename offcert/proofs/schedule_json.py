"""Schedules as JSON: whole transfers with integer times, or pieces with rationals as strings."""

from __future__ import annotations

import re
from typing import Any

from offcert.core.documents import Fields, parse_rational, rational_text, show
from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.fluid_schedule import FluidSchedule, Piece
from offcert.questions.schedule.schedule import Schedule, Transfer

# Times and amounts of pieces hold products of sizes and of both sides of the bandwidth.
_LONG_RATIONAL = re.compile(r"([0-9]{1,200})(?:/([0-9]{1,200}))?")


def schedule_to_json(schedule: Schedule | FluidSchedule, trace: Trace) -> dict[str, Any]:
    """Return a schedule as a JSON value: ``operations`` and either ``transfers`` or ``pieces``."""
    rows = zip(trace.operations, schedule.starts, schedule.ends, strict=True)
    operations = [{"name": o.name, "start": start, "end": end} for o, start, end in rows]
    document: dict[str, Any] = {"operations": operations}
    if isinstance(schedule, FluidSchedule):
        document["pieces"] = [
            _place_to_json(piece.kind, piece.gap, trace)
            | {
                "start": rational_text(piece.start),
                "end": rational_text(piece.end),
                "size": rational_text(piece.size),
            }
            for piece in schedule.pieces
        ]
    else:
        document["transfers"] = [
            _place_to_json(t.kind, t.gap, trace) | {"start": t.start, "end": t.end}
            for t in schedule.transfers
        ]
    return document


def schedule_from_json(value: Any, trace: Trace) -> Schedule | FluidSchedule:
    """Return the schedule that a JSON value describes, unchecked.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(value, "schedule")
    starts, ends = [], []
    for item in fields.each("operations"):
        item.get("name", str)
        starts.append(item.integer("start"))
        ends.append(item.integer("end"))
        item.finish()
    if ("transfers" in value) == ("pieces" in value):
        raise InputError('schedule must have either "transfers" or "pieces"')
    if "pieces" in value:
        pieces = [_piece_from_json(item, trace) for item in fields.each("pieces")]
        schedule: Schedule | FluidSchedule = FluidSchedule(starts, ends, pieces)
    else:
        transfers = [_transfer_from_json(item, trace) for item in fields.each("transfers")]
        schedule = Schedule(starts, ends, transfers)
    fields.finish()
    if len(starts) != len(trace):
        raise InputError(
            f"schedule.operations must have {len(trace)} entries, as the problem has operations, "
            f"not {len(starts)}"
        )
    return schedule


def _place_to_json(kind: Kind, number: int, trace: Trace) -> dict[str, Any]:
    gap = trace.gaps[number]
    return {
        "kind": str(kind),
        "tensor": gap.tensor,
        "name": trace.tensors[gap.tensor].name,
        "gap": [gap.before, gap.after],
    }


def _place_from_json(item: Fields, trace: Trace) -> tuple[Kind, int]:
    tensor = item.integer("tensor", 0)
    ends = item.integers("gap")
    key = (tensor, *ends)
    number = trace.gap_numbers.get(key)
    if number is None:
        raise InputError(
            f"{item.path('gap')} must be a gap of tensor {tensor} in the problem, not "
            f"{show(list(ends))}"
        )
    item.get("name", str)
    kind = item.get("kind", str)
    if kind not in tuple(Kind):
        names = ", ".join(f'"{known}"' for known in Kind)
        raise InputError(f"{item.path('kind')} must be one of {names}, not {show(kind)}")
    return Kind(kind), number


def _transfer_from_json(item: Fields, trace: Trace) -> Transfer:
    kind, gap = _place_from_json(item, trace)
    transfer = Transfer(kind, gap, item.integer("start"), item.integer("end"))
    item.finish()
    return transfer


def _piece_from_json(item: Fields, trace: Trace) -> Piece:
    kind, gap = _place_from_json(item, trace)
    start, end, size = (
        parse_rational(item.get(name, str), item.path(name), _LONG_RATIONAL)
        for name in ("start", "end", "size")
    )
    piece = Piece(kind, gap, start, end, size)
    item.finish()
    return piece
