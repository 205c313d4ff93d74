"""Energy constraints over windows of operations; only those that matter are kept.

Transfers that must begin and end between two instants last together no longer than the time between
them. There are quadratically many windows; stated all at once they drown the solver (notes on the
papers, §1). So a linear program over the literals, without link, picks those that bind: solve, add
the violated windows, repeat, and keep what has a price at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from offcert.formulations.common.highs import run_linprog
from offcert.formulations.models.interval_data import Instant, IntervalData, instants

# Part of the horizon below which a violation is rounding, and rounds of the search for constraints.
# Arbitrary.
_TOLERANCE = 1e-7
_ROUNDS = 12

Terms = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Transfers within a window; ``Σ cells · literal ≤ start[closes] - start[opens] - slack``."""

    # Operations; `opens` may be -1, the beginning of time.
    opens: int
    closes: int
    slack: int  # Cells.
    # Offloads that count if they have ended by the instant, prefetches that count if they have not
    # begun before it.
    left: Terms = ()
    stays: Terms = ()
    # Transfers that are inside if the gap is evicted at all.
    evicted: tuple[tuple[int, int], ...] = ()


class _Columns:
    """Columns of the linear program: starts, evictions, and two literals per gap and instant."""

    def __init__(self, data: IntervalData, points: tuple[Instant, ...]) -> None:
        self.data = data
        self.points = points
        count = len(data.durations) + len(data.gaps)
        self.left: dict[tuple[int, int], int] = {}
        self.stays: dict[tuple[int, int], int] = {}
        for position, point in enumerate(points):
            for gap in data.over[point.operation]:
                self.left[gap, position] = count
                self.stays[gap, position] = count + 1
                count += 2
        self.count = count

    def evicted(self, gap: int) -> int:
        return len(self.data.durations) + gap

    def row(self, window: Window) -> tuple[dict[int, float], float]:
        """Return a window as coefficients and right-hand side of "at most"."""
        row: dict[int, float] = {window.closes: -1.0}
        if window.opens >= 0:
            row[window.opens] = row.get(window.opens, 0.0) + 1.0
        entries = [(self.left[gap, point], cells) for gap, point, cells in window.left]
        entries += [(self.stays[gap, point], cells) for gap, point, cells in window.stays]
        entries += [(self.evicted(gap), cells) for gap, cells in window.evicted]
        for column, cells in entries:
            row[column] = row.get(column, 0.0) + float(cells)
        return row, -float(window.slack)


def candidate_windows(data: IntervalData, duplex: bool) -> list[Window]:
    """Return every window considered: from a writer to an instant, and from an instant to a use."""
    points = instants(data)
    found = []
    for position, point in enumerate(points):
        o = point.operation
        over = data.over[o]
        if not point.at_end:
            for writer in sorted({data.gaps[gap].writer for gap in over}):
                inside = tuple(
                    (gap, position, data.gaps[gap].offload_time)
                    for gap in over
                    if data.gaps[gap].writer >= writer
                )
                slack = data.durations[writer] if writer >= 0 else 0
                done = _done_between(data, writer, o, out=True, back=not duplex)
                found.append(Window(writer, o, slack, left=inside, evicted=done))
        if point.at_end or data.durations[o] == 0:
            for after in sorted({data.gaps[gap].after for gap in over}):
                inside = tuple(
                    (gap, position, data.gaps[gap].prefetch_time)
                    for gap in over
                    if data.gaps[gap].after <= after
                )
                done = _done_between(data, o, after, out=not duplex, back=True)
                found.append(Window(o, after, data.durations[o], stays=inside, evicted=done))
    if not duplex:
        found += _windows_around(data, points)
    return found


def _done_between(
    data: IntervalData, opens: int, closes: int, *, out: bool, back: bool
) -> tuple[tuple[int, int], ...]:
    """Return the gaps whose transfers both lie after the end of `opens` and before `closes`.

    With the cells of the directions that count. Tensors with one gap only: another gap's offload
    may have come before.
    """
    tensors = [gap.tensor for gap in data.gaps]
    return tuple(
        (index, out * gap.offload_time + back * gap.prefetch_time)
        for index, gap in enumerate(data.gaps)
        if gap.writer >= opens and gap.after <= closes and tensors.count(gap.tensor) == 1
    )


def _windows_around(data: IntervalData, points: tuple[Instant, ...]) -> Iterator[Window]:
    """Yield windows from an operation's start to one behind the turn; both directions count."""
    first = [(i, p) for i, p in enumerate(points) if not p.at_end]
    last = [(i, p) for i, p in enumerate(points) if p.at_end]
    tensors = [gap.tensor for gap in data.gaps]
    single = [tensors.count(tensor) == 1 for tensor in tensors]
    for i, opening in first:
        for j, closing in last:
            a, b = opening.operation, closing.operation
            if a >= b:
                continue
            left, stays, done = [], [], []
            for index, gap in enumerate(data.gaps):
                if not single[index]:
                    continue
                out_inside, back_inside = gap.writer >= a, gap.after <= b
                if out_inside and back_inside:
                    done.append((index, gap.offload_time + gap.prefetch_time))
                elif out_inside and gap.before < b:
                    left.append((index, j, gap.offload_time))
                elif back_inside and gap.before < a < gap.after:
                    stays.append((index, i, gap.prefetch_time))
                elif back_inside and gap.before >= a:
                    done.append((index, gap.prefetch_time))
            # "Left by the end of b" means released one cell before that end at the latest.
            slack = 1 - data.durations[b]
            yield Window(a, b, slack, tuple(left), tuple(stays), tuple(done))


def choose_windows(data: IntervalData, duplex: bool, seconds: float) -> list[Window]:
    """Return the windows that bind in the linear relaxation, valid whatever its accuracy.

    After `seconds` no further round starts: what has been found until then is returned, and nothing
    if the linear program failed.
    """
    points = instants(data)
    if not points:
        return []
    deadline = time.monotonic() + seconds
    columns = _Columns(data, points)
    candidates = candidate_windows(data, duplex)
    matrix, limits = _matrix([columns.row(window) for window in candidates], columns.count)
    base, base_limits = _base_rows(columns)
    chosen: list[int] = []
    prices: NDArray[np.float64] = np.zeros(0)
    for _ in range(_ROUNDS):
        answer = _solve(columns, base, base_limits, matrix, limits, chosen, deadline)
        if answer is None:
            break
        point, prices = answer
        violation = matrix @ point - limits
        violation[chosen] = 0
        worst = np.argsort(-violation)[: 2 * len(points)]
        added = [int(k) for k in worst if violation[k] > _TOLERANCE * max(data.latest)]
        if not added or time.monotonic() > deadline:
            break
        chosen += added
    if len(prices) < len(chosen):
        prices = np.concatenate([prices, -np.ones(len(chosen) - len(prices))])
    return [candidates[k] for k, price in zip(chosen, prices, strict=True) if price < -_TOLERANCE]


def _solve(
    columns: _Columns,
    base: csr_array,
    base_limits: NDArray[np.float64],
    matrix: csr_array,
    limits: NDArray[np.float64],
    chosen: list[int],
    deadline: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the solution of the linear program and the prices of the chosen windows."""
    data = columns.data
    scale = float(max(1, max(data.latest)))
    count = len(data.durations)
    bounds = [
        (low / scale, high / scale) for low, high in zip(data.earliest, data.latest, strict=True)
    ] + [(0.0, 1.0)] * (columns.count - count)
    # Starts are scaled, so their coefficients in time rows stay 1 while the others shrink.
    shrink = np.ones(columns.count)
    shrink[count:] = 1 / scale
    rows = csr_array(matrix[chosen].multiply(shrink)) if chosen else None
    every: Any = base if rows is None else vstack([base, rows], format="csr")
    right = np.concatenate([base_limits, limits[chosen] / scale]) if chosen else base_limits
    cost = np.zeros(columns.count)
    cost[count - 1] = 1.0
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        return None
    answer = run_linprog(cost, every, right, bounds, remaining)
    if answer.x is None or answer.status != 0:
        return None
    point = np.asarray(answer.x, dtype=float)
    point[:count] *= scale
    return point, np.asarray(answer.ineqlin.marginals)[base.shape[0] :]


def _base_rows(columns: _Columns) -> tuple[csr_array, NDArray[np.float64]]:
    """Return the rows that are no windows, in scaled units: order, requirements, monotony."""
    data, points = columns.data, columns.points
    scale = float(max(1, max(data.latest)))
    rows: list[tuple[dict[int, float], float]] = []
    for o in range(1, len(data.durations)):
        rows.append(({o - 1: 1.0, o: -1.0}, -data.durations[o - 1] / scale))
    for position, point in enumerate(points):
        needed = float(data.required[point.operation])
        row: dict[int, float] = {}
        for gap in data.over[point.operation]:
            weight = data.gaps[gap].size / needed
            left, stays = columns.left[gap, position], columns.stays[gap, position]
            out = columns.evicted(gap)
            row[left] = row[stays] = -weight
            row[out] = weight
            rows += [({left: 1.0, out: -1.0}, 0.0), ({stays: 1.0, out: -1.0}, 0.0)]
            rows.append(({out: 1.0, left: -1.0, stays: -1.0}, 0.0))
            if (gap, position + 1) in columns.left:
                rows.append(({left: 1.0, columns.left[gap, position + 1]: -1.0}, 0.0))
                rows.append(({stays: -1.0, columns.stays[gap, position + 1]: 1.0}, 0.0))
        rows.append((row, -1.0))
    return _matrix(rows, columns.count)


def _matrix(
    rows: list[tuple[dict[int, float], float]], columns: int
) -> tuple[csr_array, NDArray[np.float64]]:
    """Return rows of coefficients as a sparse matrix with their right-hand sides."""
    data, indices, starts = [], [], [0]
    for row, _ in rows:
        indices += list(row)
        data += list(row.values())
        starts.append(len(indices))
    matrix = csr_array((data, indices, starts), shape=(len(rows), columns))
    return matrix, np.array([limit for _, limit in rows])
