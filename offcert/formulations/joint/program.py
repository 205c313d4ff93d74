"""The linear relaxation of an execution cut at some first runs; `docs/theory/joint.md` derives it.

All columns are shares from 0 to 1, but for the length of each window:

- ``present[i][v]``: of v, on the device at boundary i;
- ``there[S][v]``: on the device at some time in span S;
- ``back[S][v]``: come back from the host in span S;
- ``again[S][c]``: whether computation c, whose first run is over, runs in span S;
- ``left[i][v]``: of v, copied to the host by boundary i.

Rows are written as ``sum >= 0``. Each has a family and a key, by which proofs name it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from offcert.core.compiled import FloatArray
from offcert.core.platform import Kind
from offcert.formulations.common.highs import run_linprog
from offcert.formulations.joint.room import Contents, Grid, Room, beside_outputs
from offcert.questions.schedule.problem import Problem

# Families of rows about the length of a window.
LENGTHS = ("compute", "link", "out", "in")
# Families of rows that say where a value comes from and goes; it is the last of their names. By
# definition.
_ABOUT_VALUES = ("available", "inputs", "origin", "kept", "left")
# Columns that are always 1, and always 0. By definition.
ONE, ZERO = -1, -2
# Price of a column that is not what it is fixed at, in computing times of the network. Arbitrary.
_PENALTY = 1.0
# A row's name: its family, the span, boundary or window, and what it is about.
Key = tuple[str, int, tuple[int, ...]]
Terms = list[tuple[int, float]]


class Count(NamedTuple):
    """The number of columns of runs again that are 1: at least, and at most."""

    columns: tuple[int, ...]
    least: int
    most: int


@dataclass
class _Rows:
    """Rows ``sum of terms >= low``, constants folded into `low`; none about what is `ignored`."""

    ignored: Collection[int] = ()
    keys: list[Key] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)

    def add(self, key: Key, terms: Terms, low: float = 0.0) -> None:
        """Add a row, unless it holds whatever the columns are."""
        if key[0] in _ABOUT_VALUES and key[2][-1] in self.ignored:
            return
        known = sum(factor for column, factor in terms if column == ONE)
        free = [(column, factor) for column, factor in terms if column not in (ONE, ZERO)]
        if all(factor > 0 for _, factor in free) and known >= low:
            return
        row = len(self.keys)
        self.keys.append(key)
        for column, factor in free:
            self.rows.append(row)
            self.columns.append(column)
            self.values.append(factor)
        self.low.append(low - known)


@dataclass(frozen=True)
class Solved:
    """An optimum of the program."""

    value: float  # Ticks.
    # By the keys of rows, multipliers in ticks, or as a part of the length of a window.
    weights: dict[Key, float]
    amounts: NDArray[np.float64]  # The columns.


class JointProgram:
    """Columns and rows for one problem and grid; times in units of the computing time.

    Parameters
    ----------
    problem : Problem
        A problem with a network.
    known : Contents
        Of the network.
    grid : Grid
        Where it is cut.
    room : sequence of Room
        For each moment, what the running computation leaves to all that it does not use.
    ignored : collection of int
        Values about which nothing is said: so the program is smaller, and its optimum no greater.
    """

    def __init__(
        self,
        problem: Problem,
        known: Contents,
        grid: Grid,
        room: Sequence[Room],
        ignored: Collection[int] = (),
    ) -> None:
        self.problem, self.contents, self.grid = problem, known, grid
        self.network = network = grid.network
        self.room = tuple(room)
        self.unit = max(network.compute_time, 1)
        self.rows = _Rows(ignored)
        self.before = {
            value: known.up_to(value) for value, movable in enumerate(known.movable) if movable
        }
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.present = [self._present(boundary) for boundary in range(grid.windows)]
        self.left: list[dict[int, int]] = [{} for _ in range(grid.windows + 1)]
        self.again: list[dict[int, int]] = []
        self.back: list[dict[int, int]] = []
        self.there: list[dict[int, int]] = []
        for span in range(len(grid.spans)):
            self._add_span(span)
        self._add_copies()
        for boundary in range(1, grid.windows):
            self._require_room(boundary)
        for window in range(grid.windows):
            self._add_time(window)

    @property
    def size(self) -> dict[str, int]:
        """Rows, columns and nonzeros."""
        rows = self.rows
        return {
            "rows": len(rows.low),
            "columns": len(self.cost),
            "nonzeros": len(rows.values),
        }

    def _column(self, cost: float = 0.0, upper: float = 1.0) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1

    def _present(self, boundary: int) -> dict[int, int]:
        """Return columns for what may be there at a boundary; what is being read is."""
        known, moment = self.contents, self.grid.at[boundary]
        read = set(known.reads[self.grid.running(boundary)]) if boundary else set()
        too_large = self.room[boundary - 1].too_large if boundary else frozenset()
        present = {}
        for value, (maker, latest) in enumerate(zip(known.maker, known.latest, strict=True)):
            if not 2 * maker < moment <= 2 * latest:
                continue
            if not boundary or value in read:
                present[value] = ONE
            else:
                present[value] = ZERO if value in too_large else self._column()
        return present

    def _add_span(self, span: int) -> None:
        """Add rows that say which values can be there in a span, and what has to run or return."""
        begin, end = self.grid.spans[span]
        known, present = self.contents, self.present[begin]
        makers = sorted({known.maker[v] for v in present if known.repeatable[v]})
        if span < self.grid.windows and self.grid.single(span):
            makers = []
        again = {maker: self._column() for maker in makers}
        back = {value: self._column() for value in present if known.movable[value]}
        needed = {v for c in self.grid.runs(span) for v in known.reads[c]}
        there = {value: ONE if value in needed else self._column() for value in present}
        for value, column in present.items():
            terms: Terms = [(column, 1.0), (there[value], -1.0)]
            if value in back:
                terms.append((back[value], 1.0))
            if known.maker[value] in again:
                terms.append((again[known.maker[value]], 1.0))
            self.rows.add(("available", span, (value,)), terms)
        for maker, column in again.items():
            for value in known.reads[maker]:
                self.rows.add(
                    ("inputs", span, (maker, value)), [(there[value], 1.0), (column, -1.0)]
                )
        if end < self.grid.windows:
            for value, column in self.present[end].items():
                if value in there:
                    self.rows.add(("kept", span, (value,)), [(there[value], 1.0), (column, -1.0)])
        if end > begin + 1:
            self._join(span, again, self.again, "runs")
            self._join(span, back, self.back, "returns")
        self.again.append(again)
        self.back.append(back)
        self.there.append(there)

    def _join(
        self, span: int, columns: dict[int, int], parts: list[dict[int, int]], family: str
    ) -> None:
        """Add rows: an event of a span happens in one of its windows."""
        begin, end = self.grid.spans[span]
        windows: Sequence[int] = range(begin, end)
        if family == "runs":
            windows = [window for window in windows if not self.grid.single(window)]
        for index, column in columns.items():
            terms: Terms = [(column, -1.0)]
            for window in windows:
                if index not in parts[window]:
                    parts[window][index] = self._column()
                terms.append((parts[window][index], 1.0))
            self.rows.add((family, span, (index,)), terms)

    def _add_copies(self) -> None:
        """Add rows by which a value returns only if it was copied to the host before.

        That only values which have left come back says no more: by these rows, a value that has to
        come back in a span had left before it, and one that comes back beyond that may as well not.
        """
        self._add_left()
        for span, (begin, _) in enumerate(self.grid.spans):
            for value in self.back[span]:
                if value in self.present[begin]:
                    self._add_origin(span, value, begin)

    def _add_origin(self, span: int, value: int, begin: int) -> None:
        """Add rows: a value neither on the device nor gone to the host has to be made again."""
        terms: Terms = [(self.present[begin][value], 1.0), (self.there[span][value], -1.0)]
        maker = self.contents.maker[value]
        if maker in self.again[span]:
            terms.append((self.again[span][maker], 1.0))
        if value in self.left[begin]:
            terms.append((self.left[begin][value], 1.0))
        self.rows.add(("origin", span, (value,)), terms)

    def _add_left(self) -> None:
        known, at = self.contents, self.grid.at
        for boundary in range(1, self.grid.windows + 1):
            for value, stored in enumerate(known.stored):
                maker = known.maker[stored]
                useful = known.movable[value] and known.latest[value] >= 0
                if not useful or 2 * maker + 1 >= at[boundary]:
                    continue
                column = self.left[boundary][value] = self._column()
                if value in self.left[boundary - 1]:
                    terms: Terms = [(column, 1.0), (self.left[boundary - 1][value], -1.0)]
                    self.rows.add(("grown", boundary, (value,)), terms)
        for span, (begin, end) in enumerate(self.grid.spans):
            for value, column in self.left[end].items():
                # A copy may begin to leave before it is changed in place for the last time.
                states = [v for v in self.before[value] if v in self.present[begin]]
                if not states or (2 * known.maker[value] < at[begin] and value not in states):
                    continue
                terms = [(self.present[begin][state], 1.0) for state in states]
                terms.append((column, -1.0))
                maker = known.maker[known.stored[value]]
                if maker in self.again[span]:
                    terms.append((self.again[span][maker], 1.0))
                if value in self.left[begin]:
                    terms.append((self.left[begin][value], 1.0))
                self.rows.add(("left", span, (value,)), terms)

    def memory_rows(self, boundary: int) -> Iterator[tuple[str, int, dict[int, int]]]:
        """Yield the rows about memory at a moment: family, bytes, and what takes them by column."""
        known, running, room = self.contents, self.grid.running(boundary), self.room[boundary - 1]
        rows = [("memory", room.most, {*known.reads[running], *known.makes[running]})]
        read = beside_outputs(self.grid, known, boundary)
        if read is not None and room.kept is not None:
            rows.append(("outputs", room.kept, read))
        for family, most, used in rows:
            taken = {
                column: known.size[value]
                for value, column in self.present[boundary].items()
                if value not in used and column != ZERO
            }
            yield family, most, taken

    def _require_room(self, boundary: int) -> None:
        limit = max(self.problem.platform.memory, 1)
        for family, most, taken in self.memory_rows(boundary):
            terms: Terms = [(column, -size / limit) for column, size in taken.items()]
            self.rows.add((family, boundary, ()), terms, -most / limit)

    def _add_time(self, window: int) -> None:
        """Add the length of a window: first runs and runs again, or what the link moves."""
        known, platform, unit = self.contents, self.problem.platform, self.unit
        duration = self.grid.duration(window) / unit
        if self.grid.single(window):
            length: Terms = [(ONE, duration)]
        else:
            length = [(self._column(1.0, np.inf), 1.0)]
            terms = [*length]
            for maker, column in self.again[window].items():
                terms.append((column, -self.network.computations[maker].duration / unit))
            self.rows.add(("compute", window, ()), terms, duration)
        out, back = (float(1 / platform.rate(kind)) / unit for kind in Kind)
        leaving: Terms = []
        for value, column in self.left[window + 1].items():
            leaving.append((column, -out * known.size[value]))
            before = self.left[window].get(value)
            if before is not None:
                leaving.append((before, out * known.size[value]))
        returning: Terms = [
            (column, -back * known.size[value]) for value, column in self.back[window].items()
        ]
        if platform.duplex:
            self.rows.add(("out", window, ()), [*length, *leaving])
            self.rows.add(("in", window, ()), [*length, *returning])
        else:
            self.rows.add(("link", window, ()), [*length, *leaving, *returning])

    def solve(
        self,
        time_limit: float,
        method: str = "highs-ipm",
        counts: Sequence[Count] = (),
    ) -> Solved | None:
        """Return an optimum, or None if HiGHS finds none in time.

        Columns that are counted may differ from their number, at a price: so there is always an
        optimum, and multipliers.
        """
        if time_limit <= 0:
            return None
        rows, cost, upper = _counted(self, counts)
        shape = (len(rows.low), len(cost))
        matrix: Any = csr_array((rows.values, (rows.rows, rows.columns)), shape=shape)
        bounds = np.stack([np.zeros(len(upper)), upper], axis=1)
        answer = run_linprog(cost, -matrix, -np.array(rows.low), bounds, time_limit, method)
        if answer.status != 0:
            return None
        found = (-answer.ineqlin.marginals).tolist()
        weights = dict(zip(self.rows.keys, found[: len(self.rows.keys)], strict=True))
        chosen = {
            # Weights of a window's length are shares of it.
            key: weight if key[0] in LENGTHS else weight * self.unit
            for key, weight in weights.items()
            if weight > 0
        }
        single = sum(map(self.grid.duration, filter(self.grid.single, range(self.grid.windows))))
        return Solved(float(answer.fun) * self.unit + single, chosen, answer.x)


def _counted(
    program: JointProgram, counts: Sequence[Count]
) -> tuple[_Rows, FloatArray, FloatArray]:
    """Return the rows, costs and upper bounds of a program some of whose columns are counted.

    What is lacking to a number, or beyond it, is a column with a price.
    """
    old = program.rows
    rows = _Rows((), [*old.keys], [*old.rows], [*old.columns], [*old.values], [*old.low])
    cost, upper = list(program.cost), list(program.upper)
    for columns, least, most in counts:
        for sign, low in ((1.0, least), (-1.0, -most)):
            if low > (0 if sign > 0 else -len(columns)):
                terms = [(column, sign) for column in columns]
                rows.add(("count", len(cost), ()), [*terms, (len(cost), 1.0)], low)
                cost.append(_PENALTY)
                upper.append(np.inf)
    return rows, np.array(cost), np.array(upper)
