"""The columns of a campaign's table, and tables as files: Parquet, CSV, JSON, and JSON lines.

Only Parquet needs more than Python: ``pip install '.[compare]'``.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcert.core.documents import read_json, show, write_atomically
from offcert.core.errors import InputError
from offcert.core.result import SolveStatus

# What a heuristic gives that finds no plan, and what is left of a process that died.
NO_PLAN = "NO_PLAN"
FAILED = "FAILED"
STATUSES = (*(str(status) for status in SolveStatus), NO_PLAN, FAILED)

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of the table."""

    name: str  # As in the file.
    kind: type  # ``str``, ``int`` (64 bits) or ``float``.
    required: bool = True  # Whether every row has a value; elsewhere it may be null.


COLUMNS = (
    Column("key", str),
    Column("problem", str),
    Column("digest", str),
    Column("network", str, required=False),
    Column("image", int, required=False),
    Column("batch", int, required=False),
    Column("memory", int),
    Column("memory_percent", float, required=False),
    Column("minimum_memory", int),
    Column("peak_memory", int),
    Column("compute_time", int),
    # Bytes per tick, as a problem document writes them; the second only where it differs.
    Column("bandwidth", str, required=False),
    Column("prefetch_bandwidth", str, required=False),
    # What may run again ("none", "chain", "any") and whether tensors may leave ("yes", "no"); null
    # where nothing runs again and tensors may leave, as in every table from before these columns.
    Column("recompute", str, required=False),
    Column("offload", str, required=False),
    Column("method", str),
    Column("settings", str),
    Column("status", str),
    Column("makespan", int, required=False),
    Column("lower_bound", int, required=False),
    Column("proved_bound", int, required=False),
    Column("evidence", str, required=False),
    Column("seconds", float),
    Column("reason", str, required=False),
    Column("certificate", str, required=False),
    Column("version", str),
)
NAMES = tuple(column.name for column in COLUMNS)
# A table from before there were these is read all the same.
LATER = ("recompute", "offload")


def require_row(row: Mapping[str, Any], place: str) -> Row:
    """Return a row with its columns in order, absent ones null; `place` is for the message."""
    unknown = [name for name in row if name not in NAMES]
    if unknown:
        raise InputError(f'{place}: the column "{unknown[0]}" is not known')
    complete = {column.name: _value(row.get(column.name), column, place) for column in COLUMNS}
    if complete["status"] not in STATUSES:
        raise InputError(
            f"{place}: status must be one of {', '.join(STATUSES)}, not {show(complete['status'])}"
        )
    return complete


def _value(value: Any, column: Column, place: str) -> Any:
    if value is None:
        if column.required:
            raise InputError(f'{place}: the column "{column.name}" must have a value')
        return None
    if column.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    wrong = not isinstance(value, column.kind) or isinstance(value, bool)
    if wrong or (column.kind is float and not math.isfinite(value)):
        kind = {str: "text", int: "an integer", float: "a finite number"}[column.kind]
        raise InputError(f"{place}: {column.name} must be {kind}, not {show(value)}")
    if column.kind is int and not -(2**63) <= value < 2**63:
        raise InputError(f"{place}: {column.name} must fit into 64 bits, which {value} does not")
    return value


FORMAT = "offcert-campaign"
# The version of the table's format. By definition.
VERSION = 1


def require_suffix(path: Path) -> str:
    """Return the suffix of a table's file."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path} must end with one of {', '.join(SUFFIXES)}")
    if path.suffix == ".parquet":
        _pyarrow()
    return path.suffix


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("Parquet files need pyarrow: pip install '.[compare]'") from None
    return pyarrow


def arrow_schema() -> Any:
    """Return the table's columns as a ``pyarrow.Schema``."""
    arrow = _pyarrow()
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    return arrow.schema(
        [arrow.field(column.name, kinds[column.kind], nullable=True) for column in COLUMNS]
    )


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows through a temporary file that is on the disk before it takes the name."""
    listed = list(rows)
    write, _ = SUFFIXES[require_suffix(path)]

    def write_through(temporary: Path) -> None:
        write(temporary, listed)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())

    write_atomically(path, write_through)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a table's file."""
    _, read = SUFFIXES[require_suffix(path)]
    return [require_row(row, f"{path}, row {index}") for index, row in enumerate(read(path))]


def dump_row(row: Row) -> str:
    """Return a row as one line of JSON."""
    return json.dumps(row, separators=(",", ":"), allow_nan=False)


def _write_parquet(path: Path, rows: list[Row]) -> None:
    arrow = _pyarrow()
    schema = arrow_schema().with_metadata({"format": FORMAT, "version": str(VERSION)})
    arrow.parquet.write_table(arrow.Table.from_pylist(rows, schema), path)


def _read_parquet(path: Path) -> list[Row]:
    arrow = _pyarrow()
    try:
        table = arrow.parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} cannot be read: {reason}") from None
    _require_columns(path, table.column_names)
    for name in LATER:
        if name not in table.column_names:
            table = table.append_column(name, arrow.nulls(len(table), arrow.string()))
    table = table.select(NAMES)
    rows: list[Row] = table.cast(arrow_schema().with_metadata(table.schema.metadata)).to_pylist()
    return rows


def _require_columns(path: Path, names: Iterable[str]) -> None:
    found = list(names)
    lacking = [name for name in NAMES if name not in found and name not in LATER]
    wrong = lacking + [name for name in found if name not in NAMES]
    if wrong:
        what = "lacks" if wrong[0] in NAMES else "has"
        raise InputError(f'{path} is no table of a campaign: it {what} the column "{wrong[0]}"')


def _write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, NAMES)
        writer.writeheader()
        writer.writerows(rows)


def _read_csv(path: Path) -> list[Row]:
    with _opened(path) as file:
        reader = csv.DictReader(file)
        _require_columns(path, reader.fieldnames or ())
        return [
            {column.name: _parsed(row.get(column.name), column, path) for column in COLUMNS}
            for row in reader
        ]


def _opened(path: Path) -> Any:
    try:
        return path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _parsed(text: str | None, column: Column, path: Path) -> Any:
    if text is None or text == "":
        return None
    try:
        return column.kind(text)
    except ValueError:
        raise InputError(f'{path}: {column.name} cannot be "{text}"') from None


def _write_json(path: Path, rows: list[Row]) -> None:
    lines = ",\n".join(dump_row(row) for row in rows)
    path.write_text(
        f'{{"format": "{FORMAT}", "version": {VERSION}, "rows": [\n{lines}\n]}}\n', encoding="utf-8"
    )


def _read_json(path: Path) -> list[Row]:
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path} is no table of a campaign: its format must be {FORMAT}")
    if document.get("version") != VERSION or not isinstance(document.get("rows"), list):
        raise InputError(f"{path}: version {show(document.get('version'))} is not known")
    return [_object(row, path) for row in document["rows"]]


def _object(value: Any, path: Path) -> Row:
    if not isinstance(value, dict):
        raise InputError(f"{path}: a row must be an object, not {show(value)}")
    return value


def _write_lines(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(dump_row(row) + "\n" for row in rows), encoding="utf-8")


def _read_lines(path: Path) -> list[Row]:
    with _opened(path) as file:
        try:
            return [_object(json.loads(line), path) for line in file]
        except ValueError as error:
            raise InputError(f"{path} is no table of a campaign: {error}") from None


# Writer and reader of each kind of file, by its suffix.
SUFFIXES = {
    ".parquet": (_write_parquet, _read_parquet),
    ".csv": (_write_csv, _read_csv),
    ".json": (_write_json, _read_json),
    ".jsonl": (_write_lines, _read_lines),
}
