"""From the duals of the linear program to rationals, and what bound these give, exactly.

Whatever the solver's numbers are, any multipliers of at least 0 give a bound: every column takes
its cheapest value within its limits. So they are rounded to integers over a common denominator, and
the rest is integer arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from offcert.core.plan import Kind
from offcert.formulations.joint.program import JointProgram, Key, Solved
from offcert.proofs.joint_document import PLACES, JointCases, JointWeights

Prices = NDArray[np.object_]

# Tried in this order; a tick is the unit, so that the first suits times in nanoseconds.
_DENOMINATORS = (2, 60, 5040, 1 << 20, 1 << 30)
_LINKS = ("link", "out", "in")


@dataclass(frozen=True)
class JointBound:
    """A bound and what proves it.

    Attributes
    ----------
    value : int
        Ticks.
    cases : JointCases
        For the document of a proof.
    """

    value: int
    cases: JointCases


def rounded(program: JointProgram, solved: Solved) -> JointBound:
    """Return the bound of simple rationals near to the solver's multipliers.

    Of a few denominators the least one is taken with which the bound, in whole ticks, is the best.
    """
    exact = Exact(program)
    tried = [(over, whole_weights(program, solved, over)) for over in _DENOMINATORS]
    values = [exact.bound(whole, over) for over, whole in tried]
    value = max(values)
    over, whole = tried[values.index(value)]
    return JointBound(value, JointCases((listed(whole, over),)))


def listed(whole: dict[Key, int], over: int) -> JointWeights:
    """Return multipliers by family and place."""
    rows: dict[str, dict[tuple[int, ...], int]] = {family: {} for family in PLACES}
    for (family, where, about), weight in whole.items():
        if family in PLACES:
            rows[family][(where, *about)] = weight
    return JointWeights(over, rows)


def whole_weights(program: JointProgram, solved: Solved, over: int) -> dict[Key, int]:
    """Round; those of the link come to at most 1 where more can run than what runs first."""
    lengths: dict[int, int] = {}
    whole: dict[Key, int] = {}
    for key, weight in solved.weights.items():
        family, window, _ = key
        if family == "compute":
            continue
        number = round(weight * over)
        if family in _LINKS and not program.grid.single(window):
            number = min(number, over - lengths.get(window, 0))
            lengths[window] = lengths.get(window, 0) + number
        if number > 0:
            whole[key] = number
    return whole


@dataclass(frozen=True)
class Weighed:
    """What multipliers make of the makespan: a constant, and a price for every column.

    Attributes
    ----------
    constant : int
        In ticks times `over`, as the prices.
    prices : list of int
        By column.
    over : int
        The unit.
    """

    constant: int
    prices: list[int]
    over: int

    @cached_property
    def cheapest(self) -> int:
        """The constant, and every column at its cheapest value."""
        return self.constant + sum(price for price in self.prices if price < 0)

    def bound(self, fixed: dict[int, int]) -> int:
        """Return the bound in ticks if some columns are 0 or 1."""
        total = self.cheapest
        for column, value in fixed.items():
            price = self.prices[column]
            total += price * value - min(price, 0)
        return math.ceil(Fraction(int(total), self.over))


class Exact:
    """The program's rows in integers; those of each family in units of their own."""

    def __init__(self, program: JointProgram) -> None:
        self.program, platform = program, program.problem.platform
        self.limit = max(platform.memory, 1)
        rates = {kind: platform.rate(kind) for kind in Kind}
        self.common = math.lcm(self.limit, *(rate.numerator for rate in rates.values()))
        self.per_byte = {kind: int(self.common / rate) for kind, rate in rates.items()}
        rows = program.rows
        self.index = {key: row for row, key in enumerate(rows.keys)}
        self.rows = np.array(rows.rows, dtype=np.int64)
        self.columns = np.array(rows.columns, dtype=np.int64)
        self.signs = np.array(rows.values)
        plain = np.array(
            [key[0] not in ("memory", "outputs", "compute", *_LINKS) for key in rows.keys], bool
        )
        self.plain = plain[self.rows]
        self.low = [int(b) if simple else 0 for b, simple in zip(rows.low, plain, strict=True)]

    def bound(self, whole: dict[Key, int], over: int) -> int:
        """Return what multipliers over a denominator prove, in ticks."""
        return self.weighed(whole, over).bound({})

    def weighed(self, whole: dict[Key, int], over: int) -> Weighed:
        """Return the prices of all columns that multipliers over a denominator give."""
        program = self.program
        weights = np.zeros(len(program.rows.keys), dtype=object)
        for key, weight in whole.items():
            weights[self.index[key]] = weight
        prices = np.zeros(len(program.cost), dtype=object)
        chosen = self.plain & (weights[self.rows] != 0).astype(bool)
        moved = self.signs[chosen].astype(np.int64).astype(object) * weights[self.rows[chosen]]
        np.subtract.at(prices, self.columns[chosen], moved)
        constant = sum(a * b for a, b in zip(weights, self.low, strict=True) if a) * self.common
        prices = prices * self.common
        for window in range(program.grid.windows):
            constant += self._weigh_window(window, whole, over, prices)
        for boundary in range(1, program.grid.windows):
            constant += self._weigh_memory(boundary, whole, prices)
        return Weighed(int(constant), prices.tolist(), over * self.common)

    def _weigh_window(self, window: int, whole: dict[Key, int], over: int, prices: Prices) -> int:
        program, known = self.program, self.program.contents
        duplex = program.problem.platform.duplex
        link = [whole.get((family, window, ()), 0) for family in _LINKS]
        out, back = (link[1], link[2]) if duplex else (link[0], link[0])
        runs = over - sum(link)
        for maker, column in program.again[window].items():
            prices[column] += runs * program.network.computations[maker].duration * self.common
        for value, column in program.left[window + 1].items():
            price = out * known.size[value] * self.per_byte[Kind.OFFLOAD]
            prices[column] += price
            if value in program.left[window]:
                prices[program.left[window][value]] -= price
        for value, column in program.back[window].items():
            prices[column] += back * known.size[value] * self.per_byte[Kind.PREFETCH]
        return runs * program.grid.duration(window) * self.common

    def _weigh_memory(self, boundary: int, whole: dict[Key, int], prices: Prices) -> int:
        constant = 0
        for family, most, taken in self.program.memory_rows(boundary):
            weight = whole.get((family, boundary, ()), 0) * (self.common // self.limit)
            constant -= weight * most
            if weight:
                for column, size in taken.items():
                    prices[column] += weight * size
        return constant
