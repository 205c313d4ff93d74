"""Types of arguments that the commands share: one clear sentence for what is none."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def _read(text: str, kind: Callable[[str], Number], name: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {name}, not {text}") from None


def integer(text: str) -> int:
    """Read an integer."""
    return _read(text, int, "an integer")


def seed(text: str) -> int:
    """Read the seed of a search."""
    value = _read(text, int, "a number")
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"must be from 0 to below 2**31, not {text}")
    return value


def count(text: str) -> int:
    """Read how many, at least 1."""
    value = _read(text, int, "a number")
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return value


def seconds(text: str) -> float:
    """Read a positive time."""
    value = _read(text, float, "a number")
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, not {text}")
    return value


def gap(text: str) -> float:
    """Read a gap below 1, or below 100 %."""
    value = _read(text.rstrip("%"), float, "a number") / (100 if text.endswith("%") else 1)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to below 1, not {text}")
    return value
