"""Types of arguments that the commands share: one clear sentence for what is none."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.options import require_count, require_gap, require_seconds, require_seed

Number = TypeVar("Number", int, float)


def integer(text: str) -> int:
    """Read an integer."""
    return _read(text, int, "an integer")


def seed(text: str) -> int:
    """Read the seed of a search."""
    return _checked(require_seed, _read(text, int, "an integer"))


def count(text: str) -> int:
    """Read how many, at least 1."""
    return _checked(require_count, _read(text, int, "an integer"))


def counts(text: str) -> list[int]:
    """Read several such numbers, with commas between them."""
    return [count(part.strip()) for part in text.split(",")]


def seconds(text: str) -> float:
    """Read a positive time."""
    return _checked(require_seconds, _read(text, float, "a number of seconds, such as 2.5"))


def gap(text: str) -> float:
    """Read a gap below 1, or below 100 %."""
    part = 100 if text.endswith("%") else 1
    value = _read(text.rstrip("% "), float, 'a number or a percentage, such as "0.1%"')
    return _checked(require_gap, value / part)


def size(text: str) -> int:
    """Read a size in bytes, which needs its unit."""
    from offcert.core.units import parse_size

    try:
        return parse_size(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("size ")) from None


def _read(text: str, kind: Callable[[str], Number], name: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {name}, not {cut(text)}") from None


def _checked(require: Callable[[object], Number], value: Number) -> Number:
    try:
        return require(value)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
