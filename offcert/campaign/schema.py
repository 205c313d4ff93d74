"""The columns of a campaign's table, and what every row must hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offcert.core.documents import show
from offcert.core.errors import InputError
from offcert.core.result import SolveStatus

# What a heuristic gives that finds no plan, and what is left of a process that died.
NO_PLAN = "NO_PLAN"
FAILED = "FAILED"
STATUSES = (*(str(status) for status in SolveStatus), NO_PLAN, FAILED)

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes
    ----------
    name : str
        As in the file.
    kind : type
        ``str``, ``int`` (64 bits) or ``float``.
    required : bool
        Whether every row has a value; elsewhere it may be null.
    """

    name: str
    kind: type
    required: bool = True


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
    """Return a row with its columns in order, absent ones null.

    Parameters
    ----------
    row : mapping
        Column names to values.
    place : str
        Where it stands, for the message.

    Raises
    ------
    InputError
        If a column is unknown, missing or of the wrong kind; the message names it.
    """
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
