"""The options that commands and functions share, and one sentence for what is none.

The functions return the value, as a plain number. ``field`` begins the message; the command line,
which names the option itself, gives an empty one.
"""

from __future__ import annotations

import math
from numbers import Integral, Real

from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.trace import require_integer


def require_seconds(value: object, field: str = "") -> float:
    """Return a time in seconds if it is positive and finite.

    Raises
    ------
    InputError
        If it is not.
    """
    number = _number(value, field)
    if not 0 < number < math.inf:
        raise InputError(_said(field, f"must be a positive number of seconds, not {number}"))
    return number


def require_gap(value: object, field: str = "") -> float:
    """Return a relative gap if it is at least 0 and below 1.

    Raises
    ------
    InputError
        If it is not.
    """
    number = _number(value, field)
    if not 0 <= number < 1:
        raise InputError(_said(field, f"must be from 0 to below 1, not {number}"))
    return number


def require_count(value: object, field: str = "") -> int:
    """Return how many of something, if it is an integer of at least 1.

    Raises
    ------
    InputError
        If it is not.
    """
    return _integer(value, field, 1)


def require_seed(value: object, field: str = "") -> int:
    """Return the seed of a search, if it is an integer from 0 to below 2**31.

    Raises
    ------
    InputError
        If it is not.
    """
    number = _integer(value, field)
    if not 0 <= number < 2**31:
        raise InputError(_said(field, f"must be from 0 to below 2**31, not {number}"))
    return number


def _number(value: object, field: str) -> float:
    """Return a plain number; integers stay integers, as certificates record them."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InputError(_said(field, f"must be a number, not {short_repr(value)}"))
    if isinstance(value, Integral):
        return _integer(value, field)
    try:
        return float(value)
    except OverflowError:
        raise InputError(_said(field, "must be a number, not one this large")) from None


def _integer(value: object, field: str, minimum: int | None = None) -> int:
    try:
        return require_integer(value, field, minimum)
    except InputError as error:
        raise InputError(str(error).strip()) from None


def _said(field: str, sentence: str) -> str:
    return f"{field} {sentence}".strip()
