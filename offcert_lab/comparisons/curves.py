"""Makespan and throughput against memory, as numbers to be drawn.

As in the offloading paper's Figures 5 to 19, with what it had no means to draw: the certified
optimum, and where that is open the band from the best schedule down to the proved bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import partial

from offcert.core.errors import InputError
from offcert_lab.comparisons.points import CERTIFY, FAILED, MethodOutcome, Point

NO_PLAN = "NO_PLAN"
# The paper's methods first and in its order of merit; others follow by name.
_ORDER = ("dynprog", "greedy", "vdnn", "autoswap", "tflms")
# Nanoseconds in a second. By definition.
_NS_PER_SECOND = 10**9
# A method's excess over the bound is off the scale beyond so many times the others' largest; an
# excess below the second number is never too small to be told from none. Arbitrary.
_FAR, _LITTLE = 3, 0.1


class Quantity(StrEnum):
    """The quantity that is drawn against memory.

    ``MAKESPAN`` is relative as in the paper (§6.2): the makespan divided by the bound of its
    Proposition 3, ``max(compute time, 2 (M_peak - M) / bandwidth)`` (where computations may run
    again: by the computing time). ``THROUGHPUT`` is images a second (§6.4): the batch by the
    makespan. ``SLOWDOWN`` is the makespan by the computing time, whatever may be done.
    """

    MAKESPAN = "makespan"
    THROUGHPUT = "throughput"
    SLOWDOWN = "slowdown"


@dataclass(frozen=True)
class Curves:
    """The curves of one problem; NaN is a gap in a curve."""

    problem: str  # Its name.
    what: Quantity  # The quantity of `methods`, `best`, `proved` and `optimum`.
    percents: tuple[float, ...]  # The feasible limits, increasing; all curves are over these.
    ends: tuple[int, int]  # Bytes at 0 and at 100 %.
    methods: dict[str, tuple[float, ...]]  # A curve each, without `certify`.
    failed: dict[str, tuple[float, ...]]  # Percents at which a method died.
    # The band: best schedule of any method, and proved bound. A makespan's band goes down from
    # `best`, a throughput's goes up.
    best: tuple[float, ...]
    proved: tuple[float, ...]
    optimum: tuple[float, ...]  # `best` where the best bound, of whatever evidence, attains it.
    infeasible: tuple[float, ...]  # Percents of the limits without any schedule.

    @property
    def lowest_level(self) -> float:
        """The least number on any curve or edge of the band; NaN if there is none."""
        return min(self._levels(), default=math.nan)

    @property
    def highest_level(self) -> float:
        """The largest number on any curve or edge of the band; NaN if there is none."""
        return max(self._levels(), default=math.nan)

    @property
    def visible_top(self) -> float:
        """The level up to which a figure should go; NaN if there is none.

        A makespan far above all that other methods do would press everything else flat: then it
        is a little above the others', and what exceeds it has to be marked.
        """
        if self.what is Quantity.THROUGHPUT:
            return self.highest_level
        known = [max(found) for line in self.methods.values() if (found := _numbers(line))]
        others = [*sorted(known)[:-1], *_numbers(self.best)]
        if not others or self.highest_level - 1 <= _FAR * max(max(others) - 1, _LITTLE):
            return self.highest_level
        return 1 + 1.4 * max(max(others) - 1, _LITTLE)

    def _levels(self) -> list[float]:
        lines = (*self.methods.values(), self.best, self.proved)
        return [level for line in lines for level in _numbers(line)]


def _numbers(line: Sequence[float]) -> list[float]:
    return [level for level in line if not math.isnan(level)]


def curves_of(points: Sequence[Point], what: Quantity = Quantity.MAKESPAN) -> Curves:
    """Return the curves of one problem.

    Parameters
    ----------
    points : sequence of Point
        All of the same problem, by increasing memory.
    what : Quantity
        The quantity to draw.

    Raises
    ------
    InputError
        If throughput is asked for and the table does not say the problem's batch.
    """
    feasible = [point for point in points if not point.infeasible]
    value = _VALUES[what]
    names = {name for point in points for name, cells in point.cells.items() if _drawable(cells)}
    lines = {
        name: _line(feasible, partial(Point.makespan, method=name), value)
        for name in sorted(names - {CERTIFY}, key=_rank)
    }
    return Curves(
        problem=points[0].title,
        what=what,
        percents=tuple(point.percent for point in feasible),
        ends=(points[0].minimum, points[0].peak),
        methods=lines,
        failed={name: found for name in sorted(names, key=_rank) if (found := _died(points, name))},
        best=_line(feasible, lambda point: point.best, value),
        proved=_line(feasible, lambda point: point.proved, value),
        optimum=_line(feasible, lambda point: point.optimum, value),
        infeasible=tuple(point.percent for point in points if point.infeasible),
    )


def _drawable(cells: Sequence[MethodOutcome]) -> bool:
    """Leave methods out that only give bounds."""
    return any(cell.makespan is not None or cell.status in (NO_PLAN, FAILED) for cell in cells)


def _died(points: Sequence[Point], name: str) -> tuple[float, ...]:
    return tuple(
        point.percent
        for point in points
        if (cell := point.cell(name)) is not None and cell.status == FAILED
    )


def _rank(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _line(
    points: Sequence[Point],
    ticks: Callable[[Point], int | None],
    value: Callable[[Point, int], Fraction],
) -> tuple[float, ...]:
    found = [(point, ticks(point)) for point in points]
    return tuple(
        math.nan if number is None else float(value(point, number)) for point, number in found
    )


def _relative_makespan(point: Point, makespan: int) -> Fraction:
    return makespan / point.prop3 if point.prop3 else Fraction(1)


def _slowdown(point: Point, makespan: int) -> Fraction:
    return Fraction(makespan, max(1, point.compute))


def _throughput(point: Point, makespan: int) -> Fraction:
    if point.batch is None:
        raise InputError(
            f'the table does not say the batch of "{point.problem}", so its throughput is unknown'
        )
    if makespan == 0:
        raise InputError(f"{point.label}: a step of 0 ticks has no throughput")
    return Fraction(point.batch * _NS_PER_SECOND, makespan)


_VALUES = {
    Quantity.MAKESPAN: _relative_makespan,
    Quantity.THROUGHPUT: _throughput,
    Quantity.SLOWDOWN: _slowdown,
}
