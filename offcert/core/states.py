"""States of values that are changed in place: what each computation finds, changes and makes.

A value that is changed in place goes through states: as it was written, after the first change,
and so on. A copy on the device is in one of them, and every computation reads a value in the state
that the program gives it. A run that changes a value turns a copy from one state into the next;
that copy is then gone as what it was. So with states in place of values, in-place changes need no
case of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.network import Network


@dataclass(frozen=True, slots=True)
class ValueState:
    """A value after some in-place changes."""

    value: int  # A value with memory of its own.
    level: int  # How many computations have changed it.
    size: int  # Bytes.
    maker: int  # The computation that leaves it so; -1 if it is there at the start.


@dataclass(frozen=True, slots=True)
class StatesUsed:
    """The states that a computation takes and leaves, by their numbers."""

    needs: tuple[int, ...]  # States of which a copy must be there.
    makes: tuple[int, ...]  # States of which it writes new copies.
    # States of which it changes a copy in place, and what that becomes.
    turns: tuple[tuple[int, int], ...]

    @property
    def leaves(self) -> tuple[int, ...]:
        """All states of which there is a copy afterwards that was not there before."""
        return (*self.makes, *(after for _, after in self.turns))


def states_of(network: Network) -> tuple[tuple[ValueState, ...], tuple[StatesUsed, ...]]:
    """Return the states that some computation makes or needs, and those that each one uses."""
    numbers: dict[tuple[int, int], int] = {}
    states: list[ValueState] = []

    def number_of(value: int, level: int, maker: int) -> int:
        if (value, level) not in numbers:
            numbers[value, level] = len(states)
            states.append(ValueState(value, level, network.values[value].size, maker))
        return numbers[value, level]

    used = []
    for index, each in enumerate(network.computations):
        needs, turns = [], []
        for value in sorted({network.stored[read] for read in each.reads}):
            changers = network.changers.get(value, ())
            level = len({changer for changer in changers if changer < index})
            # Whoever changes a value precedes who finds it changed, so that state has its number.
            needs.append(number_of(value, level, network.writer[value]))
            if index in changers:
                turns.append((needs[-1], number_of(value, level + 1, index)))
        own = (value for value in each.writes if network.stored[value] == value)
        makes = tuple(number_of(value, 0, index) for value in own)
        used.append(StatesUsed(tuple(needs), makes, tuple(turns)))
    return tuple(states), tuple(used)


def readers_of(states: tuple[ValueState, ...], used: tuple[StatesUsed, ...]) -> list[list[int]]:
    """Return, for each state, the computations that need it."""
    readers: list[list[int]] = [[] for _ in states]
    for index, each in enumerate(used):
        for state in each.needs:
            readers[state].append(index)
    return readers
