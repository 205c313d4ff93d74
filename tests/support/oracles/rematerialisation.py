"""Brute force over everything that recomputation alone can do on tiny networks.

It shares no code with the expansion of strategies, the checker or any model. A state is how many
computations have run for the first time, and which copies are on the device: of each value how
many, and how many in-place changes each copy has seen. Before every run any copies may be given up.
Dijkstra's algorithm finds the least time in which a memory limit allows the last first run.

More copies are never worse, as they may be given up at no cost; so only largest sets that fit are
followed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, count, product

from offcert.core.network import Network

# A value, how often it has been changed, and whether it may be changed again: not if another copy
# was changed beside it, as it could have left then.
Copy = tuple[int, int, bool]
Copies = tuple[Copy, ...]
# Two copies of the same are of use only if one of them is changed; more have never been.
_MOST_ALIKE = 3


@dataclass(frozen=True)
class _State:
    frontier: int
    copies: Copies


class RematerialisationOracle:
    """Least time and least memory without offloading.

    Parameters
    ----------
    network : Network
        A tiny one.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.size = [value.size for value in network.values]
        self.changers: dict[int, list[int]] = {}
        for index, value in enumerate(network.values):
            if value.base is not None:
                self.changers.setdefault(value.base, []).append(network.writer[index])
        self.needs = [self._needs(index) for index in range(len(network))]
        self.writes = [
            tuple(v for v in each.writes if network.values[v].base is None)
            for each in network.computations
        ]
        read = {value for needs in self.needs for value, _ in needs}
        self.start: Copies = tuple(
            (value, 0, True)
            for value, writer in enumerate(network.writer)
            if writer < 0 and value in read
        )

    def _needs(self, computation: int) -> tuple[tuple[int, int], ...]:
        """Return what a computation reads: values, and how often each has been changed by then."""
        found = set()
        for value in self.network.computations[computation].reads:
            base = self.network.values[value].base
            stored = value if base is None else base
            changers = self.changers.get(stored, [])
            found.add((stored, sum(each < computation for each in changers)))
        return tuple(sorted(found))

    def least_time(self, memory: int) -> tuple[int, list[int]] | None:
        """Return the least time within a memory limit and the runs that take it, or None."""
        if sum(self.size[value] for value, *_ in self.start) > memory:
            return None
        first = _State(0, self.start)
        best = {first: 0}
        parent: dict[_State, tuple[_State, int]] = {}
        ticket = count()
        queue = [(0, next(ticket), first)]
        while queue:
            time, _, state = heapq.heappop(queue)
            if time > best[state]:
                continue
            if state.frontier == len(self.network):
                return time, _path(parent, state)
            for computation, following in self._followers(state, memory):
                reached = time + self.network.computations[computation].duration
                if reached < best.get(following, reached + 1):
                    best[following] = reached
                    parent[following] = (state, computation)
                    heapq.heappush(queue, (reached, next(ticket), following))
        return None

    def least_memory(self, deadline: int | None = None) -> int | None:
        """Return the least memory within which the deadline can be met, or None."""
        if deadline is not None and deadline < self.network.compute_time:
            return None
        low = max(self.network.own_memory)
        high = self.network.trace().peak_memory
        while low < high:
            middle = (low + high) // 2
            found = self.least_time(middle)
            if found is not None and (deadline is None or found[0] <= deadline):
                high = middle
            else:
                low = middle + 1
        return low

    def _followers(self, state: _State, memory: int) -> Iterator[tuple[int, _State]]:
        for index in range(min(state.frontier + 1, len(self.network))):
            again = index < state.frontier
            if again and not self.network.computations[index].repeatable:
                continue
            for taken in self._choices(index, state.copies):
                held = list(state.copies)
                for copy in taken:
                    held.remove(copy)
                for after in self._after(index, taken, held, memory):
                    yield index, _State(state.frontier + (not again), after)

    def _choices(self, index: int, copies: Copies) -> Iterator[Copies]:
        """Yield the copies that a run may read; what it changes must be one that may be."""
        ways = []
        for value, level in self.needs[index]:
            changes = index in self.changers.get(value, ())
            ways.append(
                sorted(
                    {
                        copy
                        for copy in copies
                        if copy[:2] == (value, level) and (copy[2] or not changes)
                    }
                )
            )
        yield from product(*ways)

    def _after(self, index: int, taken: Copies, held: list[Copy], memory: int) -> Iterator[Copies]:
        """Yield what may be there when a computation has run beside what was held."""
        computation = self.network.computations[index]
        read = sum(self.size[value] for value, _ in self.needs[index])
        changed = {value for value, *_ in taken if index in self.changers.get(value, ())}
        turned = [
            (value, level + self.changers.get(value, []).count(index), free)
            for value, level, free in taken
        ]
        writes = self.writes[index]
        modes = [(writes, computation.workspace)]
        if computation.lean is not None:
            modes += [
                (kept, computation.lean)
                for number in range(len(writes))
                for kept in combinations(writes, number)
            ]
        for kept, workspace in modes:
            beside = read + workspace + sum(self.size[value] for value in kept)
            if beside > memory:
                continue
            for chosen in self._largest(self._beside(index, held), memory - beside):
                beside_it = [
                    (value, level, free and not (self.size[value] and value in changed))
                    for value, level, free in chosen
                ]
                made = [(value, 0, True) for value in kept]
                yield self._normal([*beside_it, *turned, *made])

    def _beside(self, index: int, held: list[Copy]) -> list[Copy]:
        """Return what may be there beside: a copy that is changed and cannot leave is alone."""
        changed = {
            value
            for value, _ in self.needs[index]
            if index in self.changers.get(value, ()) and not self.network.values[value].evictable
        }
        return [copy for copy in held if copy[0] not in changed]

    def _largest(self, held: list[Copy], room: int) -> list[Copies]:
        """Return the subsets that fit and are part of no larger one that does."""
        free = [copy for copy in held if self.size[copy[0]] == 0]
        dear = [copy for copy in held if self.size[copy[0]] > 0]
        found: list[Copies] = []
        places: list[set[int]] = []
        for number in range(len(dear), -1, -1):
            for chosen in combinations(range(len(dear)), number):
                if sum(self.size[dear[place][0]] for place in chosen) > room:
                    continue
                if not any(set(chosen) <= larger for larger in places):
                    places.append(set(chosen))
                    found.append((*free, *(dear[place] for place in chosen)))
        return found

    def _normal(self, copies: list[Copy]) -> Copies:
        counts = Counter(copies)
        return tuple(
            copy
            for copy in sorted(counts)
            for _ in range(min(counts[copy], _MOST_ALIKE if copy[0] in self.changers else 1))
        )


def _path(parent: dict[_State, tuple[_State, int]], state: _State) -> list[int]:
    runs = []
    while state in parent:
        state, computation = parent[state]
        runs.append(computation)
    return runs[::-1]


def sweeps(runs: list[int]) -> int:
    """Return how often a computation at most runs again in a stage, or out of order, plus one.

    A stage is what lies between first runs; its runs are cut into rows in the network's order.
    """
    frontier, most, rows, last = 0, 1, 1, -1
    for run in runs:
        if run == frontier:
            most = max(most, rows)
            frontier, rows, last = frontier + 1, 1, -1
            continue
        if run <= last:
            rows += 1
        last = run
    return most
