"""Files of placement problems: a format of our own, and the tables that MiniMalloc reads.

A table has a line a buffer, and a heading that names its columns: ``id``, ``lower`` and ``upper``
(or ``start`` and ``end``, where ``end`` is the last moment that still belongs to it), ``size``, and
possibly ``alignment`` and ``offset``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from offcert.core.documents import (
    Fields,
    naming,
    read_document,
    read_text,
    require_format,
    show,
    write_atomically,
)
from offcert.core.errors import InputError
from offcert.core.forms import TEXT, Integer, Object, OrNull, Record
from offcert.core.list_forms import Each
from offcert.core.messages import cut, table_rows
from offcert.core.platform import UNITS
from offcert.questions.placement.problem import Placement, PlacementProblem, Residence

PLACEMENT_PROBLEM_FORMAT = "offcert-placement-problem"
# The version of the format. By definition.
PLACEMENT_PROBLEM_VERSION = 1

# Other names of columns, and whether one more has to be added to what stands there.
_COLUMNS = {
    "id": ("id", 0),
    "buffer": ("id", 0),
    "buffer_id": ("id", 0),
    "lower": ("lower", 0),
    "start": ("lower", 0),
    "begin": ("lower", 0),
    "upper": ("upper", 0),
    "end": ("upper", 1),
    "size": ("size", 0),
    "alignment": ("alignment", 0),
    "offset": ("offset", 0),
    "gaps": ("gaps", 0),
}
_REQUIRED = ("id", "lower", "upper", "size")


# A residence, as documents hold it, and the pool.
RESIDENCE = Record(Residence, name=TEXT, size=Integer(0), start=Integer(), end=Integer())
POOL: Record[Any] = Record(
    dict, capacity=OrNull(Integer(0), int), alignment=Integer(1), units=UNITS
)
_PROBLEM = Record(PlacementProblem, name=TEXT, residences=Each(Object(RESIDENCE)), **POOL.forms)


def placement_problem_to_json(problem: PlacementProblem) -> dict[str, Any]:
    """Return a placement problem as a JSON value (``offcert-placement-problem``, version 1)."""
    said = {"format": PLACEMENT_PROBLEM_FORMAT, "version": PLACEMENT_PROBLEM_VERSION}
    return said | _PROBLEM.write(problem)


def placement_problem_from_json(document: Any, place: str = "") -> PlacementProblem:
    """Return the placement problem that a JSON value describes."""
    fields = Fields(document, place)
    require_format(fields, PLACEMENT_PROBLEM_FORMAT, PLACEMENT_PROBLEM_VERSION)
    return _PROBLEM.read(fields)


def read_placement_problem(path: str | Path) -> PlacementProblem:
    """Return the placement problem in a file of ours or, if its name ends in .csv, in a table.

    Raises
    ------
    InputError
        If the file cannot be read or does not describe a placement problem.
    """
    if is_table(path):
        return read_placement_csv(path)[0]
    return read_document(path, placement_problem_from_json)


def is_table(path: str | Path) -> bool:
    """Whether a file's name says that it is a table."""
    return Path(path).suffix.lower() == ".csv"


def read_placement_csv(
    path: str | Path, capacity: int | None = None
) -> tuple[PlacementProblem, Placement | None]:
    """Return the problem in a table of MiniMalloc's, and the addresses if it has the column.

    The table does not say the capacity of the pool.
    """
    text = read_text(path, "utf-8-sig")
    with naming(path):
        return _from_rows(Path(path).stem, table_rows(text), capacity)


def _from_rows(
    name: str, rows: Sequence[Sequence[str]], capacity: int | None
) -> tuple[PlacementProblem, Placement | None]:
    lines = [(number, row) for number, row in enumerate(rows, 1) if any(map(str.strip, row))]
    if not lines:
        raise InputError("the table is empty, but its first line must name the columns")
    columns = _columns([cell.strip() for cell in lines[0][1]])
    residences, alignments, addresses = [], set(), []
    for number, row in lines[1:]:
        if len(row) != len(lines[0][1]):
            raise InputError(
                f"line {number} has {len(row)} entries, but there are {len(lines[0][1])} columns"
            )
        cells = {column: row[index].strip() for column, (index, _) in columns.items()}
        start, end, size = (
            _number(cells[column], column, number) + columns[column][1]
            for column in ("lower", "upper", "size")
        )
        if start >= end:
            raise InputError(f"line {number}: buffer {cut(cells['id'])} ends before it begins")
        if cells.get("gaps"):
            raise InputError(f"line {number} has gaps, and buffers with gaps cannot be placed here")
        residences.append(Residence(cells["id"], size, start, end))
        if "alignment" in cells:
            alignments.add(_number(cells["alignment"], "alignment", number))
        if "offset" in cells:
            addresses.append(_number(cells["offset"], "offset", number))
    if len(alignments) > 1:
        least, most = min(alignments), max(alignments)
        raise InputError(
            f"alignment must be the same in all lines, but there are {least} and {most}"
        )
    problem = PlacementProblem(name, residences, capacity, max(alignments, default=1))
    return problem, Placement(addresses) if "offset" in columns else None


def _columns(heading: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return for each column where it stands, and what is added to its numbers."""
    found: dict[str, tuple[int, int]] = {}
    for index, word in enumerate(heading):
        if word not in _COLUMNS:
            known = ", ".join(_COLUMNS)
            raise InputError(f"columns must be among {known}, not {show(word)}")
        name, more = _COLUMNS[word]
        if name in found:
            raise InputError(f"the column {name} is there twice")
        found[name] = index, more
    for name in _REQUIRED:
        if name not in found:
            raise InputError(f'the column "{name}" is missing')
    return found


def _number(text: str, column: str, line: int) -> int:
    # Not whatever `int` reads: underscores, other scripts' digits, thousands of them.
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 20):
        raise InputError(f"line {line}: {column} must be an integer, not {show(text)}")
    return int(text)


def write_placement_csv(
    path: str | Path, problem: PlacementProblem, placement: Placement | None = None
) -> None:
    """Write a problem as a table that MiniMalloc reads, with addresses if there are any.

    The capacity and the units are not written: the format has no place for them.
    """
    write_atomically(path, partial(_write_rows, problem, placement))


def _write_rows(problem: PlacementProblem, placement: Placement | None, path: Path) -> None:
    columns: dict[str, Sequence[object]] = {
        "id": [residence.name for residence in problem.residences],
        "lower": [residence.start for residence in problem.residences],
        "upper": [residence.end for residence in problem.residences],
        "size": [residence.size for residence in problem.residences],
    }
    if problem.alignment != 1:
        columns["alignment"] = [problem.alignment] * len(problem.residences)
    if placement is not None:
        columns["offset"] = placement.addresses
    _write_columns(path, columns)


def _write_columns(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
