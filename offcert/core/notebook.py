"""The display of objects in a notebook, or in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module

_drawers: list[str] = []


@dataclass(frozen=True)
class Shown:
    """Facts, and rows of a table: the view in a notebook of an object that has no picture.

    Attributes
    ----------
    title : str
        Of the whole.
    facts : sequence of (str, str)
        Names and values.
    header : sequence of str
        Of the table's columns; empty without a table.
    rows : iterable of sequence of str
        Rows of the table; those that cannot be shown are counted.
    """

    title: str
    facts: Sequence[tuple[str, str]] = ()
    header: Sequence[str] = ()
    rows: Iterable[Sequence[str]] = ()


def drawn_by(module: str) -> None:
    """Set the module that draws: its `html` and `text` are called; it is loaded only then."""
    _drawers[:] = [module]


def html(value: object) -> str:
    """Return a problem or certificate as HTML.

    Drawing is the business of a room above this one, which the front door names: whoever solves or
    verifies neither knows nor loads it.
    """
    drawn: str = import_module(_drawers[0]).html(value)
    return drawn


def text(value: object) -> str:
    """Return a value as text, as commands print it, in the same way."""
    written: str = import_module(_drawers[0]).text(value)
    return written
