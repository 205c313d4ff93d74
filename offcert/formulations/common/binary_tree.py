"""Least costs of binary programs, with a lower bound that integer multipliers prove.

HiGHS finds a solution, and then linear programs whose multipliers are rounded to whole numbers.
Whatever the multipliers are, the cost of every solution is at least what they make of the rows plus
the least that the columns can add to it (weak duality). That is computed in integers here, so no
solver has to be believed. Where it is not enough, a column is decided both ways, and the least of
both bounds holds. Every solution that is used is checked against the rows in integers.
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack, identity

from offcert.formulations.common.highs import run_linprog
from offcert.formulations.common.linear_model import LinearModel, whole, whole_limit
from offcert.formulations.common.linear_solvers import SCIPY, solve_linear

# Steps in one unit to which multipliers of scaled rows are rounded. Arbitrary.
_PRECISION = 2**24
# Share of the time in which a solution is looked for; the rest is for the bound. Arbitrary.
_SOLUTION = 0.5
# Distance from 0 and 1 within which a linear program has decided a column. Given by HiGHS.
_WHOLE = 1e-6
# What a scaled row costs that is broken by 1, where the dearest column costs 1. Arbitrary.
_PRICE = 1e5
# SciPy's status for an infeasible program. Given by SciPy.
_INFEASIBLE = 2


@dataclass(frozen=True)
class Minimum:
    """Knowledge of the least cost: a solution, and a bound."""

    # Of the columns, in the best solution found, which keeps to all rows.
    values: tuple[int, ...] | None
    cost: int | None  # Of that solution.
    bound: int | None  # No solution costs less; None if it is proved that there is no solution.
    # The cases of which the bound is the least: which columns are decided how, and a multiplier for
    # each row, per unit of cost.
    leaves: tuple[tuple[dict[int, int], tuple[Fraction, ...]], ...] = ()


def minimum(model: LinearModel, time_limit: float, *, proved: bool = True) -> Minimum:
    """Return a solution of a binary program, and a lower bound on the cost.

    Columns are whole numbers with the bounds 0 and 1; coefficients, costs and finite limits of rows
    are whole numbers. After `time_limit` seconds a solution and a bound are returned as far as they
    were found. Unless `proved`, no time is spent on the bound: it is what costs alone make it.
    """
    return _TreeSearch(model, time.monotonic() + time_limit).run(time_limit, proved)


# A bound, a number of its own, the columns that are decided, and multipliers.
_Node = tuple[int, int, dict[int, int], list[int]]


class _TreeSearch:
    """The search for one program."""

    def __init__(self, model: LinearModel, deadline: float) -> None:
        self.model, self.deadline = model, deadline
        self.cost = [whole(each) for each in model.cost]
        self.rows = [
            (
                [(column, whole(value)) for column, value in terms],
                whole_limit(low),
                whole_limit(high),
            )
            for terms, low, high in model.rows
        ]
        self.width = len(model.low)
        # Rows and costs are scaled to about 1 for HiGHS, which calculates in floats.
        self.scale = [
            1 << max(abs(value) for _, value in terms).bit_length() for terms, _, _ in self.rows
        ]
        self.unit = max(1, *map(abs, self.cost)) if self.cost else 1
        self.best: tuple[int, ...] | None = None
        self.best_cost: int | None = None
        self.heap: list[_Node] = []
        self._program = self._scaled() if self.rows else None

    def run(self, time_limit: float, proved: bool) -> Minimum:
        """Search."""
        if self.model.contradictory:
            return Minimum(None, None, None)
        scaled = LinearModel(
            self.model.low, self.model.high, [c / self.unit for c in self.cost], self.model.integer
        )
        for (terms, low, high), scale in zip(self.rows, self.scale, strict=True):
            limits = (
                -math.inf if low is None else low / scale,
                math.inf if high is None else high / scale,
            )
            scaled.row([(column, value / scale) for column, value in terms], *limits)
        answer = solve_linear(scaled, SCIPY, time_limit=_SOLUTION * time_limit)
        if answer.values is not None:
            self._take(answer.values)
        if not proved:
            self.deadline = time.monotonic()
        bound = self._grow()
        return Minimum(self.best, self.best_cost, bound, tuple(map(self._leaf, self.heap)))

    def _leaf(self, node: _Node) -> tuple[dict[int, int], tuple[Fraction, ...]]:
        _, _, fixed, multipliers = node
        return fixed, tuple(
            Fraction(each * self.unit, _PRECISION * scale)
            for each, scale in zip(multipliers, self.scale, strict=True)
        )

    def bound(self, fixed: dict[int, int], multipliers: list[int]) -> int:
        """Return the least cost with some columns decided that multipliers prove, rounded up.

        Multipliers are of scaled rows, in steps of `_PRECISION`.
        """
        total = 0
        largest = max(self.scale, default=1)
        reduced = [each * _PRECISION * largest for each in self.cost]
        for (terms, low, high), scale, rounded in zip(
            self.rows, self.scale, multipliers, strict=True
        ):
            limit = low if rounded > 0 else high
            if rounded == 0 or limit is None:
                continue
            # Scales are powers of two: this is whole.
            weight = rounded * self.unit * (largest // scale)
            total += weight * limit
            for column, value in terms:
                reduced[column] -= weight * value
        for column, price in enumerate(reduced):
            decided = fixed.get(column)
            ends = (self.model.low[column], self.model.high[column])
            least = min(price * int(end) for end in ends)
            total += least if decided is None else price * decided
        return -(-total // (_PRECISION * largest))

    def _take(self, values: Any) -> None:
        """Keep a solution if it holds in whole numbers, and is better."""
        found = tuple(round(value) for value in values)
        cost = sum(c * v for c, v in zip(self.cost, found, strict=True))
        if self.best_cost is not None and cost >= self.best_cost:
            return
        for terms, low, high in self.rows:
            total = sum(value * found[column] for column, value in terms)
            if (low is not None and total < low) or (high is not None and total > high):
                return
        if all(
            low <= v <= high
            for low, v, high in zip(self.model.low, found, self.model.high, strict=True)
        ):
            self.best, self.best_cost = found, cost

    def _grow(self) -> int | None:
        """Return a bound: the least over the leaves of a tree that decides columns both ways."""
        nothing = [0] * len(self.rows)
        order = count()
        heap = self.heap
        heap.append((self.bound({}, nothing), next(order), {}, nothing))
        while True:
            bound, _, fixed, multipliers = heap[0]
            if self._reached(bound) or time.monotonic() >= self.deadline:
                return bound if self.best_cost is None else min(bound, self.best_cost)
            found = self._relax(fixed, multipliers)
            if found is None:
                return bound
            better, column, used = found
            heapq.heappop(heap)
            if column is None or self._reached(max(bound, better)):
                best = used if better > bound else multipliers
                heapq.heappush(heap, (max(bound, better), next(order), fixed, best))
                if column is None and not self._reached(max(bound, better)):
                    # The relaxation is whole, but rounding keeps its bound below: no more to do.
                    return heap[0][0]
                continue
            for value in (0, 1):
                child = {**fixed, column: value}
                below, best = max((self.bound(child, each), each) for each in (multipliers, used))
                heapq.heappush(heap, (below, next(order), child, best))

    def _reached(self, bound: int) -> bool:
        return self.best_cost is not None and bound >= self.best_cost

    def _relax(
        self, fixed: dict[int, int], multipliers: list[int]
    ) -> tuple[int, int | None, list[int]] | None:
        """Return a bound, a column to decide, and multipliers; None if the time is up.

        Where HiGHS finds that decisions contradict each other it is not believed: with rows that
        may be broken at a price, multipliers show that it costs more than the best solution.
        """
        if self._program is None:
            return self.bound(fixed, multipliers), None, multipliers
        matrix, limits, signs, bounds = self._program
        bounds = bounds.copy()
        for column, value in fixed.items():
            bounds[column] = value
        answer = self._solved(np.array(self.cost) / self.unit, matrix, limits, bounds)
        if answer.status == _INFEASIBLE:
            broken = len(limits)
            answer = self._solved(
                np.concatenate([np.array(self.cost) / self.unit, np.full(broken, _PRICE)]),
                hstack([matrix, -identity(broken)]).tocsr(),
                limits,
                np.concatenate([bounds, np.tile([0.0, np.inf], (broken, 1))]),
            )
        if answer.status != 0:
            return None
        used = [0] * len(self.rows)
        for (row, sign), marginal in zip(signs, answer.ineqlin.marginals, strict=True):
            # A marginal says how the optimum changes with an upper limit: never upwards.
            used[row] += sign * round(max(0.0, -float(marginal)) * _PRECISION)
        found = answer.x[: self.width]
        self._take_rounded(found)
        parts = np.minimum(found, 1 - found)
        column = int(np.argmax(parts))
        return self.bound(fixed, used), column if parts[column] > _WHOLE else None, used

    def _solved(self, cost: Any, matrix: Any, limits: Any, bounds: Any) -> Any:
        left = max(0.01, self.deadline - time.monotonic())
        return run_linprog(cost, matrix, limits, bounds, left)

    def _take_rounded(self, values: Any) -> None:
        self._take(values)
        # Rows of covering kind hold if everything that is there in part is there.
        self._take(np.ceil(values - _WHOLE))

    def _scaled(self) -> tuple[Any, Any, list[tuple[int, int]], Any]:
        """Return rows of at most a limit, which row each is with which sign, and columns' bounds.

        A row of at least a limit is turned around; its multipliers are positive, others negative.
        """
        data: list[float] = []
        columns: list[int] = []
        starts, limits, signs = [0], [], []
        for number, (terms, low, high) in enumerate(self.rows):
            for limit, sign in ((low, 1), (high, -1)):
                if limit is None:
                    continue
                columns += [column for column, _ in terms]
                data += [-sign * value / self.scale[number] for _, value in terms]
                starts.append(len(columns))
                limits.append(-sign * limit / self.scale[number])
                signs.append((number, sign))
        shape = (len(limits), self.width)
        matrix = csr_array((np.array(data), np.array(columns), np.array(starts)), shape=shape)
        bounds = np.stack([np.array(self.model.low), np.array(self.model.high)], axis=1)
        return matrix, np.array(limits), signs, bounds
