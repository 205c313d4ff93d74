"""Verification of lower bounds on bytes, by three arguments (docs/theory/least-memory.md)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from offcert.core.network import Network
from offcert.core.platform import Kind, Link
from offcert.proofs.kinds.computed import Computed, LeastMemoryCut
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.absence import least_memory
from offcert.verification.execution import Needs, at_start, needs_of
from offcert.verification.limits import Allowance, BeyondLimitsError


class FlowNetwork:
    """Arcs with capacities between numbered nodes.

    The first node is the source, the second the sink.
    """

    SOURCE, SINK = 0, 1

    def __init__(self, nodes: int) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(nodes)]
        self._to: list[int] = []
        self._room: list[int] = []

    def arc(self, tail: int, head: int, capacity: int) -> None:
        """Add an arc."""
        self._arcs[tail].append(len(self._to))
        self._arcs[head].append(len(self._to) + 1)
        self._to += [head, tail]
        self._room += [capacity, 0]

    def least_cut(self) -> int:
        """Return the capacity of a least cut between source and sink."""
        total = 0
        while (levels := self._levels())[self.SINK] >= 0:
            following = [0] * len(self._arcs)
            while pushed := self._push(levels, following):
                total += pushed
        return total

    def _levels(self) -> list[int]:
        levels = [-1] * len(self._arcs)
        levels[self.SOURCE] = 0
        queue = [self.SOURCE]
        for node in queue:
            for arc in self._arcs[node]:
                if self._room[arc] and levels[self._to[arc]] < 0:
                    levels[self._to[arc]] = levels[node] + 1
                    queue.append(self._to[arc])
        return levels

    def _push(self, levels: list[int], following: list[int]) -> int:
        """Find a way to the sink along the levels, and use it up; return what went along."""
        way: list[int] = []
        node = self.SOURCE
        while node != self.SINK:
            arcs = self._arcs[node]
            while following[node] < len(arcs):
                arc = arcs[following[node]]
                if self._room[arc] and levels[self._to[arc]] == levels[node] + 1:
                    break
                following[node] += 1
            else:
                if not way:
                    return 0
                # A dead end: go back, and do not come here again.
                levels[node] = -1
                node = self._to[way.pop() ^ 1]
                continue
            way.append(arc)
            node = self._to[arc]
        pushed = min(self._room[arc] for arc in way)
        for arc in way:
            self._room[arc] -= pushed
            self._room[arc ^ 1] += pushed
        return pushed


def cut_bytes(
    problem: Problem, network: Network, needs: Needs, last_again: list[int], proof: LeastMemoryCut
) -> Fraction:
    """Return bytes that are on the device while the proof's computation runs first.

    `last_again` is, for each computation, the last stage in which it might run again. Without a
    deadline the prices of the proof are 0.
    """
    turn = proof.computation
    priced = problem.deadline is not None
    computing = proof.computing_price if priced else 0
    moving = proof.moving_price if priced else 0
    graph = _graph(problem, network, needs, last_again, proof, computing, moving)
    budget = 0
    if problem.deadline is not None and needs.spare is not None:
        ways = 2 if problem.platform.link is Link.DUPLEX else 1
        budget = computing * needs.spare
        if problem.offload:
            budget += moving * ways * problem.deadline
    return needs.own[turn] + Fraction(graph.least_cut() - budget, proof.unit)


def _graph(
    problem: Problem,
    network: Network,
    needs: Needs,
    last_again: list[int],
    proof: LeastMemoryCut,
    computing: int,
    moving: int,
) -> FlowNetwork:
    """Return the graph: values that are needed, and computations that run again, are behind S."""
    turn, count = proof.computation, len(network)
    graph = FlowNetwork(2 + count + len(needs.sizes))
    # What makes a cut as dear as nothing else does.
    never = (
        1
        + sum(needs.sizes) * proof.unit
        + computing * sum(each.duration for each in network.computations)
    )

    def value_node(value: int) -> int:
        return 2 + count + value

    wanted: set[int] = set()
    for reader in range(turn + 1, count):
        wanted |= needs.read[reader]
    for computation in range(turn):
        again = last_again[computation] > turn
        price = computing * network.computations[computation].duration if again else never
        graph.arc(2 + computation, FlowNetwork.SINK, price)
        for value in needs.read[computation] if again else ():
            graph.arc(2 + computation, value_node(value), never)
    for value, size in enumerate(needs.sizes):
        writer = needs.writer[value]
        if writer >= turn:
            continue
        if value in wanted:
            graph.arc(FlowNetwork.SOURCE, value_node(value), never)
        bytes_ = 0 if value in needs.touched[turn] else proof.unit * size
        if not needs.held[value]:
            link = sum(Fraction(size) / problem.platform.rate(kind) for kind in Kind)
            bytes_ = min(bytes_, int(moving * link))
        graph.arc(value_node(value), FlowNetwork.SINK if writer < 0 else 2 + writer, bytes_)
    return graph


class KeptValues:
    """Consequences of a memory limit: the values that have to be kept.

    ``refuted`` says whether no execution is within the limit of `memory` bytes, and ``last_again``,
    for each computation, the last stage in which it might run again; -1 if there is none.
    """

    def __init__(self, network: Network, needs: Needs, memory: int, allowance: Allowance) -> None:
        self._network, self._needs, self._memory = network, needs, memory
        count = len(network)
        if 2 * count * len(needs.sizes) > allowance.limits.memory:
            raise BeyondLimitsError(f"{count} computations take too much memory")
        self._readers = _all_readers(network)
        self.last_again = [-1] * count
        # Of what each value is kept for: the stages throughout which it stays, and before them the
        # stage during whose first run it is there already.
        self._rows: dict[int, NDArray[np.bool_]] = {}
        self._during: dict[int, NDArray[np.bool_]] = {}
        self._whole = np.zeros(count, np.int64)
        self._first = np.zeros(count, np.int64)
        while self._round():
            allowance.require_time()
        self.refuted = any(self._overfull(index) for index in range(count))

    def _beside(self, computation: int) -> NDArray[np.int64]:
        """Return, for each stage, bytes while a computation runs again in it."""
        taken = self._whole + self._needs.own[computation]
        for value in self._needs.touched[computation]:
            if value in self._rows:
                taken = taken - self._needs.sizes[value] * self._rows[value]
        return taken

    def _overfull(self, computation: int) -> bool:
        taken = int(self._first[computation]) + self._needs.own[computation]
        for value in self._needs.touched[computation]:
            if value in self._during and self._during[value][computation]:
                taken -= self._needs.sizes[value]
        return taken > self._memory

    def _round(self) -> bool:
        """Conclude once from the facts so far; return whether there are more than before."""
        more = False
        count = len(self._network)
        last = [self._last_stages(index) for index in range(count)]
        for value, size in enumerate(self._needs.sizes):
            if not size or not self._needs.held[value]:
                continue
            whole = np.zeros(count, bool)
            during = np.zeros(count, bool)
            writer = self._needs.writer[value]
            for reader in self._readers[value]:
                made = -1 if writer < 0 else int(last[writer][reader])
                whole[made + 1 : reader + 1] = True
                during[max(made, 0) : reader + 1] = True
            more = more or value not in self._rows or bool((self._rows[value] != whole).any())
            self._rows[value], self._during[value] = whole, during
        self._whole[:] = self._first[:] = 0
        for value, size in enumerate(self._needs.sizes):
            if value in self._rows:
                self._whole += size * self._rows[value]
                self._first += size * self._during[value]
        return more

    def _last_stages(self, computation: int) -> NDArray[np.int64]:
        """Return, for each stage, the last one up to it in which a computation may have run."""
        count = len(self._network)
        stages = np.arange(count)
        may = np.zeros(count, bool)
        if self._needs.again[computation]:
            may = (self._beside(computation) <= self._memory) & (stages > computation)
        again = stages[may]
        self.last_again[computation] = int(again[-1]) if len(again) else -1
        return np.maximum.accumulate(np.where(may, stages, computation))


def _all_readers(network: Network) -> list[list[int]]:
    """Return, for each value, who reads it or what was made of it in place."""
    found: list[set[int]] = [set(readers) for readers in network.readers]
    for number, value in enumerate(network.values):
        if value.base is not None:
            found[value.base] |= found[number]
    return [sorted(readers) for readers in found]


NO_NETWORK = "the field value rests on a network, and the problem holds a trace"


def single_run(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
    """Return None if this is what one run, or the start, needs at least, or the fault."""
    network = problem.computed
    if network is None or problem.recompute is Recompute.NONE:
        found, _ = least_memory(problem)
    else:
        needs = needs_of(problem, network)
        found = max(at_start(needs), *needs.own)
    if value == found:
        return None
    return f"the document says {value}, but the computation gives {found}"


def kept(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
    """Return None if the values that would have to stay refute any lower value, or the fault."""
    network = problem.computed
    if network is None:
        return NO_NETWORK
    if KeptValues(network, needs_of(problem, network), value - 1, allowance).refuted:
        return None
    return f"the field value says {value}, and what has to be kept does not refute less"


def cut(problem: Problem, value: int, proof: LeastMemoryCut, allowance: Allowance) -> str | None:
    """Return None if these values and a cut refute any lower value, or the fault."""
    network = problem.computed
    if network is None:
        return NO_NETWORK
    fault = _misplaced(network, proof)
    if fault is not None:
        return fault
    needs = needs_of(problem, network)
    known = KeptValues(network, needs, value - 1, allowance)
    allowance.require_time()
    if known.refuted:
        return None
    found = cut_bytes(problem, network, needs, known.last_again, proof)
    if found > value - 1:
        return None
    return (
        f"details.computation {proof.computation} and its prices establish {float(found):g} bytes "
        f"where {value} are claimed"
    )


def _misplaced(network: Network, proof: LeastMemoryCut) -> str | None:
    if proof.computation < len(network):
        return None
    return (
        f"details.computation must be below the number of computations, {len(network)}, "
        f"not {proof.computation}"
    )
