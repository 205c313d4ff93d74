"""Least cuts of what has to be there while a computation runs first, by SciPy's maximum flow.

Capacities are scaled to 31 bits and rounded down, so that a cut found is never too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from offcert.core.network import Network
from offcert.core.platform import Kind, Link
from offcert.proofs.kinds.computed import LeastMemoryCut
from offcert.questions.schedule.problem import Problem

# The largest capacity of an edge. Given by SciPy: its maximum flow takes 32 bits.
_LARGEST = 2**31 - 1
# Steps in one unit of price, to which prices are rounded (arbitrary), and the numbers of source and
# sink (by definition).
_PRECISION = 2**20
_SOURCE, _SINK = 0, 1


@dataclass(frozen=True)
class Prices:
    """Bytes, times `unit`, for a tick of running again and a tick of the link."""

    unit: int
    computing: int
    moving: int

    @classmethod
    def of(cls, computing: Fraction, moving: Fraction) -> Prices:
        """Return prices near these, in bytes a tick."""
        return cls(_PRECISION, int(computing * _PRECISION), int(moving * _PRECISION))

    def scaled(self, computing: Fraction | int, moving: Fraction | int) -> Prices:
        """Return prices that are higher by some factors."""
        return Prices(self.unit, int(self.computing * computing), int(self.moving * moving))

    def proof(self, turn: int) -> LeastMemoryCut:
        """Return the proof with these prices at one computation."""
        return LeastMemoryCut(
            computation=turn,
            unit=self.unit,
            computing_price=self.computing,
            moving_price=self.moving,
        )


class CutFinder:
    """The graph of one computation, for any prices.

    Bytes are counted during the first run of computation `turn`. `last_again` says of each
    computation in which stage it might run again at last.
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        turn: int,
        last_again: Sequence[int] | NDArray[np.int64],
    ) -> None:
        self.problem, self.network, self.turn = problem, network, turn
        self.spare = 0
        if problem.deadline is not None:
            self.spare = problem.deadline - network.compute_time
        values, count = network.values, len(network)
        self.again = [index < turn and last_again[index] > turn for index in range(count)]
        self._beneath = [
            number if value.base is None else value.base for number, value in enumerate(values)
        ]
        self._present = {self._beneath[value] for value in network.computations[turn].reads}
        self._wanted = {
            self._beneath[value]
            for each in network.computations[turn + 1 :]
            for value in each.reads
            if network.writer[self._beneath[value]] < turn
        }
        rate = [problem.platform.rate(kind) for kind in Kind]
        self._link = [sum(Fraction(value.size) / each for each in rate) for value in values]

    def with_again(self, last_again: Sequence[int] | NDArray[np.int64]) -> CutFinder:
        """Return the same for other computations that may run again."""
        return CutFinder(self.problem, self.network, self.turn, last_again)

    def scales(self) -> tuple[Fraction, Fraction]:
        """Return bytes a tick of running again, and of the link, at which both matter."""
        wanted = sum(self.network.values[value].size for value in self._wanted)
        again = sum(
            each.duration
            for each, may in zip(self.network.computations, self.again, strict=True)
            if may
        )
        link = sum((self._link[value] for value in self._wanted), Fraction(0))
        return Fraction(wanted, max(1, again)), wanted / link if link else Fraction(0)

    def bytes_at(self, prices: Prices) -> Fraction:
        """Return bytes that are certainly there at some prices."""
        arcs = self._arcs(prices)
        total = sum(capacity for _, _, capacity in arcs if capacity is not None)
        scale = max(1, -(-total // (_LARGEST // 4)))
        tails = np.array([arc[0] for arc in arcs], np.int32)
        heads = np.array([arc[1] for arc in arcs], np.int32)
        room = [_LARGEST if each is None else each // scale for _, _, each in arcs]
        nodes = 2 + len(self.network) + len(self.network.values)
        graph = csr_array((np.array(room, np.int32), (tails, heads)), shape=(nodes, nodes))
        cut = 0
        if len(arcs):
            cut = int(maximum_flow(graph, _SOURCE, _SINK).flow_value) * scale
        own = self.network.own_memory[self.turn]
        return own + Fraction(cut - self._budget(prices), prices.unit)

    def _budget(self, prices: Prices) -> int:
        deadline = self.problem.deadline
        if deadline is None:
            return 0
        ways = 2 if self.problem.platform.link is Link.DUPLEX else 1
        moving = prices.moving * ways * deadline if self.problem.offload else 0
        return prices.computing * self.spare + moving

    def _arcs(self, prices: Prices) -> list[tuple[int, int, int | None]]:
        """Return arcs with capacities; None is a capacity that no cut can have."""
        network, count = self.network, len(self.network)
        arcs: list[tuple[int, int, int | None]] = []
        for index, may in enumerate(self.again):
            if not may:
                continue
            price = prices.computing * network.computations[index].duration
            arcs.append((2 + index, _SINK, price))
            for value in {self._beneath[value] for value in network.computations[index].reads}:
                arcs.append((2 + index, 2 + count + value, None))
        for value, each in enumerate(network.values):
            writer = network.writer[value]
            if writer >= self.turn or each.base is not None:
                continue
            if value in self._wanted:
                arcs.append((_SOURCE, 2 + count + value, None))
            bytes_ = 0 if value in self._present else prices.unit * each.size
            if self.problem.offload and each.evictable:
                bytes_ = min(bytes_, int(prices.moving * self._link[value]))
            target = 2 + writer if writer >= 0 and self.again[writer] else _SINK
            arcs.append((2 + count + value, target, bytes_))
        return arcs
