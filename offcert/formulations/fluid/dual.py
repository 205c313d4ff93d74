"""The linear relaxation of the fluid program with some gaps decided, and its dual multipliers.

The rows are those of `fluid.milp`; HiGHS solves them inside SciPy. Its answer is advice only:
`fluid.dual` works out in integers what bound it gives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack

from offcert.core.platform import Kind
from offcert.formulations.common.highs import run_highs
from offcert.formulations.fluid.milp import AggregatedProgram
from offcert.questions.schedule.problem import Problem

Number = TypeVar("Number", int, float)

# The rows that have multipliers, by the names that proofs use.
KINDS = ("available", "due", "opened", "end", "start")

# Denominators to which multipliers are rounded, tried in this order: those of chains are often 0,
# 1/2 or 1. Arbitrary.
_DENOMINATORS = (2, 12, 5040, 1 << 20, 1 << 30, 1 << 40)

# Decisions about gaps: whether each, by its number, is evicted.
Fixed = Mapping[int, bool]


@dataclass(frozen=True)
class Rates:
    """The link, in integers.

    Attributes
    ----------
    unit : Fraction
        Ticks a byte of a link of rate 1.
    out, back : int
        Rates to and from the host, in multiples of ``1 / unit`` bytes a tick, without a common
        divisor.
    """

    unit: Fraction
    out: int
    back: int


def rates(problem: Problem) -> Rates:
    """Return the bytes that the link moves a tick in each direction, over a common unit."""
    out, back = (problem.platform.rate(kind) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
    numerator = math.gcd(out.numerator * back.denominator, back.numerator * out.denominator)
    common = Fraction(numerator, out.denominator * back.denominator)
    return Rates(1 / common, int(out / common), int(back / common))


@dataclass(frozen=True)
class Multipliers:
    """Weights of the rows of the fluid program, integers of at least 0.

    Attributes
    ----------
    over : int
        Their common denominator, at least 1.
    weights : tuple of tuple of int
        One tuple a kind of row, in the order of `KINDS`; one entry an operation.
    """

    over: int
    weights: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Prices:
    """Prices that multipliers put on the parts of the relaxation, times their denominator.

    Attributes
    ----------
    multipliers : Multipliers
        The multipliers from which the prices follow.
    constant : Fraction
        Ticks that no choice changes.
    first, again : tuple of int
        Cost of evicting each gap, as the first eviction of its tensor or as a later one; in units
        of ``Rates.unit`` ticks.
    free : tuple of int
        The least cost of each tensor with gaps if nothing is decided about it.
    total : int
        Their sum.
    """

    multipliers: Multipliers
    constant: Fraction
    first: tuple[int, ...]
    again: tuple[int, ...]
    free: tuple[int, ...]
    total: int


class Dual:
    """The Lagrangian bound of one problem.

    Parameters
    ----------
    problem : Problem
        Feasible, any trace and link.
    required : sequence of int
        Bytes that must be absent during each operation.
    """

    def __init__(self, problem: Problem, required: Sequence[int]) -> None:
        trace = problem.trace
        self.rates = rates(problem)
        self.duplex = problem.platform.duplex
        self.required = tuple(required)
        self.durations = trace.durations
        self.compute_time = trace.compute_time
        self.sizes = [trace.gap_size(gap) for gap in range(len(trace.gaps))]
        self.gaps = [(trace.tensors[gap.tensor].uses[0], gap) for gap in trace.gaps]
        # Bytes that could be absent during each operation beyond those that must be.
        self.spare = [
            sum(self.sizes[gap] for gap in gaps) - amount
            for gaps, amount in zip(trace.gaps_over, required, strict=True)
        ]
        # Gaps come ordered by tensor and then by time.
        numbers: dict[int, list[int]] = {}
        for index, gap in enumerate(trace.gaps):
            numbers.setdefault(gap.tensor, []).append(index)
        self.tensors = list(numbers.values())
        self.tensor_of = {gap: number for number, gaps in enumerate(self.tensors) for gap in gaps}

    def nothing(self) -> Prices:
        """Return the prices of multipliers of 0: their bound is the compute time."""
        zeros = (0,) * len(self.durations)
        return self.prices(Multipliers(1, (zeros,) * len(KINDS)))

    def rounded(
        self,
        weights: Sequence[Sequence[float]],
        fixed: Fixed | None = None,
        enough: int | None = None,
    ) -> Prices:
        """Return the prices of simple rationals near to real multipliers.

        Suffix sums are rounded rather than the multipliers: only they are used, and their errors do
        not add up. The denominator is the least of a few with which the bound, in whole ticks, is
        that of the finest, or `enough`.

        Parameters
        ----------
        weights : sequence of sequence of float
            One sequence a kind, one entry an operation, in units of ``Rates.unit`` ticks a byte.
        fixed : mapping, optional
            Decisions under which the bound counts.
        enough : int, optional
            A bound in ticks beyond which there is no need to go.
        """
        sums = [_suffix_sums([max(0.0, float(value)) for value in row])[:-1] for row in weights]
        finest = self.prices(self._repaired(sums, _DENOMINATORS[-1]))
        wanted = self.bound(finest, fixed)
        if enough is not None:
            wanted = min(wanted, enough)
        for denominator in _DENOMINATORS[:-1]:
            prices = self.prices(self._repaired(sums, denominator))
            if self.bound(prices, fixed) >= wanted:
                return prices
        return finest

    def _repaired(self, sums: Sequence[Sequence[float]], denominator: int) -> Multipliers:
        """Round, then enlarge the denominator until no idle time has a negative price."""
        weights = []
        for row in sums:
            whole = [round(value * denominator) for value in row]
            weights.append(tuple(a - b for a, b in zip(whole, [*whole[1:], 0], strict=True)))
        multipliers = Multipliers(denominator, tuple(weights))
        idle, _ = self._link_prices(multipliers)
        return Multipliers(max(denominator, -min(idle)), multipliers.weights)

    def _link_prices(self, multipliers: Multipliers) -> tuple[list[int], list[int]]:
        """Return the price of a tick of the link before and during each operation, at most 0."""
        available, due, opened, end, start = map(_suffix_sums, multipliers.weights)
        idle, during = [], []
        for o in range(len(self.durations)):
            out, back = available[o] - end[o], opened[o] + end[o]
            idle.append(self._best(out - start[o], back - due[o] + start[o]))
            during.append(self._best(out - start[o + 1], back - due[o + 1] + start[o + 1]))
        return idle, during

    def _best(self, out: int, back: int) -> int:
        """Return the least price of a tick of the link, given prices of bytes each way."""
        one, two = min(0, self.rates.out * out), min(0, self.rates.back * back)
        return one + two if self.duplex else min(one, two)

    def prices(self, multipliers: Multipliers) -> Prices:
        """Return the bound of multipliers, in parts; no idle time may have a negative price."""
        available, due, opened, end, start = map(_suffix_sums, multipliers.weights)
        idle, during = self._link_prices(multipliers)
        assert multipliers.over + min(idle) >= 0
        ticks = sum(price * time for price, time in zip(during, self.durations, strict=True))
        _, _, *binding = multipliers.weights
        size = sum(
            sum(weights) * amount
            for weights, amount in zip(zip(*binding, strict=True), self.required, strict=True)
        )
        first, again = [], []
        for (writer, gap), bytes_ in zip(self.gaps, self.sizes, strict=True):
            both = due[gap.after] - opened[gap.before + 1]
            first.append(bytes_ * (both - available[writer + 1]))
            again.append(bytes_ * (both - end[gap.before + 1] - start[gap.before + 1]))
        costs = tuple(first), tuple(again)
        free = tuple(_least(gaps, *costs, {}) for gaps in self.tensors)
        constant = ticks + self.rates.unit * size
        return Prices(multipliers, constant, *costs, free, sum(free))

    def bound(self, prices: Prices, fixed: Fixed | None = None) -> int:
        """Return the lower bound on the makespan, in whole ticks, if some gaps are decided."""
        total = prices.total
        fixed = fixed or {}
        for tensor in {self.tensor_of[gap] for gap in fixed}:
            total += _least(self.tensors[tensor], prices.first, prices.again, fixed)
            total -= prices.free[tensor]
        idle = (prices.constant + self.rates.unit * total) / prices.multipliers.over
        return self.compute_time + max(0, math.ceil(idle))

    def impossible(self, fixed: Fixed) -> int | None:
        """Return an operation that lacks room whatever else is evicted, or None."""
        spare = list(self.spare)
        for index, evicted in fixed.items():
            if not evicted:
                _, gap = self.gaps[index]
                for o in range(gap.before + 1, gap.after):
                    spare[o] -= self.sizes[index]
        return next((o for o, left in enumerate(spare) if left < 0), None)


def _suffix_sums(values: Sequence[Number]) -> list[Number]:
    """Return, for each entry, the sum of it and all later ones; then 0."""
    sums: list[Number] = list(accumulate(reversed(values)))
    sums.reverse()
    sums.append(values[0] * 0)
    return sums


def _least(gaps: Sequence[int], first: Sequence[int], again: Sequence[int], fixed: Fixed) -> int:
    """Return the least cost of the evictions of one tensor, whose gaps are given in order."""
    best: int | None = None
    # From the last gap on: what the evictions after this gap cost, if there is one before them.
    after, none_after = 0, True
    for gap in reversed(gaps):
        decided = fixed.get(gap)
        if decided is not False:
            cost = first[gap] + after
            best = cost if best is None or decided or cost < best else best
            after += again[gap] if decided else min(0, again[gap])
        none_after = none_after and not decided
    if none_after:
        best = 0 if best is None else min(best, 0)
    assert best is not None
    return best


# The finest tolerance of dual values that HiGHS accepts; the bound loses as much as they are off.
# Given by HiGHS.
_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Relaxed:
    """An optimum of the linear program.

    Attributes
    ----------
    evicted : tuple of float
        How much of each gap is evicted, from 0 to 1.
    weights : tuple of tuple of float
        Multipliers as `fluid.dual.Dual.rounded` takes them.
    """

    evicted: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]


class Relaxation:
    """The program of one problem, to be solved with one set of decisions after another.

    Parameters
    ----------
    problem : Problem
        Feasible, any trace and link.
    required : sequence of int
        Bytes that must be absent during each operation.
    """

    def __init__(self, problem: Problem, required: Sequence[int]) -> None:
        self._program = program = AggregatedProgram(problem, required)
        rows = program.rows.constraint(program.columns)
        matrix: Any = rows.A
        low, high = rows.lb, rows.ub
        equal = low == high
        upper = ~equal & np.isfinite(high)
        lower = ~equal & np.isfinite(low)
        self._at_most = vstack([matrix[upper], -matrix[lower]]).tocsr()
        self._limits = np.concatenate([high[upper], -low[lower]])
        self._equal, self._values = matrix[equal], low[equal]
        self._cost = program.cost()
        self._bounds = np.stack([np.zeros(program.columns), program.upper_bounds()], axis=1)
        # Where each row of the program stands among the rows of at most a limit.
        place = np.full(len(low), -1)
        place[np.flatnonzero(upper)] = np.arange(upper.sum())
        place[np.flatnonzero(lower)] = upper.sum() + np.arange(lower.sum())
        self._places: NDArray[np.int64] = place[np.array(program.memory_rows)]
        # The program measures bytes by the mean of their times to leave and to return.
        there = rates(problem)
        self._factor = float((Fraction(1, there.out) + Fraction(1, there.back)) / 2)

    @property
    def size(self) -> dict[str, int]:
        """Rows, columns and nonzeros."""
        rows = self._program.rows
        return {
            "rows": len(rows.low),
            "columns": self._program.columns,
            "nonzeros": len(rows.values),
        }

    def solve(self, fixed: Fixed, time_limit: float) -> Relaxed | None:
        """Return an optimum with some gaps decided, or None if HiGHS finds none in time."""
        if time_limit <= 0:
            return None
        first = self._program.first_gap
        bounds: Any = self._bounds.copy()
        for gap, evicted in fixed.items():
            bounds[first + gap] = float(evicted)
        answer = run_highs(
            "linprog",
            time_limit,
            c=self._cost,
            A_ub=self._at_most,
            b_ub=self._limits,
            A_eq=self._equal,
            b_eq=self._values,
            bounds=bounds,
            method="highs",
            options={
                "time_limit": time_limit,
                "primal_feasibility_tolerance": _TOLERANCE,
                "dual_feasibility_tolerance": _TOLERANCE,
            },
        )
        if answer.status != 0:
            return None
        # A marginal says how the optimum changes with a limit; a larger upper limit lowers it.
        weights = -answer.ineqlin.marginals[self._places].T * self._factor
        assert len(weights) == len(KINDS)
        amounts = answer.x[first : first + len(self._program.trace.gaps)]
        return Relaxed(tuple(amounts.tolist()), tuple(map(tuple, weights.tolist())))
