"""Tables of names and times, from whatever program: rows become the schedule of a problem."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcert.core.documents import read_json, read_text, show
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.messages import cut, meant, table_rows
from offcert.core.platform import Kind
from offcert.core.strategy import Strategy
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.schedule import Schedule, Transfer

COMPUTE = "compute"
_KINDS = {
    COMPUTE: COMPUTE,
    "operation": COMPUTE,
    "offload": Kind.OFFLOAD,
    "prefetch": Kind.PREFETCH,
}
_COLUMNS = ("kind", "name", "start", "end")
# How executions call what runs again; which of the runs it is follows from the times.
_AGAIN = re.compile(r" \(run [0-9]+\)$")
# Columns of certificates' schedules that say nothing which names and times do not.
_IGNORED = ("tensor", "gap")


@dataclass(frozen=True)
class _Row:
    """A line of a table."""

    place: str  # For messages: where it stands
    # The event, and its operation or tensor, by name or number.
    kind: str
    name: str
    # Ticks.
    start: int
    end: int | None


def read_schedule(problem: Problem, path: str | Path) -> tuple[Execution | None, Schedule]:
    """Return the execution and schedule in a table, without a look at whether they are legal.

    A row is a computation or a transfer: ``kind`` (compute, offload or prefetch), ``name`` (of the
    operation or tensor, or its number from 0), ``start`` and possibly ``end``, in ticks. A prefetch
    serves the next operation that uses its tensor. Where computations may run again, their rows in
    the order of time are what runs, and nothing is kept that nobody reads.

    A file that ends in ``.csv`` has a line a row, below one that names the columns. One that ends
    in ``.json`` has a list of objects; or an object with ``operations`` and ``transfers``, as
    certificates have it, or a whole certificate.
    """
    form = Path(path).suffix.lower()
    if form in (".mps", ".lp"):
        raise InputError(
            f"{path} is a program for a solver, not a schedule: import takes the .sol file that "
            "the solver writes"
        )
    if form not in (".csv", ".json"):
        raise InputError(f"{path} must end in .csv or .json")
    try:
        rows = _csv_rows(path) if form == ".csv" else _json_rows(read_json(path))
        return _scheduled(problem, rows)
    except InputError as error:
        said = str(error)
        raise InputError(said if said.startswith(str(path)) else f"{path}: {said}") from None


def _csv_rows(path: str | Path) -> list[_Row]:
    lines = table_rows(read_text(path, "utf-8-sig"))
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if not _idle(line)]
    if not numbered:
        raise InputError("the table is empty, but its first line must name the columns")
    heading = [cell.strip() for cell in numbered[0][1]]
    _require_columns(heading, f"line {numbered[0][0]}")
    rows: list[_Row] = []
    for number, line in numbered[1:]:
        if line == numbered[0][1]:
            # A solver has written one solution after the other; the last one is the best.
            rows = []
        else:
            if len(line) != len(heading):
                count = len(heading)
                raise InputError(f"line {number} has {len(line)} entries instead of {count}")
            cells = dict(zip(heading, map(str.strip, line), strict=True))
            rows.append(_row(cells, f"line {number}"))
    return rows


def _idle(line: Sequence[str]) -> bool:
    """Return whether a line is empty, or says something about the table, as MiniZinc does."""
    return not any(map(str.strip, line)) or line[0].startswith(("%", "-----", "====="))


def _json_rows(document: Any) -> list[_Row]:
    if isinstance(document, dict) and isinstance(document.get("schedule"), dict):
        document = document["schedule"]
    if isinstance(document, dict):
        parts = [(COMPUTE, "operations"), (None, "transfers")]
        unknown = [name for name in document if name not in ("operations", "transfers")]
        if unknown:
            raise InputError(f"the field {show(unknown[0])} is not known in a schedule")
    else:
        document, parts = {"rows": document}, [(None, "rows")]
    rows = []
    for kind, name in parts:
        items = document.get(name, [])
        if not isinstance(items, list):
            raise InputError(f"{name} must be a list, not {show(items)}")
        for number, item in enumerate(items):
            place = f"{name}[{number}]"
            if not isinstance(item, dict):
                raise InputError(f"{place} must be an object, not {show(item)}")
            rows.append(_row({"kind": kind, **item} if kind else item, place))
    return rows


def _require_columns(columns: Iterable[str], place: str) -> None:
    for column in columns:
        if column not in (*_COLUMNS, *_IGNORED):
            known = ", ".join(_COLUMNS)
            raise InputError(
                f"{place}: columns are {known}, not {show(column)}{meant(str(column), _COLUMNS)}"
            )


def _row(cells: Mapping[str, Any], place: str) -> _Row:
    _require_columns(cells, place)
    for column in _COLUMNS[:3]:
        if cells.get(column) in (None, ""):
            raise InputError(f"{place}: {column} is missing")
    kind = _KINDS.get(str(cells["kind"]).lower())
    if kind is None:
        raise InputError(
            f"{place}: kind must be compute, offload or prefetch, not {show(cells['kind'])}"
        )
    end = cells.get("end")
    return _Row(
        place,
        kind,
        str(cells["name"]),
        _ticks(cells["start"], "start", place),
        None if end in (None, "") else _ticks(end, "end", place),
    )


def _ticks(value: Any, column: str, place: str) -> int:
    text = str(value)
    digits = text.removeprefix("-")
    if isinstance(value, bool) or not (digits.isascii() and digits.isdecimal() and len(text) < 20):
        raise InputError(f"{place}: {column} must be an integer number of ticks, not {show(value)}")
    return int(text)


# From rows to a schedule


def _scheduled(problem: Problem, rows: Sequence[_Row]) -> tuple[Execution | None, Schedule]:
    computing = sorted(
        (row for row in rows if row.kind == COMPUTE), key=lambda row: (row.start, row.end or 0)
    )
    network = problem.computed
    if problem.recompute is Recompute.NONE or network is None:
        execution, trace = None, problem.trace
        names = [operation.name for operation in trace.operations]
        numbers = _numbers(computing, names, "operation")
        times = dict(zip(numbers, computing, strict=True))
        for number, row in zip(numbers, computing, strict=True):
            if times[number] is not row:
                raise InputError(f"{row.place}: operation {cut(names[number])} runs twice")
        missing = [number for number in range(len(trace)) if number not in times]
        if missing:
            name = cut(names[missing[0]])
            raise InputError(f"there is no row for operation {missing[0]} ({name})")
        ordered = [times[number] for number in range(len(trace))]
    else:
        names = [computation.name for computation in network.computations]
        runs = _numbers(computing, names, "computation")
        execution = Strategy(runs).without_unread(network).expand(network)
        trace, ordered = execution.trace, computing
    durations = trace.durations
    starts = [row.start for row in ordered]
    ends = [
        row.start + duration if row.end is None else row.end
        for row, duration in zip(ordered, durations, strict=True)
    ]
    moving = [row for row in rows if row.kind != COMPUTE]
    return execution, Schedule(starts, ends, _transfers(problem, trace, starts, ends, moving))


def _numbers(rows: Iterable[_Row], names: Sequence[str], what: str) -> list[int]:
    """Return the operation or tensor that each row names: by name, or else by number."""
    places: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        places.setdefault(name, []).append(number)
    found = []
    for row in rows:
        same = places.get(row.name) or places.get(_AGAIN.sub("", row.name), [])
        if len(same) > 1:
            raise InputError(
                f"{row.place}: {len(same)} {what}s are called {cut(row.name)}; say its number, one "
                f"of {', '.join(map(str, same[:4]))}{', …' if len(same) > 4 else ''}"
            )
        if not same and row.name.isascii() and row.name.isdecimal():
            same = [int(row.name)] if int(row.name) < len(names) else []
        if not same:
            raise InputError(
                f"{row.place}: there is no {what} {show(row.name)}{meant(row.name, names)}"
            )
        found.append(same[0])
    return found


def _transfers(
    problem: Problem,
    trace: Trace,
    starts: Sequence[int],
    ends: Sequence[int],
    rows: Sequence[_Row],
) -> list[Transfer]:
    """Return transfers with the gaps that they serve, which follow from their times."""
    tensors = _copies(trace, ends, rows)
    of_tensor: dict[int, list[int]] = {}
    for number, gap in enumerate(trace.gaps):
        of_tensor.setdefault(gap.tensor, []).append(number)
    served: dict[int, list[int]] = {}
    transfers = []
    for row, tensor in zip(rows, tensors, strict=True):
        kind = Kind(row.kind)
        gaps = of_tensor.get(tensor, [])
        if not gaps:
            name = cut(trace.tensors[tensor].name)
            raise InputError(f"{row.place}: {name} may not leave: it has no gap between two uses")
        end = row.end
        if end is None:
            size = trace.gap_size(gaps[0])
            end = row.start + problem.platform.transfer_time(size, kind)
        # The first use after it; what returns after the last use returns for nothing.
        later = [g for g in gaps if starts[trace.gaps[g].after] >= end]
        number = later[0] if later else gaps[-1]
        if kind is Kind.PREFETCH:
            served.setdefault(tensor, []).append(number)
        transfers.append(Transfer(kind, number, row.start, end))
    # An offload names the first gap of its tensor that is evicted.
    return [
        Transfer(t.kind, min(served.get(trace.gaps[t.gap].tensor, [t.gap])), t.start, t.end)
        if t.kind is Kind.OFFLOAD
        else t
        for t in transfers
    ]


def _copies(trace: Trace, ends: Sequence[int], rows: Sequence[_Row]) -> list[int]:
    """Return the tensor of each transfer; of several of one name, the last one written before."""
    places: dict[str, list[int]] = {}
    for number, tensor in enumerate(trace.tensors):
        places.setdefault(tensor.name, []).append(number)
    written = [0 if tensor.uses[0] < 0 else ends[tensor.uses[0]] for tensor in trace.tensors]
    found = []
    for row in rows:
        same = places.get(row.name)
        if same is None:
            same = _numbers([row], [tensor.name for tensor in trace.tensors], "tensor")
        before = [number for number in same if written[number] <= row.start]
        found.append(max(before, key=lambda number: written[number], default=same[0]))
    return found
