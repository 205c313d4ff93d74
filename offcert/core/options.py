"""Checks of the options that commands and functions share.

The functions return the value, as a plain number or as the function that it names. ``field`` begins
the message; the command line, which names the option itself, gives an empty one.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from importlib import import_module
from numbers import Integral, Real
from typing import Any

from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.trace import require_integer


def require_seconds(value: object, field: str = "") -> float:
    """Return a time in seconds if it is positive and finite."""
    number = _number(value, field)
    if not 0 < number < math.inf:
        raise InputError(_said(field, f"must be a positive number of seconds, not {number}"))
    return number


def require_gap(value: object, field: str = "") -> float:
    """Return a relative gap if it is at least 0 and below 1."""
    number = _number(value, field)
    if not 0 <= number < 1:
        raise InputError(_said(field, f"must be from 0 to below 1, not {number}"))
    return number


def require_count(value: object, field: str = "") -> int:
    """Return a number of things if it is an integer of at least 1."""
    return _integer(value, field, 1)


def require_seed(value: object, field: str = "") -> int:
    """Return the seed of a search, if it is an integer from 0 to below 2**31."""
    number = _integer(value, field)
    if not 0 <= number < 2**31:
        raise InputError(_said(field, f"must be from 0 to below 2**31, not {number}"))
    return number


def users_function(spec: str, what: str) -> Callable[..., Any]:
    """Return the user's object that ``"package.module:callable"`` names; messages name its kind.

    The module may lie in the working directory.
    """
    path, _, name = spec.partition(":")
    # As with `python -m`; an installed command's path does not contain the working directory.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = import_module(path)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        # Importing runs the user's module, which may raise anything.
        lines = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        raise InputError(f"{what} {spec} cannot be imported: {said}") from error
    if not callable(found):
        raise InputError(f"{what} {spec} must name something that can be called")
    function: Callable[..., Any] = found
    return function


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
