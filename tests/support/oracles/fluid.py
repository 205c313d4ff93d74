"""Problem 2 by unit ticks: an independent program for tiny problems, and the ordered one by sets.

`TickProgram` knows operations by a binary a tick ("has started by t") instead of by idle times, and
amounts a tick instead of cumulative amounts at instants; of `offcert` it reads numbers only.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from offcert.core.chain import Chain
from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem
from support.oracles.ordered_fluid import ordered_value


class TickProgram:
    """Everything that happens in ticks 0 .. horizon; all amounts in bytes."""

    def __init__(self, problem: Problem, horizon: int, fractional: bool) -> None:
        self.rows: list[tuple[dict[int, float], float, float]] = []
        self.upper: list[float] = []
        self.integer: list[int] = []
        self.horizon, self.problem, self.trace = horizon, problem, problem.trace
        self.fractional = fractional
        self.rates = [float(problem.platform.rate(kind)) for kind in Kind]
        operations = range(len(self.trace))
        self.started = [[self.column(1, 1) for _ in range(horizon + 1)] for _ in operations]
        self.add_operations()
        evictable = {gap.tensor for gap in self.trace.gaps}
        away, home = self.rates
        self.out = {v: [self.column(away) for _ in range(horizon)] for v in evictable}
        self.back = [[self.column(home) for _ in range(horizon)] for _ in self.trace.gaps]
        self.absent = [[self.column(np.inf) for _ in range(horizon + 1)] for _ in self.trace.gaps]
        for tensor in evictable:
            self.add_tensor(tensor)
        for gap in range(len(self.trace.gaps)):
            self.add_gap(gap)
        self.add_link()
        self.add_memory()

    def column(self, upper: float, integer: int = 0) -> int:
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.upper) - 1

    def row(self, terms: dict[int, float], low: float, high: float = np.inf) -> None:
        self.rows.append((terms, low, high))

    def ended(self, o: int, t: int, worth: float = 1.0) -> dict[int, float]:
        """Whether operation o has ended by t, as terms."""
        since = t - self.trace.durations[o]
        return {self.started[o][since]: worth} if since >= 0 else {}

    def add_operations(self) -> None:
        for o, started in enumerate(self.started):
            for t in range(self.horizon + 1):
                if t:
                    self.row({started[t]: 1, started[t - 1]: -1}, 0)
                if o:
                    self.row({**self.ended(o - 1, t), started[t]: -1}, 0)
        last = len(self.started) - 1
        self.row(self.ended(last, self.horizon), 1)

    def add_tensor(self, tensor: int) -> None:
        out, size = self.out[tensor], self.trace.tensors[tensor].size
        writer = self.trace.tensors[tensor].uses[0]
        self.row(dict.fromkeys(out, 1.0), -np.inf, size)
        if writer >= 0:
            for t in range(self.horizon):
                self.row({out[t]: -1.0, **self.ended(writer, t, size)}, 0)

    def add_gap(self, index: int) -> None:
        gap, size = self.trace.gaps[index], float(self.trace.gap_size(index))
        out, back, absent = self.out[gap.tensor], self.back[index], self.absent[index]
        # How much of the gap is evicted: anything, or all or nothing.
        worth = 1.0 if self.fractional else size
        evicted = self.column(size) if self.fractional else self.column(1, 1)
        for t in range(self.horizon + 1):
            returned = dict.fromkeys(back[:t], -1.0)
            self.row({**dict.fromkeys(out[:t], 1.0), **returned, absent[t]: -1.0}, 0)
            self.row({evicted: worth, **returned, absent[t]: -1.0}, 0)
            closing = {self.started[gap.after][t]: -size, evicted: -worth}
            self.row({**closing, **dict.fromkeys(back[:t], 1.0)}, -size)
            if gap.before >= 0 and t < self.horizon:
                self.row({back[t]: -1.0, **self.ended(gap.before, t, size)}, 0)

    def add_link(self) -> None:
        for t in range(self.horizon):
            away, home = (1 / rate for rate in self.rates)
            leaving = {out[t]: away for out in self.out.values()}
            returning = {back[t]: home for back in self.back}
            duplex = self.problem.platform.duplex
            for times in [leaving, returning] if duplex else [leaving | returning]:
                self.row(times, -np.inf, 1)

    def add_memory(self) -> None:
        for o in range(len(self.trace)):
            required = float(max(0, self.trace.demand[o] - self.problem.platform.memory))
            spanning = [g for g, gap in enumerate(self.trace.gaps) if gap.before < o < gap.after]
            for t in range(self.horizon + 1) if required else ():
                # While o runs, both its ends included: started by t and not ended by t - 1.
                terms = {self.absent[g][t]: 1.0 for g in spanning}
                terms[self.started[o][t]] = -required
                self.row({**terms, **self.ended(o, t - 1, required)}, 0)

    def solve(self) -> int | None:
        matrix = np.zeros((len(self.rows), len(self.upper)))
        for number, (terms, _, _) in enumerate(self.rows):
            for column, value in terms.items():
                matrix[number, column] += value
        cost = np.zeros(len(self.upper))
        # Each tick by which the last operation has not ended costs one.
        for t in range(self.horizon):
            for column in self.ended(len(self.started) - 1, t):
                cost[column] = -1.0
        low, high = ([row[k] for row in self.rows] for k in (1, 2))
        answer = milp(
            cost,
            integrality=np.array(self.integer),
            bounds=Bounds(0, np.array(self.upper)),
            constraints=LinearConstraint(matrix, low, high),
        )
        return None if answer.x is None else self.horizon + round(answer.fun)


def tick_optimum(problem: Problem, horizon: int, *, fractional: bool = False) -> int | None:
    """Return the least makespan of at most `horizon` ticks with interruptible transfers."""
    return TickProgram(problem, horizon, fractional).solve()


def ordered_optimum(
    chain: Chain, memory: int, rates: tuple[Fraction, Fraction], early: bool = False
) -> int | None:
    """Return the least makespan, rounded up, over all sets, each leaving and returning in order.

    With `early`, a prefetch may begin while the operation that opens its gap still runs.
    """
    candidates = [i for i in range(len(chain)) if chain.activation[i] > 0]
    values = [
        ordered_value(chain, memory, rates, chosen, early)
        for count in range(len(candidates) + 1)
        for chosen in combinations(candidates, count)
    ]
    feasible = [value for value in values if value is not None]
    return math.ceil(min(feasible)) if feasible else None
