"""Tables as text: rows whose entries are apart by whatever the program that wrote them likes."""

from __future__ import annotations

import csv
import io

from offcert.core.errors import InputError


def table_rows(text: str) -> list[list[str]]:
    """Return the rows of a table, whose entries are apart as those of its first line are.

    By commas, semicolons (as spreadsheets of half of Europe write them) or tabs. Lines before the
    first one that begin as MiniZinc's comments do say nothing about it.

    Raises
    ------
    InputError
        If it is no table.
    """
    lines = (line for line in text.splitlines() if line.strip() and line[0] not in "%-=")
    first = next(lines, "")
    try:
        return list(csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count)))
    except csv.Error as error:
        raise InputError(f"it is no table: {error}") from None
