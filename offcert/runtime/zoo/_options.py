"""Checks of the sizes that the networks take."""

from __future__ import annotations

from offcert.core.errors import InputError


def require_positive(**sizes: object) -> None:
    """Raise `InputError` naming the first option that is not a positive integer."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be a positive integer, not {value!r}.")


def require_probability(**rates: object) -> None:
    """Raise `InputError` naming the first option that is not a number in [0, 1)."""
    for name, value in rates.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < 1:  # type: ignore[operator]
            raise InputError(f"{name} must be a number in [0, 1), not {value!r}.")
