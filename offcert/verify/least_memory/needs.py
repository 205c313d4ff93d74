"""Needs of computations, derived from a network's definition, for arguments on least memory."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.network import Network
from offcert.questions.schedule.problem import Problem, Recompute


@dataclass(frozen=True)
class Needs:
    """A network with values that share memory counted as one.

    Attributes
    ----------
    sizes : list of int
        Bytes of each value; 0 of those that lie in the memory of another.
    own : list of int
        For each computation, bytes that no run of it can do without.
    touched : list of set of int
        For each computation, the values that it reads and writes.
    read : list of set of int
        For each computation, the values that it reads.
    writer : tuple of int
        For each value, who writes it; -1 if it is there at the start.
    held : list of bool
        For each value, whether a copy of it that is needed later has to be on the device.
    again : list of bool
        Whether each computation may run again at all, and in time.
    spare : int or None
        Ticks that runs beside the first ones may take together; None for any.
    """

    sizes: list[int]
    own: list[int]
    touched: list[set[int]]
    read: list[set[int]]
    writer: tuple[int, ...]
    held: list[bool]
    again: list[bool]
    spare: int | None


def needs_of(problem: Problem, network: Network) -> Needs:
    """Return sizes, needs and readers of a problem's computations, as the arguments use them."""
    values = network.values

    def stored(numbers: tuple[int, ...]) -> set[int]:
        bases = (values[number].base for number in numbers)
        return {
            number if base is None else base for number, base in zip(numbers, bases, strict=True)
        }

    own, read, touched = [], [], []
    for each in network.computations:
        taken = stored(each.reads)
        made = {number for number in each.writes if values[number].base is None}
        beside = each.workspace + sum(values[number].size for number in made)
        if each.lean is not None:
            # A run that discards something may take less.
            beside = min(beside, each.lean)
        own.append(beside + sum(values[number].size for number in each.reads))
        read.append(taken)
        touched.append(taken | made)
    spare = None
    if problem.deadline is not None:
        spare = problem.deadline - sum(each.duration for each in network.computations)
    return Needs(
        [value.size for value in values],
        own,
        touched,
        read,
        network.writer,
        [not (problem.offload and value.evictable) for value in values],
        [
            each.repeatable
            and problem.recompute is not Recompute.NONE
            and (spare is None or each.duration <= spare)
            for each in network.computations
        ],
        spare,
    )


def at_start(needs: Needs) -> int:
    """Return the bytes of the values that are there at the start and are read at all."""
    used = set().union(*needs.read)
    return sum(
        size
        for number, (size, writer) in enumerate(zip(needs.sizes, needs.writer, strict=True))
        if writer < 0 and number in used
    )
