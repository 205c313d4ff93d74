"""`Contents`: what the memory of values holds, before and after in-place changes.

A value that is changed in place takes the same memory before and after, but who reads it wants it
in one of these states: that in which the program would find it. Each state has a name among the
values: the value itself before all changes, and what the last change made of it after that.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.network import Network


@dataclass(frozen=True)
class Contents:
    """Each value of a network as something that is made, read, moved and kept by itself.

    Attributes
    ----------
    maker : tuple of int
        For each value, the computation that makes it; -1 if it is there at the start.
    stored : tuple of int
        For each value, the one in whose memory it lies.
    size : tuple of int
        For each value, bytes of that memory.
    movable : tuple of bool
        For each value, whether that memory may be copied to the host.
    reads, makes : tuple of tuple of int
        For each computation, what it has to find, and what there is after it.
    repeatable : tuple of bool
        For each value, whether its maker may run again.
    last_reader : tuple of int
        For each value, the last computation that reads it; -1 if none does.
    latest : tuple of int
        For each value, the last computation before whose first run it can be of any use; -1 if it
        is of none.
    """

    maker: tuple[int, ...]
    stored: tuple[int, ...]
    size: tuple[int, ...]
    movable: tuple[bool, ...]
    reads: tuple[tuple[int, ...], ...]
    makes: tuple[tuple[int, ...], ...]
    repeatable: tuple[bool, ...]
    last_reader: tuple[int, ...]
    latest: tuple[int, ...]

    def up_to(self, value: int) -> list[int]:
        """Return the states through which a copy goes until it is in that of a value."""
        last = self.maker[value], value
        same = (v for v, stored in enumerate(self.stored) if stored == self.stored[value])
        return [v for v in same if v == self.stored[v] or (self.maker[v], v) <= last]


def contents(network: Network, offload: bool) -> Contents:
    """Return the contents of a network's values.

    Parameters
    ----------
    network : Network
        Any.
    offload : bool
        Whether anything may leave the device.
    """
    values = network.values
    stored = [index if each.base is None else each.base for index, each in enumerate(values)]
    states = _states(network, stored)
    reads = []
    for number, each in enumerate(network.computations):
        touched = {stored[value] for value in each.reads}
        reads.append(tuple(sorted(_found(network, states[base], number) for base in touched)))
    makes: list[list[int]] = [[] for _ in network.computations]
    for value, maker in enumerate(network.writer):
        if maker >= 0:
            makes[maker].append(value)
    last_reader = [-1] * len(values)
    for number, found in enumerate(reads):
        for value in found:
            last_reader[value] = number
    return Contents(
        tuple(network.writer),
        tuple(stored),
        tuple(values[base].size for base in stored),
        tuple(offload and values[base].evictable and values[base].size > 0 for base in stored),
        tuple(reads),
        tuple(map(tuple, makes)),
        tuple(maker >= 0 and network.computations[maker].repeatable for maker in network.writer),
        tuple(last_reader),
        _latest(network, reads, makes),
    )


def _states(network: Network, stored: list[int]) -> dict[int, list[int]]:
    """Return, for each memory, its states in the order in which the program makes them."""
    states = {base: [base] for base in stored}
    changed = [v for v, base in enumerate(stored) if v != base]
    for value in sorted(changed, key=lambda v: network.writer[v]):
        states[stored[value]].append(value)
    return states


def _found(network: Network, states: list[int], computation: int) -> int:
    """Return the state in which the program gives a value to a computation."""
    return [value for value in states if network.writer[value] < computation][-1]


def _latest(
    network: Network, reads: list[tuple[int, ...]], makes: list[list[int]]
) -> tuple[int, ...]:
    """Return until when each value is of use, from the last reader back.

    To a computation that can run again, what it reads is of use for as long as what it makes is.
    """
    latest = [-1] * len(network.values)
    for number in reversed(range(len(network))):
        last = number
        if network.computations[number].repeatable:
            last = max([last, *(latest[value] for value in makes[number])])
        for value in reads[number]:
            latest[value] = max(latest[value], last)
    return tuple(latest)
