"""The least cut of a network with integer capacities, for verification (Dinic's algorithm)."""

from __future__ import annotations


class Flow:
    """Arcs with capacities between numbered nodes.

    Parameters
    ----------
    nodes : int
        How many there are; the first is the source, the second the sink.
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
