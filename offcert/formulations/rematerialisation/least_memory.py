"""Lower bounds on the bytes of any execution, proved: three arguments, found here.

What they say and why: docs/theory/least-memory.md. In short, an execution within some bytes cannot
repeat what does not fit beside what is there anyway; so its results stay, and are there as well.
And while a computation runs first, everything read later has a copy on the device, or elsewhere, or
comes from a writer that runs once more: at any prices, a least cut bounds what that takes. Cuts are
found by SciPy's maximum flow, with capacities scaled to 31 bits and rounded down, so that none is
too large.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from offcert.core.network import Network
from offcert.core.platform import Kind, Link
from offcert.core.result import Bound
from offcert.proofs.kinds.computed import Computed, LeastMemoryCut
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Minimise, Problem, Recompute

# Steps of the search for prices, each of which takes a few least cuts. Arbitrary.
_PRICE_STEPS = 24
# Computations whose cuts are looked at. Arbitrary.
_TURNS = 12


def single_run_bound(problem: Problem) -> Bound:
    """Return the bytes of the run, or the start, that needs most: `least-memory-run`."""
    return proved("least-memory-run", problem.least_memory, Computed())


def kept_bound(
    problem: Problem, upper: int | None = None, seconds: float = math.inf
) -> Bound | None:
    """Return the largest bound by what would have to stay: `least-memory-kept`.

    Some execution takes `upper` bytes; by default that is the peak of the plain one. After
    `seconds` the largest bound so far is returned. None if it says no more than `single_run_bound`,
    or if no network's memory is minimised.
    """
    network = problem.computed
    if network is None or problem.minimise is not Minimise.MEMORY:
        return None
    began = time.monotonic()
    facts = StayingFacts(problem, network)
    low = single_run_bound(problem).value
    first, high = low, network.trace().peak_memory if upper is None else upper
    # What is refuted at some bytes is refuted at fewer.
    while low < high and time.monotonic() - began < seconds:
        middle = (low + high) // 2
        if facts.follow(middle).refuted:
            low = middle + 1
        else:
            high = middle
    return proved("least-memory-kept", low, Computed()) if low > first else None


def cut_bound(
    problem: Problem, known: int, upper: int | None = None, seconds: float = math.inf
) -> Bound | None:
    """Return the largest bound by a cut that is found: `least-memory-cut`.

    Arguments are as for `kept_bound`; None if it says no more than the bound that is `known`, in
    bytes.
    """
    network = problem.computed
    if network is None or problem.minimise is not Minimise.MEMORY:
        return None
    deadline = time.monotonic() + seconds
    facts = StayingFacts(problem, network)
    high = network.trace().peak_memory if upper is None else upper
    best: tuple[int, LeastMemoryCut] | None = None
    for turn in _turns(network):
        if time.monotonic() > deadline:
            break
        found = _best_cut(problem, network, facts, turn, max(known, best[0] if best else 0), high)
        if found is not None:
            best = found
    return proved("least-memory-cut", *best) if best is not None else None


def _turns(network: Network) -> list[int]:
    """Return the computations at which most is live if everything runs once, the worst first."""
    demand = network.trace().demand
    order = sorted(range(len(network)), key=lambda index: -demand[index])
    backward = [i for i, each in enumerate(network.computations) if not each.repeatable]
    turn = backward[:1] + [index - 1 for index in backward[:1] if index]
    spread = order[:: max(1, len(order) // (4 * _TURNS))]
    return list(dict.fromkeys([*turn, *order[:2], *spread]))[:_TURNS]


def _best_cut(
    problem: Problem,
    network: Network,
    facts: StayingFacts,
    turn: int,
    known: int,
    high: int,
) -> tuple[int, LeastMemoryCut] | None:
    """Return the largest bound above what is known that a cut at one computation gives."""
    following = facts.follow(known)
    if following.refuted:
        # The other argument says more already.
        return None
    finder = CutFinder(problem, network, turn, following.last_again)
    chosen = max(_prices(finder, problem), key=finder.bytes_at)
    reached = min(math.ceil(finder.bytes_at(chosen)), high)
    value = _settled(facts, finder, chosen, known, reached)
    return (value, chosen) if value > known else None


def _settled(
    facts: StayingFacts, finder: CutFinder, prices: LeastMemoryCut, low: int, high: int
) -> int:
    """Return the largest value that a cut establishes with what follows from just less.

    In less memory fewer computations can run again, so that a cut says more.
    """
    while low < high:
        middle = (low + high + 1) // 2
        again = facts.follow(middle - 1)
        tighter = CutFinder(finder.problem, finder.network, finder.turn, again.last_again)
        if again.refuted or tighter.bytes_at(prices) > middle - 1:
            low = middle
        else:
            high = middle - 1
    return low


def _prices(finder: CutFinder, problem: Problem) -> list[LeastMemoryCut]:
    """Return prices that are worth trying, the best found by steps along each of them last."""
    free = LeastMemoryCut(computation=finder.turn, unit=1, computing_price=0, moving_price=0)
    if problem.deadline is None:
        return [free]
    tried: dict[LeastMemoryCut, Fraction] = {}

    def value(prices: LeastMemoryCut) -> Fraction:
        if prices not in tried:
            tried[prices] = finder.bytes_at(prices)
        return tried[prices]

    computing, moving = finder.scales()
    choices = [0, *(2**step for step in range(-8, 9))] if problem.offload else [0]
    for step in range(-10, 11):
        for beside in choices[:: 3 if problem.offload else 1]:
            value(finder.prices(computing * Fraction(2) ** step, moving * Fraction(beside)))
    best = max(tried, key=lambda prices: tried[prices])
    names = ("computing_price", "moving_price") if problem.offload else ("computing_price",)
    for shrink in range(1, _PRICE_STEPS // 4):
        factor = 1 + Fraction(1, 2**shrink)
        for more in (factor, 1 / factor):
            for name in names:
                value(replace(best, **{name: int(getattr(best, name) * more)}))
        best = max(tried, key=lambda prices: tried[prices])
    return [free, best]


@dataclass
class Following:
    """Consequences of a memory limit."""

    refuted: bool  # Whether nothing fits.
    # For each computation, the last stage in which it might run again; -1 if there is none.
    last_again: NDArray[np.int64]


class StayingFacts:
    """Values that have to stay within a memory limit, as intervals of stages."""

    def __init__(self, problem: Problem, network: Network) -> None:
        self.network = network
        values, count = network.values, len(network)
        spare = None
        if problem.deadline is not None:
            spare = problem.deadline - network.compute_time
        self.again = [
            each.repeatable
            and problem.recompute is not Recompute.NONE
            and (spare is None or each.duration <= spare)
            for each in network.computations
        ]
        last_readers: list[set[int]] = [set() for _ in values]
        self.touched: list[set[int]] = []
        for index, each in enumerate(network.computations):
            read = {network.stored[value] for value in each.reads}
            for value in read:
                last_readers[value].add(index)
            own = {value for value in each.writes if network.stored[value] == value}
            self.touched.append(read | own)
        self.readers = [sorted(found) for found in last_readers]
        self.staying = [
            value
            for value, each in enumerate(values)
            if each.size and self.readers[value] and not (problem.offload and each.evictable)
        ]
        self.made_by: list[list[int]] = [[] for _ in range(count)]
        self.given = []
        for value in self.staying:
            if network.writer[value] < 0:
                self.given.append(value)
            else:
                self.made_by[network.writer[value]].append(value)

    def follow(self, memory: int) -> Following:
        """Return the values that have to stay, and the last runs again, within a limit in bytes."""
        count = len(self.network)
        own = np.array(self.network.own_memory, np.int64)
        spans: dict[int, list[tuple[int, int]]] = {
            value: [(-1, self.readers[value][-1])] for value in self.given
        }
        last_again = np.full(count, -1, np.int64)
        while True:
            whole = self._sum(spans, 1)
            # All of a round follows from what was known before it: so what is kept only grows.
            before = dict(spans)
            for index in range(count):
                room = memory - own[index] - whole
                for value in self.touched[index]:
                    for made, reader in before.get(value, ()):
                        room[made + 1 : reader + 1] += self.network.values[value].size
                stages = np.full(count, index, np.int64)
                last_again[index] = -1
                if self.again[index]:
                    fits = np.flatnonzero(room[index + 1 :] >= 0) + index + 1
                    stages[fits] = fits
                    if len(fits):
                        last_again[index] = fits[-1]
                latest = np.maximum.accumulate(stages)
                for value in self.made_by[index]:
                    spans[value] = _merged(
                        [(int(latest[reader]), reader) for reader in self.readers[value]]
                    )
            if spans == before:
                break
        during = self._sum(spans, 0) + own
        for index in range(count):
            for value in self.touched[index]:
                if any(max(made, 0) <= index <= reader for made, reader in spans.get(value, ())):
                    during[index] -= self.network.values[value].size
        return Following(bool((during > memory).any()), last_again)

    def _sum(self, spans: dict[int, list[tuple[int, int]]], later: int) -> NDArray[np.int64]:
        """Return, for each stage, the bytes of all spans over it."""
        change = np.zeros(len(self.network) + 2, np.int64)
        for value, rows in spans.items():
            size, counted = self.network.values[value].size, 0
            for made, reader in rows:
                # Where one span ends the next may begin: that stage counts once.
                first = max(made + later, counted)
                if first <= reader:
                    change[first] += size
                    change[reader + 1] -= size
                counted = reader + 1
        return np.cumsum(change)[: len(self.network)]


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return disjoint spans from a making stage to the last reader before it is made again."""
    merged: list[tuple[int, int]] = []
    for made, reader in sorted(spans):
        if merged and made < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], reader)
        else:
            merged.append((made, reader))
    return merged


# The largest capacity of an edge. Given by SciPy: its maximum flow takes 32 bits.
_LARGEST = 2**31 - 1
# Steps in one unit of price, to which prices are rounded (arbitrary), and the numbers of source and
# sink (by definition).
_PRECISION = 2**20
_SOURCE, _SINK = 0, 1


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
        self._present = {network.stored[value] for value in network.computations[turn].reads}
        self._wanted = {
            network.stored[value]
            for each in network.computations[turn + 1 :]
            for value in each.reads
            if network.writer[network.stored[value]] < turn
        }
        rate = [problem.platform.rate(kind) for kind in Kind]
        self._link = [sum(Fraction(value.size) / each for each in rate) for value in values]

    def prices(self, computing: Fraction, moving: Fraction) -> LeastMemoryCut:
        """Return a proof with prices near these, in bytes a tick."""
        return LeastMemoryCut(
            computation=self.turn,
            unit=_PRECISION,
            computing_price=int(computing * _PRECISION),
            moving_price=int(moving * _PRECISION),
        )

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

    def bytes_at(self, prices: LeastMemoryCut) -> Fraction:
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

    def _budget(self, prices: LeastMemoryCut) -> int:
        deadline = self.problem.deadline
        if deadline is None:
            return 0
        ways = 2 if self.problem.platform.link is Link.DUPLEX else 1
        moving = prices.moving_price * ways * deadline if self.problem.offload else 0
        return prices.computing_price * self.spare + moving

    def _arcs(self, prices: LeastMemoryCut) -> list[tuple[int, int, int | None]]:
        """Return arcs with capacities; None is a capacity that no cut can have."""
        network, count = self.network, len(self.network)
        arcs: list[tuple[int, int, int | None]] = []
        for index, may in enumerate(self.again):
            if not may:
                continue
            price = prices.computing_price * network.computations[index].duration
            arcs.append((2 + index, _SINK, price))
            for value in {network.stored[value] for value in network.computations[index].reads}:
                arcs.append((2 + index, 2 + count + value, None))
        for value, each in enumerate(network.values):
            writer = network.writer[value]
            if writer >= self.turn or each.base is not None:
                continue
            if value in self._wanted:
                arcs.append((_SOURCE, 2 + count + value, None))
            bytes_ = 0 if value in self._present else prices.unit * each.size
            if self.problem.offload and each.evictable:
                bytes_ = min(bytes_, int(prices.moving_price * self._link[value]))
            target = 2 + writer if writer >= 0 and self.again[writer] else _SINK
            arcs.append((2 + count + value, target, bytes_))
        return arcs
