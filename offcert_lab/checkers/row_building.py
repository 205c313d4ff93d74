"""Programs that are built row by row, their variables named when a row first needs them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from offcert.formulations.exported.integer_program import IntegerProgram

# A variable by its name and the numbers of what it is of; or what it is.
Share = tuple[str | int, ...] | int
Shares = Iterable[tuple[int | Fraction, Share]]


class RowBuilding:
    """Columns and rows of a program whose objective is ``makespan``, an integer.

    Rows are at least their side, or equal to it, and are written in integers.
    """

    def __init__(self) -> None:
        self.columns: dict[tuple[str | int, ...], int] = {}
        self.rows: list[tuple[tuple[tuple[int, int], ...], int | None, int | None]] = []
        self.row_names: list[str] = []
        # The factor by which each row was multiplied to be in integers.
        self.factor: list[int] = []
        self.column("makespan")

    def column(self, *share: str | int) -> int:
        """Return the number of a variable."""
        return self.columns.setdefault(share, len(self.columns))

    def row(self, name: str, terms: Shares, low: int | Fraction = 0, *, equal: bool = False) -> int:
        """Add a row and return its number; shares that are known count on the other side."""
        found: dict[int, Fraction] = {}
        side = Fraction(low)
        for factor, share in terms:
            if isinstance(share, int):
                side -= factor * share
            else:
                column = self.column(*share)
                found[column] = found.get(column, Fraction(0)) + factor
        common = math.lcm(side.denominator, *(factor.denominator for factor in found.values()))
        whole = tuple((c, int(f * common)) for c, f in sorted(found.items()) if f)
        self.rows.append((whole, int(side * common), int(side * common) if equal else None))
        self.row_names.append(name)
        self.factor.append(common)
        return len(self.rows) - 1

    def program(
        self, comments: Iterable[str], integers: Iterable[str], endless: Iterable[str]
    ) -> IntegerProgram:
        """Return the program.

        The first parts of names say which variables are integers, and which have no largest value;
        ``makespan`` is both.
        """
        whole, free = {"makespan", *integers}, {"makespan", *endless}
        every = self.columns.items()
        return IntegerProgram(
            names=tuple("_".join(map(str, share)) for share in self.columns),
            cost=(1,) + (0,) * (len(self.columns) - 1),
            rows=tuple(self.rows),
            comments=tuple(comments),
            row_names=tuple(self.row_names),
            continuous=frozenset(c for share, c in every if share[0] not in whole),
            endless=frozenset(c for share, c in every if share[0] in free),
        )
