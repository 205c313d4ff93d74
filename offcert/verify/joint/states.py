"""What executions of a network make, find and keep, for verification: from its definition alone.

A run reads the memory of a value in the state in which the program would have it by then: after
all in-place changes by computations before it. So such memory is one thing after another. Each
state goes by the name of a value: the one that was stored, or what the last change made of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from offcert.core.network import Network


class States:
    """The states of all memory that values take.

    Parameters
    ----------
    network : Network
        Any.
    offload : bool
        Whether anything may be copied to the host.
    """

    def __init__(self, network: Network, offload: bool) -> None:
        self.network = network
        values = network.values
        self.memory_of = [v if each.base is None else each.base for v, each in enumerate(values)]
        self.size = [values[memory].size for memory in self.memory_of]
        self.can_leave = [offload and values[memory].evictable for memory in self.memory_of]
        self.made_by = [-1] * len(values)
        for number, computation in enumerate(network.computations):
            for value in computation.writes:
                self.made_by[value] = number
        self.makes = [frozenset(computation.writes) for computation in network.computations]
        self.states: dict[int, list[int]] = {}
        for value, memory in enumerate(self.memory_of):
            if value == memory:
                self.states[memory] = [value]
        changes = [(self.made_by[v], v) for v, each in enumerate(values) if each.base is not None]
        for _, value in sorted(changes):
            self.states[self.memory_of[value]].append(value)
        # What begins a copy that may come to be in this state: it may leave from then on.
        self.begun_by = [self.made_by[memory] for memory in self.memory_of]
        self.found = [self._found(number) for number in range(len(network))]
        self.last_reader = [-1] * len(values)
        # Before which first run it can still be of use: also to make again what is of use.
        self.last_use = [-1] * len(values)
        for number in reversed(range(len(network))):
            last = number
            if self.repeatable(number):
                last = max([number, *(self.last_use[value] for value in self.makes[number])])
            for value in self.found[number]:
                self.last_reader[value] = max(self.last_reader[value], number)
                self.last_use[value] = max(self.last_use[value], last)

    def before(self, value: int, moment: int) -> list[int]:
        """Return the states in which a copy may be at a moment that is in this one then or later.

        A copy that will be changed in place is of use until then.
        """
        states = self.states[self.memory_of[value]]
        return [
            state
            for state in states[: states.index(value) + 1]
            if 2 * self.made_by[state] + 1 <= moment
            and (state == value or 2 * self.last_use[state] >= moment)
        ]

    def _found(self, number: int) -> frozenset[int]:
        """Return the states that a run of a computation has to find."""
        found = set()
        for value in self.network.computations[number].reads:
            states = self.states[self.memory_of[value]]
            changes = [self.made_by[state] for state in states[1:]]
            found.add(states[bisect_left(changes, number)])
        return frozenset(found)

    def repeatable(self, number: int) -> bool:
        """Return whether a computation may run again."""
        return number >= 0 and self.network.computations[number].repeatable

    def needed(self, computations: Iterable[int]) -> frozenset[int]:
        """Return the states that some computations have to find."""
        return frozenset().union(*(self.found[number] for number in computations))

    def least_memory(self, number: int) -> int:
        """Return the bytes that a run of a computation takes at least, all else absent."""
        computation = self.network.computations[number]
        written = sum(self.network.values[value].size for value in computation.writes)
        beside = written + computation.workspace
        if computation.lean is not None:
            beside = min(beside, computation.lean)
        return beside + sum(self.size[state] for state in self.found[number])

    def discardable(self, number: int) -> frozenset[int]:
        """Return what a run may discard in order to take less memory."""
        if self.network.computations[number].lean is None:
            return frozenset()
        return frozenset(v for v in self.makes[number] if self.memory_of[v] == v)

    def least_beside_outputs(self, number: int) -> int:
        """Return the bytes that such a run takes at least beside what it makes and keeps.

        If it keeps everything, its workspace; if it discards anything, its lean workspace.
        """
        computation = self.network.computations[number]
        beside = computation.workspace
        if computation.lean is not None:
            beside = min(beside, computation.lean)
        return beside + sum(self.size[state] for state in self.found[number])
