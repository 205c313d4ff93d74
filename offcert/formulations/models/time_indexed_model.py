"""The time-indexed model of atomic transfers: columns and rows over starts in cells of a grid.

The classic model of scheduling on a machine. Variables are running sums of the start binaries,
"item i has started by cell τ". Written ``S`` for operations, ``Z`` for offloads (their last one:
"the tensor moves") and ``Y`` for prefetches ("the gap is evicted"). The amount absent in a cell is
a sum of sizes times ``Z[τ - length] - Y[τ]``. Exact where cells divide every duration; elsewhere
its bound is sound (`offcert.formulations.common.grid` proves it).
"""

from __future__ import annotations

import math

from offcert.formulations.common.linear_model import (
    ONE,
    ROUNDING,
    LinearModel,
    Terms,
    scaled,
    value_of,
)
from offcert.formulations.common.time_grid import GridGap, StartWindow, TimeGrid, cells_to_order


class TimeIndexedModel:
    """Columns and rows for one problem on one grid.

    On a duplex link the directions are independent. If `integers`, all numbers are integers, for a
    solver that counts in these. At `ends`, in seconds of `time.monotonic`, building the model is
    given up.
    """

    def __init__(
        self, data: TimeGrid, duplex: bool, integers: bool, ends: float = math.inf
    ) -> None:
        self._begin(data, integers, ends)
        self.offloads = {
            tensor: self._running_sum(item, certain=False) for tensor, item in data.offloads.items()
        }
        self.prefetches = [self._running_sum(gap.prefetch, certain=False) for gap in data.gaps]
        self._absent: dict[tuple[int, int, int], Terms] = {}
        for index, gap in enumerate(data.gaps):
            self._add_eviction(index, gap)
        self._add_link(duplex)
        self._add_memory()
        for o, item in enumerate(data.operations):
            if item.length == 0 and data.required[o] > 0:
                self._add_moment(o, item)

    def _begin(self, data: TimeGrid, integers: bool, ends: float) -> None:
        """Add the operations in their order; the last one starts as early as it can."""
        self.data, self.whole = data, integers
        # Part of a row that the tolerances of solvers may hide.
        self._slack = 0.0 if integers else ROUNDING
        self.model = LinearModel(ends=ends)
        self.operations = [self._running_sum(item, certain=True) for item in data.operations]
        for step in self.operations[-1]:
            for column, _ in step:
                if column != ONE:
                    self.model.cost[column] = -1.0
        self._add_order()

    def _running_sum(self, item: StartWindow, certain: bool) -> list[Terms]:
        """Return, for each cell of the window, "the item has started by it"."""
        steps: list[Terms] = []
        for cell in range(item.first, item.last + 1):
            if certain and cell == item.last:
                steps.append([(ONE, 1.0)])
            else:
                steps.append([(self.model.column(0.0, 1.0, integer=True), 1.0)])
            if len(steps) > 1:
                self.model.at_most(steps[-2], steps[-1])
        return steps

    # "Has started by a cell", whatever the window

    def started(self, o: int, cell: int) -> Terms:
        """Return whether operation o has started by a cell; -1 started before time."""
        if o < 0:
            return [(ONE, 1.0)]
        return _at(self.operations[o], self.data.operations[o], cell)

    def ended(self, o: int, cell: int) -> Terms:
        """Return whether operation o has ended by a cell."""
        if o < 0:
            return [(ONE, 1.0)]
        return self.started(o, cell - self.data.operations[o].length)

    def copied(self, tensor: int, cell: int) -> Terms:
        """Return whether a tensor's offload has ended by a cell."""
        item = self.data.offloads[tensor]
        return _at(self.offloads[tensor], item, cell - item.length)

    def fetched(self, index: int, cell: int) -> Terms:
        """Return whether a gap's prefetch has started by a cell."""
        return _at(self.prefetches[index], self.data.gaps[index].prefetch, cell)

    def evicted(self, index: int) -> Terms:
        """Return whether a gap is evicted."""
        return self.prefetches[index][-1]

    # Rows

    def _add_order(self) -> None:
        """Operations follow each other, and offloads the writers of their tensors."""
        items = self.data.operations
        for o in range(1, len(items)):
            for cell in cells_to_order(items[o - 1], items[o]):
                self.model.at_most(self.started(o, cell), self.ended(o - 1, cell))
        for a, b, distance in self.data.distances:
            for cell in range(items[b].first, items[b].last + 1):
                self.model.at_most(self.started(b, cell), self.started(a, cell - distance))

    def _add_eviction(self, index: int, gap: GridGap) -> None:
        """A tensor leaves once written; a prefetch lies between the release and the next use."""
        model, tensor = self.model, gap.tensor
        leaves = self.data.offloads[tensor]
        if gap.writer >= 0:
            for cell in cells_to_order(self.data.operations[gap.writer], leaves):
                model.at_most(
                    _at(self.offloads[tensor], leaves, cell), self.ended(gap.writer, cell)
                )
        if gap.single:
            # A copy that nobody fetches would make room for nothing.
            model.at_most(self.offloads[tensor][-1], self.evicted(index))
        for cell in range(gap.prefetch.first, gap.prefetch.last + 1):
            model.at_most(self.fetched(index, cell), self.copied(tensor, cell))
            if not gap.alone:
                model.at_most(self.fetched(index, cell), self.ended(gap.before, cell))
        reader = self.data.operations[gap.after]
        for cell in range(reader.first, reader.last + 1):
            missing = [
                *self.evicted(index),
                *scaled(self.fetched(index, cell - gap.prefetch.length), -1.0),
            ]
            model.row([*self.started(gap.after, cell), *missing], -math.inf, 1.0)

    def _add_link(self, duplex: bool) -> None:
        """One transfer at a time, or one in each direction; what overlaps does so at a start."""
        outward = [(self.offloads[tensor], item) for tensor, item in self.data.offloads.items()]
        inward = [
            (steps, gap.prefetch)
            for steps, gap in zip(self.prefetches, self.data.gaps, strict=True)
        ]
        for queue in [outward, inward] if duplex else [outward + inward]:
            for cell in sorted({c for _, i in queue for c in range(i.first, i.last + 1)}):
                busy = [
                    term
                    for steps, item in queue
                    for term in (
                        *_at(steps, item, cell),
                        *scaled(_at(steps, item, cell - item.length), -1.0),
                    )
                ]
                self.model.row(busy, -math.inf, 1.0)

    def _absence(self, index: int, released: int, back: int) -> Terms:
        """Return whether a gap is evicted, released by one cell and not fetched by another."""
        gap = self.data.gaps[index]
        copied, fetched = self.copied(gap.tensor, released), self.fetched(index, back)
        if gap.alone or not copied:
            return [*copied, *scaled(fetched, -1.0)]
        key = (index, released, back)
        if key not in self._absent:
            absent: Terms = [(self.model.column(0.0, 1.0, integer=self.whole), 1.0)]
            both = [*absent, *fetched]
            self.model.at_most(both, copied)
            self.model.at_most(both, self.ended(gap.before, released))
            if not gap.single:
                self.model.at_most(both, self.evicted(index))
            self._absent[key] = absent
        return self._absent[key]

    def _add_memory(self) -> None:
        """In every cell as much is absent as the operation that runs, or the idle time, requires.

        One row a cell: exactly one operation, or the idle time before one, has the cell.
        """
        data = self.data
        most = max(*data.required, *data.idle_required)
        largest = 1 if self.whole else most
        for cell in range(data.cells if most > 0 else 0):
            needs: Terms = []
            for o, (run, idle) in enumerate(zip(data.required, data.idle_required, strict=True)):
                begun, over = self.started(o, cell), self.ended(o, cell)
                needs += [*scaled(begun, -run / largest), *scaled(over, run / largest)]
                before = self.ended(o - 1, cell)
                needs += [*scaled(before, -idle / largest), *scaled(begun, idle / largest)]
            if any(value < 0.0 for _, value in needs):
                terms = list(needs)
                for index, gap in enumerate(data.gaps):
                    terms += scaled(self._absence(index, cell, cell), gap.size / largest)
                self.model.row(terms, -self._slack)

    def _add_moment(self, o: int, item: StartWindow) -> None:
        """An operation that lasts no cell requires its absence when it starts."""
        required = self.data.required[o]
        largest = 1 if self.whole else required
        for cell in range(item.first, item.last + 1):
            terms = scaled(self.started(o, cell - 1), required / largest)
            terms += scaled(self.started(o, cell), -required / largest)
            for index in self.data.over[o]:
                share = self.data.gaps[index].size / largest
                terms += scaled(self._absence(index, cell, cell - 1), share)
            self.model.row(terms, -self._slack)

    # Solutions

    def decisions(self, values: list[float]) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """Return the cells of operations, of offloads by tensor and of prefetches by gap index."""

        def starts_in(steps: list[Terms], item: StartWindow) -> int | None:
            by = (c for c, terms in enumerate(steps) if value_of(terms, values) > 0.5)
            step = next(by, None)
            return None if step is None else item.first + step

        data = self.data
        operations = [
            starts_in(s, i) for s, i in zip(self.operations, data.operations, strict=True)
        ]
        offloads = {t: starts_in(self.offloads[t], item) for t, item in data.offloads.items()}
        prefetches = {
            index: starts_in(self.prefetches[index], gap.prefetch)
            for index, gap in enumerate(data.gaps)
        }
        return (
            [start for start in operations if start is not None],
            {tensor: start for tensor, start in offloads.items() if start is not None},
            {index: start for index, start in prefetches.items() if start is not None},
        )


def _at(steps: list[Terms], item: StartWindow, cell: int) -> Terms:
    """Return whether an item has started by a cell, given its running sums over its window."""
    if cell < item.first:
        return []
    return steps[min(cell, item.last) - item.first]
