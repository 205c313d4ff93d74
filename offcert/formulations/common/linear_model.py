"""A mixed-integer linear program as data: columns, rows, costs; and the answer of a solver."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from offcert.core.errors import InputError

# The column that is always 1: a known variable becomes a constant of its rows. By definition.
ONE = -1

Terms = list[tuple[int, float]]

# Rows between numbers near 1 that may hold with equality are relaxed by this much, so that neither
# floats nor the twelve digits of an MPS file can cut off what satisfies them exactly. Derived.
ROUNDING = 1e-9


class LateError(RuntimeError):
    """The time was over before the model was built."""


@dataclass
class LinearModel:
    """Minimise ``cost · x`` subject to ``low ≤ row · x ≤ high`` and bounds on columns.

    Terms are pairs of a column and its coefficient; the column `ONE` stands for the constant 1.
    """

    # Bounds, coefficient in the objective, and whether only integers are allowed (one entry a
    # column).
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    # Each column at most once a row, no zero coefficients, `ONE` already on the other side.
    rows: list[tuple[Terms, float, float]] = field(default_factory=list)
    contradictory: bool = False  # Whether some row without variables cannot hold.
    ends: float = math.inf  # Seconds of `time.monotonic` after which a row raises `LateError`.

    def column(self, low: float, high: float, *, cost: float = 0.0, integer: bool = False) -> int:
        """Add a variable and return its number."""
        self.low.append(low)
        self.high.append(high)
        self.cost.append(cost)
        self.integer.append(integer)
        return len(self.low) - 1

    def binary(self) -> Terms:
        """Add a variable of 0 or 1 and return it as terms."""
        return [(self.column(0.0, 1.0, integer=True), 1.0)]

    def row(self, terms: Iterable[tuple[int, float]], low: float, high: float = math.inf) -> None:
        """Add a constraint ``low ≤ terms ≤ high``."""
        if self.ends < math.inf and time.monotonic() > self.ends:
            raise LateError("no time was left to build the model")
        merged: dict[int, float] = {}
        for column, coefficient in terms:
            merged[column] = merged.get(column, 0.0) + coefficient
        constant = merged.pop(ONE, 0.0)
        kept = [(column, value) for column, value in merged.items() if value != 0.0]
        low, high = low - constant, high - constant
        if kept:
            self.rows.append((kept, low, high))
        elif low > ROUNDING or high < -ROUNDING:
            self.contradictory = True

    def at_most(self, smaller: Terms, larger: Terms) -> None:
        """Add ``smaller ≤ larger``, unless a literal is compared with 1."""
        literal = len(smaller) == 1 and smaller[0][1] == 1.0
        if smaller and not (literal and larger == [(ONE, 1.0)]):
            self.row([*larger, *scaled(smaller, -1.0)], 0.0)

    @property
    def nonzeros(self) -> int:
        """Number of coefficients in all rows."""
        return sum(len(terms) for terms, _, _ in self.rows)


@dataclass(frozen=True, slots=True)
class LinearAnswer:
    """The answer of a solver."""

    values: list[float] | None  # Of the columns, in the best solution found.
    # A lower bound on the objective; minus infinity if the solver gave none that can be trusted,
    # infinity if there is no solution.
    bound: float
    infeasible: bool  # Whether the solver claims that there is no solution, and can be trusted.
    optimal: bool = False  # Whether the solver claims that `values` are the best there are.
    error: str | None = None  # The failure in a sentence; None if there was none.
    # JSON values that are good to know: solver, version, its own words, sizes, seconds.
    statistics: dict[str, Any] = field(default_factory=dict)


def whole(value: float) -> int:
    """Return a number of a program in which all are whole as an integer."""
    if value != int(value):
        raise InputError(f"a program of whole numbers has {value!r}")
    return int(value)


def whole_limit(value: float) -> int | None:
    """Return a limit of a row of such a program; None if it is infinite."""
    return None if math.isinf(value) else whole(value)


def scaled(terms: Terms, factor: float) -> Terms:
    """Return ``factor · terms``."""
    return [(column, factor * value) for column, value in terms]


def value_of(terms: Terms, values: list[float]) -> float:
    """Return the value of a sum of terms at `values`, one entry a column."""
    return sum(
        coefficient * (1.0 if column == ONE else values[column]) for column, coefficient in terms
    )
