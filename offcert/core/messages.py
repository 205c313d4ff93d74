"""Values in error messages, cut where they would be long; and tables as text, read and written."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from offcert.core.errors import InputError

# Characters of a value that a message repeats: whoever wrote it knows it by its beginning.
# Arbitrary.
_LONGEST = 60
# A container has no more parts than this that would show.
_PARTS = 4 * _LONGEST


def cut(text: str, longest: int = _LONGEST) -> str:
    """Return a text in one line of at most `longest` characters, with dots for what is missing."""
    begin = text[: longest + 1]
    if not begin.isprintable():
        begin = begin.encode("unicode_escape").decode("ascii")
    return begin if len(begin) <= longest else begin[: longest - 3] + "..."


def plain(text: str) -> str:
    """Return a text with what a terminal would obey, or not show, written out; lines stay lines.

    Names come from files of anybody: an escape sequence in one could hide or forge what is said.
    """
    return "".join(map(_plain, text)) if not text.isprintable() else text


def _plain(letter: str) -> str:
    shown = letter.isprintable() or letter == "\n" or unicodedata.category(letter) == "Zs"
    return letter if shown else letter.encode("unicode_escape").decode("ascii")


def show(value: Any) -> str:
    """Return a JSON value for an error message, as a file would spell it."""
    if isinstance(value, str):
        value = value[:_PARTS]
    try:
        parts = json.JSONEncoder(default=short_repr).iterencode(value)
        return cut("".join(islice(parts, _PARTS)))
    except (ValueError, TypeError, RecursionError):
        # Longer integers than Python prints, keys that JSON does not know, lists in themselves.
        return _kind_of(value)


def meant(word: str, names: Iterable[str]) -> str:
    """Return ``"; did you mean …?"`` with the names that are close to a word, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(cut(word), list(names), n=2)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def short_repr(value: object) -> str:
    """Return a value for an error message, as Python would spell it."""
    if isinstance(value, str | bytes):
        value = value[:_PARTS]
    try:
        text = repr(value)
    except Exception:
        return _kind_of(value)
    return cut(text)


def _kind_of(value: object) -> str:
    if isinstance(value, int):
        return f"a number of {value.bit_length()} bits"
    return f"a value of type {type(value).__name__}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return a table for people: the first column to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def table_rows(text: str) -> list[list[str]]:
    """Return the rows of a table, whose entries are apart as those of its first line are.

    By commas, semicolons (as spreadsheets of half of Europe write them) or tabs. Lines before the
    first one that begin as MiniZinc's comments do say nothing about it.
    """
    lines = (line for line in text.splitlines() if line.strip() and line[0] not in "%-=")
    first = next(lines, "")
    try:
        return list(csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count)))
    except csv.Error as error:
        raise InputError(f"it is no table: {error}") from None
