"""Networks as graphs of tensors, and what is stored there as a strategy for the network.

The papers' graphs have the tensors of the forward pass as vertices. Here a vertex is everything
that is made, changed in place, and lost together, so that whatever is stored or computed again can
be so in the network.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.questions.selection.graph import CheckpointGraph, GraphSelection


@dataclass(frozen=True)
class NetworkGraph:
    """The forward pass of a network as a graph.

    Source and target are vertices of their own, but for a target that is the only vertex nothing
    reads. For each vertex stand the computations that make it, in their order: a computation with
    all that it writes, and whatever changes this in place.
    """

    network: Network
    graph: CheckpointGraph
    computations: tuple[tuple[int, ...], ...]

    def strategy(self, selection: GraphSelection) -> Strategy:
        """Return the strategy that keeps stored tensors and computes components again.

        In the first run nothing else stays for the backward pass. When this first needs something
        of a component, all of the component that it needs runs again, in the network's order; what
        stays then is lost with its last reader. The backward pass of a component begins when all
        that can run again, and is computed from the component, has run once: what cannot run again
        and comes before reads what the first run made.
        """
        return Unrolling(self, selection).strategy()

    def live_bytes(self, selection: GraphSelection) -> int:
        """Return the most bytes that are live at once under `strategy`: what the runtime counts.

        Other than the model's objective it counts gradients, workspaces, the ends, and tensors of
        the forward pass on their way, and it does not count what is lost already.
        """
        return self.strategy(selection).expand(self.network).trace.peak_memory


def graph_of(network: Network) -> NetworkGraph:
    """Return the graph of the computations of a network that may run again.

    What may not run again because of a change in place that cannot be made again is no part of it,
    nor what must run again together with that: it is kept.
    """
    groups = Groups(network).groups()
    if not groups:
        raise InputError("the network has no computation that writes something and may run again")
    group_of = {computation: index for index, group in enumerate(groups) for computation in group}
    edges = set()
    starts = set()
    for index, group in enumerate(groups):
        writers = {network.writer[v] for c in group for v in network.computations[c].reads}
        before = {group_of[writer] for writer in writers if writer in group_of} - {index}
        edges |= {(tail + 1, index + 1) for tail in before}
        if not before or -1 in writers:
            starts.add(index + 1)
    tails = {tail for tail, _ in edges}
    ends = [vertex for vertex in range(1, len(groups) + 1) if vertex not in tails]
    made = [network.size_of(each.writes) for each in network.computations]
    sizes = [0] + [sum(made[c] for c in group) for group in groups]
    names = ["start"] + [network.computations[group[0]].name for group in groups]
    computations = [(), *groups]
    # The last group is read by none: each reads only those before it.
    if len(ends) > 1:
        edges |= {(vertex, len(groups) + 1) for vertex in ends}
        sizes.append(0)
        names.append("end")
        computations.append(())
    edges |= {(0, vertex) for vertex in starts}
    return NetworkGraph(network, CheckpointGraph(sizes, edges, names), tuple(computations))


class Groups:
    """Joins computations that must be stored or run again together."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.leader = list(range(len(network)))

    def groups(self) -> list[tuple[int, ...]]:
        """Return groups in an order in which each reads only those before it."""
        import networkx

        members = [
            index
            for index, each in enumerate(self.network.computations)
            if each.repeatable and each.writes
        ]
        for index in members:
            for writer in self._changed(index):
                if writer >= 0 and self.network.computations[writer].repeatable:
                    self._join(index, writer)
        lasting = {self._of(index) for index in members if self.lasts(index)}
        members = [index for index in members if self._of(index) not in lasting]
        again = set(members)
        flow = networkx.DiGraph()
        flow.add_nodes_from(sorted({self._of(index) for index in members}))
        for index in members:
            for value in self.network.computations[index].reads:
                writer = self.network.writer[value]
                if writer in again:
                    flow.add_edge(self._of(writer), self._of(index))
        # A change that waits for a reader of what it changes makes a cycle: all of it is one.
        whole = networkx.condensation(flow)
        joined: dict[int, list[int]] = {node: [] for node in whole}
        for index in members:
            joined[whole.graph["mapping"][self._of(index)]].append(index)
        order = networkx.lexicographical_topological_sort(whole, key=lambda node: joined[node][0])
        return [tuple(joined[node]) for node in order]

    def _changed(self, index: int) -> dict[int, list[int]]:
        """Return the computations that change memory which a computation uses before that.

        They are given by the first writer of that memory, -1 if nobody writes it.
        """
        found: dict[int, list[int]] = {}
        computation = self.network.computations[index]
        for value in (*computation.reads, *computation.writes):
            stored = self.network.stored[value]
            changers = self.network.changers.get(stored, [])
            if any(changer >= index for changer in changers):
                found.setdefault(self.network.writer[stored], []).extend(changers)
        return found

    def lasts(self, index: int) -> bool:
        """Whether a computation is tied to a change in place that cannot be made again."""
        return any(
            writer < 0 or not all(self.network.computations[c].repeatable for c in (writer, *rest))
            for writer, rest in self._changed(index).items()
        )

    def _of(self, index: int) -> int:
        while self.leader[index] != index:
            index = self.leader[index]
        return index

    def _join(self, one: int, other: int) -> None:
        first, second = sorted((self._of(one), self._of(other)))
        self.leader[second] = first


class Unrolling:
    """Goes through the backward pass, and runs components again when they are needed."""

    def __init__(self, made: NetworkGraph, selection: GraphSelection) -> None:
        self.network = made.network
        self.parts = [
            sorted(c for vertex in part for c in made.computations[vertex])
            for part in selection.components
        ]
        self.part_of = {c: index for index, part in enumerate(self.parts) for c in part}
        latest = self.latest_readers()
        self.ends = [max((latest[c] for c in part), default=-1) for part in self.parts]
        self.needed = {
            value
            for computation in self.network.computations
            if not computation.repeatable
            for value in computation.reads
        }

    def strategy(self) -> Strategy:
        """Return the order in which everything runs."""
        runs: list[int] = []
        waiting = set(range(len(self.parts)))
        for index, computation in enumerate(self.network.computations):
            if not computation.repeatable:
                needed = {self._part(value) for value in computation.reads} & waiting
                over = {part for part in needed if self.ends[part] < index}
                for part in sorted(over, reverse=True):
                    runs += self._again(part)
                waiting -= over
            runs.append(index)
        return Strategy(runs).without_unread(self.network)

    def latest_readers(self) -> list[int]:
        """Return for each computation the last repeatable one that is computed from it."""
        latest = [-1] * len(self.network)
        for index in range(len(self.network) - 1, -1, -1):
            computation = self.network.computations[index]
            if computation.repeatable:
                latest[index] = max(latest[index], index)
            for value in computation.reads:
                writer = self.network.writer[value]
                if writer >= 0:
                    latest[writer] = max(latest[writer], latest[index])
        return latest

    def _part(self, value: int) -> int:
        """Return the component that writes a value, or -1."""
        return self.part_of.get(self.network.writer[value], -1)

    def _again(self, part: int) -> list[int]:
        """Return the computations of a component that run again for the backward pass."""
        needed = set(self.needed)
        found: set[int] = set()
        size = -1
        # What is made again is changed in place again, which may need more.
        while size < len(found):
            size = len(found)
            for index in reversed(self.parts[part]):
                computation = self.network.computations[index]
                stored = {self.network.values[value].base for value in computation.writes}
                if needed.intersection(computation.writes) or needed & stored:
                    found.add(index)
                    needed.update(computation.reads)
        return sorted(found)
