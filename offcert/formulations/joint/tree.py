"""Cases: a computation runs again in a span, or it does not; each with multipliers of its own.

In the linear program half of a computation may run again, and half of what it makes come back. A
tree of cases, the weakest leaf first, decides that. It is a proof at any time: its bound is that of
its weakest leaf, and a limit only makes it weaker.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from offcert.core.platform import Kind
from offcert.core.trace import LARGEST_INTEGER
from offcert.formulations.joint.program import Count, JointProgram, Key, Solved
from offcert.proofs.joint_document import PLACES, JointCases, JointWeights, Node

Prices = NDArray[np.object_]

# Denominators to which multipliers are rounded, tried in this order. A tick is the unit, so the
# first suits times in nanoseconds. Arbitrary.
_MULTIPLIERS_DENOMINATORS = (2, 60, 5040, 1 << 20, 1 << 30)
_LINKS = ("link", "out", "in")


@dataclass(frozen=True)
class JointBound:
    """A bound and what proves it."""

    value: int  # Ticks.
    cases: JointCases  # For the document of a proof.


def rounded(program: JointProgram, solved: Solved) -> JointBound:
    """Return the bound of simple rationals near to the solver's multipliers.

    Of a few denominators the least one is taken with which the bound, in whole ticks, is the best.
    """
    exact = Exact(program)
    tried = [(over, whole_weights(program, solved, over)) for over in _MULTIPLIERS_DENOMINATORS]
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
    """Round; those of the link come to at most 1 where more can run than what runs first.

    None is larger than a document can hold: smaller multipliers prove less, but nothing wrong.
    """
    lengths: dict[int, int] = {}
    whole: dict[Key, int] = {}
    for key, weight in solved.weights.items():
        family, window, _ = key
        if family == "compute":
            continue
        number = min(round(weight * over), LARGEST_INTEGER)
        if family in _LINKS and not program.grid.single(window):
            number = min(number, over - lengths.get(window, 0))
            lengths[window] = lengths.get(window, 0) + number
        if number > 0:
            whole[key] = number
    return whole


@dataclass(frozen=True)
class Weighed:
    """The makespan weighed by multipliers: a constant, and a price for every column."""

    constant: int  # In ticks times `over`, as the prices.
    prices: list[int]  # By column.
    over: int  # The unit.

    @cached_property
    def cheapest(self) -> int:
        """The constant, and every column at its cheapest value."""
        return self.constant + sum(price for price in self.prices if price < 0)

    def bound(self, counts: Sequence[Count] = ()) -> int:
        """Return the bound in ticks if of some columns so many are 1, the others 0."""
        total = self.cheapest
        for columns, least, most in counts:
            prices = sorted(self.prices[column] for column in columns)
            paying = [price for price in prices if price < 0]
            total += sum(prices[: min(max(len(paying), least), most)]) - sum(paying)
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
        """Return the ticks that multipliers over a denominator prove."""
        return self.weighed(whole, over).bound()

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


# Distance from 0 or 1 within which the linear program has decided a run. Arbitrary.
_DECIDED = 1e-3
# Denominators of the multipliers at a node, tried in this order; nodes are many, so these are few.
# Arbitrary.
_DENOMINATORS = (60, 1 << 20)


@dataclass
class _Node:
    """A case: its decisions, the bound that it proves, and its two parts (0, 1), if any."""

    fixed: dict[int, tuple[int, int]]
    weighed: Weighed
    weights: JointWeights
    bound: int
    amounts: list[float] | None = None
    branch: int = -1
    children: tuple[_Node, ...] = ()


@dataclass(frozen=True)
class Runs:
    """Runs again of which it is decided how many there are: a span, computations, their columns."""

    span: int
    computations: tuple[int, ...]
    columns: tuple[int, ...]

    def node(self, most: int) -> Node:
        """Return the node of two cases: at most so many, and more."""
        if len(self.computations) == 1:
            return self.span, *self.computations
        return self.span, most, *self.computations


class _Growing:
    """A tree that grows where its bound is least."""

    def __init__(
        self, program: JointProgram, deadline: float, by_size: bool, runs: Sequence[Runs]
    ) -> None:
        self.program, self.deadline = program, deadline
        # Measured on ResNet-50, by modules: 2 s for two cases instead of 4.
        self.method = "highs-ds" if by_size else "highs-ipm"
        self.exact = Exact(program)
        spans = program.grid.windows if by_size else len(program.again)
        # Runs again that may be decided.
        self.runs = runs or [
            Runs(span, (computation,), (column,))
            for span, again in enumerate(program.again[:spans])
            for computation, column in again.items()
        ]
        network, known = program.network, program.contents
        self.worth = [each.duration for each in network.computations]
        if by_size:
            # A return takes time by bytes. Of equal ones the last, from which the others follow.
            largest = (max((known.size[v] for v in made), default=0) for made in known.makes)
            self.worth = [size * len(network) + place for place, size in enumerate(largest)]
        self.order = count()
        self.heap: list[tuple[int, int, _Node]] = []

    def counts(self, fixed: dict[int, tuple[int, int]]) -> list[Count]:
        return [Count(self.runs[number].columns, *ends) for number, ends in fixed.items()]

    def solve(self, fixed: dict[int, tuple[int, int]]) -> Solved | None:
        left = self.deadline - time.monotonic()
        return self.program.solve(left, self.method, self.counts(fixed))

    def push(self, node: _Node) -> None:
        heapq.heappush(self.heap, (node.bound, next(self.order), node))

    def adopt(self, node: _Node, solved: Solved | None) -> None:
        """Let a node have the multipliers of its own program, if they are better."""
        if solved is None:
            return
        node.amounts = [float(solved.amounts[list(each.columns)].sum()) for each in self.runs]
        for over in _DENOMINATORS:
            whole = whole_weights(self.program, solved, over)
            weighed = self.exact.weighed(whole, over)
            bound = weighed.bound(self.counts(node.fixed))
            if bound > node.bound or node.weights.over == 0:
                node.weighed, node.bound, node.weights = weighed, bound, listed(whole, over)

    def undecided(self, node: _Node) -> int | None:
        """Return the run to decide next: of those run in part that worth most, nearest a half."""
        assert node.amounts is not None
        scores = []
        for number, (runs, amount) in enumerate(zip(self.runs, node.amounts, strict=True)):
            part = amount - math.floor(amount)
            least, most = node.fixed.get(number, (0, len(runs.columns)))
            if least <= math.floor(amount) < most and _DECIDED < part < 1 - _DECIDED:
                scores.append((min(part, 1 - part) * self.worth[runs.computations[0]], number))
        return max(scores)[1] if scores else None

    def split(self, node: _Node, number: int, target: int) -> bool:
        """Decide about runs of a node; return False if there was no time for it."""
        assert node.amounts is not None
        least, most = node.fixed.get(number, (0, len(self.runs[number].columns)))
        at = math.floor(node.amounts[number])
        children = []
        for ends in ((least, at), (at + 1, most)):
            fixed = {**node.fixed, number: ends}
            bound = node.weighed.bound(self.counts(fixed))
            child = _Node(fixed, node.weighed, node.weights, bound)
            if child.bound < target:
                solved = self.solve(fixed)
                if solved is None:
                    return False
                self.adopt(child, solved)
            children.append(child)
        node.branch, node.children = number, tuple(children)
        for child in children:
            self.push(child)
        return True


def grow(
    program: JointProgram,
    solved: Solved,
    seconds: float,
    target: int | None = None,
    most: int = 400,
    by_size: bool = False,
    runs: Sequence[Runs] = (),
) -> JointBound:
    """Return a tree of cases for a program.

    Parameters
    ----------
    program : JointProgram
        Any program.
    solved : Solved
        Its optimum.
    seconds : float
        Time limit.
    target : int, optional
        More ticks than this are of no use.
    most : int
        How many cases to split.
    by_size : bool
        Whether to decide only what runs in single windows, what makes the largest values first;
        otherwise what runs in any span, the longest first.
    runs : sequence of Runs, optional
        What is counted instead: sets of which no two share a column.
    """
    growing = _Growing(program, time.monotonic() + seconds, by_size, runs)
    enough = 1 << 62 if target is None else target
    root = _Node({}, Weighed(0, [0] * len(program.cost), 1), JointWeights(0, {}), 0)
    growing.adopt(root, solved)
    growing.push(root)
    for _ in range(most):
        bound, _, node = growing.heap[0]
        if bound >= enough or node.amounts is None:
            break
        number = growing.undecided(node)
        if number is None or not growing.split(node, number, enough):
            break
        heapq.heappop(growing.heap)
        # The node itself was the least; its parts are in the heap by now.
    return _written(growing, root)


def _written(growing: _Growing, root: _Node) -> JointBound:
    numbers: dict[int, int] = {}
    multipliers: list[JointWeights] = []
    nodes: list[Node] = []
    least = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.children:
            most = node.children[0].fixed[node.branch][1]
            nodes.append(growing.runs[node.branch].node(most))
            stack += reversed(node.children)
            continue
        if id(node.weights) not in numbers:
            numbers[id(node.weights)] = len(multipliers)
            multipliers.append(node.weights)
        nodes.append(numbers[id(node.weights)])
        least.append(node.bound)
    return JointBound(min(least), JointCases(tuple(multipliers), tuple(nodes)))
