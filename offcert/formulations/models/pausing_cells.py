"""The time-indexed model of interruptible transfers: amounts of each tensor moved in each cell.

Amounts are counted at the borders of cells: ``c`` bytes of a tensor have left by a border, ``p`` of
those evicted in a gap have come back. With cells of one tick this is Problem 2 of the offloading
paper: within a cell what leaves goes first and what returns last, so at no time less is absent than
at both of its borders, and operations begin at borders only. A solution on coarser cells, whose
durations are rounded up, is a schedule as well.
"""

from __future__ import annotations

import math
from fractions import Fraction

from offcert.core.platform import Kind
from offcert.core.trace import require_integer
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.common.grid import useful_gaps
from offcert.formulations.common.linear_model import Terms, scaled, value_of
from offcert.formulations.common.time_grid import GridGap, StartWindow, rounded_up
from offcert.formulations.models.time_indexed_model import TimeIndexedModel
from offcert.questions.schedule.problem import Problem


class PausingCells(TimeIndexedModel):
    """Columns and rows for one feasible problem with interruptible transfers.

    Cells have `grid` ticks, and schedules longer than `upper` ticks are not described. If
    `integers`, all numbers are integers, so that whole units of data are moved in each cell. At
    `ends`, in seconds of `time.monotonic`, building the model is given up.
    """

    def __init__(
        self, problem: Problem, grid: int, upper: int, integers: bool, ends: float = math.inf
    ) -> None:
        require_integer(grid, "grid", 1)
        required = required_absent(problem)
        last = -(-upper // grid)
        if grid > 1:
            # Every operation ends with a cell, and so does what moves between two of them.
            useful = len(list(useful_gaps(problem.trace, required)))
            last += 2 * (len(problem.trace) + useful)
        self._begin(rounded_up(problem, grid, required, last), integers, ends)
        rates = {kind: problem.platform.rate(kind) * grid for kind in Kind}
        # A unit of data: what leaves in a cell, or the largest of which cells take whole numbers.
        whole = Fraction(1, math.lcm(*(rate.denominator for rate in rates.values())))
        self.unit = whole if integers else rates[Kind.OFFLOAD]
        shares = {kind: self.unit / rate for kind, rate in rates.items()}
        factor = math.lcm(*(share.denominator for share in shares.values())) if integers else 1
        self._cell = float(factor)
        self._shares = {kind: float(share * factor) for kind, share in shares.items()}
        self.evict = [self.model.binary() for _ in self.data.gaps]
        self._add_amounts()
        self._add_links(problem.platform.duplex)
        self._add_absence()

    def _amount(self, size: int) -> float:
        return float(size / self.unit)

    def _grown(self, first: int, last: int, most: float) -> dict[int, Terms]:
        """Return columns for an amount at borders after the first, up to the last; they grow."""
        columns: dict[int, Terms] = {}
        for border in range(first + 1, last + 1):
            columns[border] = [(self.model.column(0.0, most, integer=self.whole), 1.0)]
            self.model.at_most(columns.get(border - 1, []), columns[border])
        return columns

    def _add_amounts(self) -> None:
        """Add amounts that have left, after the writer, and come back, before the last use.

        At a later border than the last that is described an amount is as at that one.
        """
        operations = self.data.operations
        self._left: dict[int, dict[int, Terms]] = {}
        self._back: list[dict[int, Terms]] = []
        latest: dict[int, int] = {}
        for gap in self.data.gaps:
            latest[gap.tensor] = max(latest.get(gap.tensor, 0), operations[gap.after].last)
        for index, gap in enumerate(self.data.gaps):
            size, evicted = self._amount(gap.size), self.evict[index]
            if gap.tensor not in self._left:
                first = _end(operations[gap.writer]) if gap.writer >= 0 else 0
                left = self._grown(first, latest[gap.tensor], size)
                self._left[gap.tensor] = left
                self._wait_for(left, gap.writer, size)
            first = _end(operations[gap.before]) if gap.before >= 0 else 0
            back = self._grown(first, operations[gap.after].last, size)
            self._back.append(back)
            self._wait_for(back, gap.before, size)
            for border, terms in back.items():
                self.model.at_most(terms, self._left[gap.tensor].get(border, []))
                self.model.at_most(terms, scaled(evicted, size))
            if gap.single:
                for terms in self._left[gap.tensor].values():
                    self.model.at_most(terms, scaled(evicted, size))
            self._come_back(index, gap, size)

    def _wait_for(self, amounts: dict[int, Terms], operation: int, size: float) -> None:
        """Nothing moves before an operation has ended."""
        if operation >= 0:
            for border, terms in amounts.items():
                self.model.at_most(terms, scaled(self.ended(operation, border - 1), size))

    def _come_back(self, index: int, gap: GridGap, size: float) -> None:
        """All that was evicted is back when the operation that closes the gap starts."""
        reader = self.data.operations[gap.after]
        for border in range(reader.first, reader.last + 1):
            missing = [*scaled(self.evict[index], size), *scaled(self._at_back(index, border), -1)]
            begun = scaled(self.started(gap.after, border), size)
            self.model.row([*begun, *missing], -math.inf, size)

    def _at_left(self, tensor: int, border: int) -> Terms:
        return _at(self._left[tensor], border)

    def _at_back(self, index: int, border: int) -> Terms:
        return _at(self._back[index], border)

    def _add_links(self, duplex: bool) -> None:
        """Add rows: a link moves no more in a cell than it can, in one direction or in both."""
        for cell in range(self.data.cells):
            moved: dict[Kind, Terms] = {kind: [] for kind in Kind}
            for tensor in self._left:
                before, after = (self._at_left(tensor, border) for border in (cell, cell + 1))
                moved[Kind.OFFLOAD] += [] if before == after else [*after, *scaled(before, -1.0)]
            for index in range(len(self._back)):
                before, after = (self._at_back(index, border) for border in (cell, cell + 1))
                moved[Kind.PREFETCH] += [] if before == after else [*after, *scaled(before, -1.0)]
            used = {kind: scaled(terms, self._shares[kind]) for kind, terms in moved.items()}
            both = [*used[Kind.OFFLOAD], *used[Kind.PREFETCH]]
            for terms in used.values() if duplex else [both]:
                if terms:
                    self.model.row(terms, -math.inf, self._cell)

    def _add_absence(self) -> None:
        """While an operation runs, at the borders of its cells, enough is absent."""
        self._away: dict[tuple[int, int], Terms] = {}
        for o, item in enumerate(self.data.operations):
            required = self.data.required[o]
            if not required:
                continue
            amount = self._amount(required)
            for cell in range(item.first, item.last + max(1, item.length)):
                borders = [cell]
                if item.length:
                    borders.append(cell + 1)
                    runs = [*self.started(o, cell), *scaled(self.ended(o, cell), -1.0)]
                else:
                    runs = [*self.started(o, cell), *scaled(self.started(o, cell - 1), -1.0)]
                for border in borders:
                    absent = [t for i in self.data.over[o] for t in self._absent_at(i, border)]
                    self.model.row([*absent, *scaled(runs, -amount)], 0.0)

    def _absent_at(self, index: int, border: int) -> Terms:
        gap = self.data.gaps[index]
        left, back = self._at_left(gap.tensor, border), self._at_back(index, border)
        if gap.single:
            return [*left, *scaled(back, -1.0)]
        key = index, border
        if key not in self._away:
            size = self._amount(gap.size)
            absent: Terms = [(self.model.column(0.0, size, integer=self.whole), 1.0)]
            self.model.at_most([*absent, *back], left)
            self.model.at_most([*absent, *back], scaled(self.evict[index], size))
            self._away[key] = absent
        return self._away[key]

    def chosen(
        self, problem: Problem, values: list[float]
    ) -> tuple[frozenset[int], tuple[int, ...]]:
        """Return the evicted gaps of a solution, and the idle ticks before each operation."""
        evicted = frozenset(
            gap.number
            for gap, terms in zip(self.data.gaps, self.evict, strict=True)
            if value_of(terms, values) > 0.5
        )
        idle, ended = [], 0
        for steps, item, duration in zip(
            self.operations, self.data.operations, problem.trace.durations, strict=True
        ):
            by = next(c for c, terms in enumerate(steps) if value_of(terms, values) > 0.5)
            start = (item.first + by) * self.data.grid
            idle.append(start - ended)
            ended = start + duration
        return evicted, tuple(idle)


def _at(amounts: dict[int, Terms], border: int) -> Terms:
    """Return an amount at a border; nothing before the first, and the last one after it."""
    return amounts.get(min(border, max(amounts, default=0)), [])


def _end(item: StartWindow) -> int:
    return item.first + item.length
