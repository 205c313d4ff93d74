"""Windows of time between moments of first runs, and the room that memory leaves at each moment."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from offcert.core.errors import InputError
from offcert.core.network import Network


class Cuts:
    """Boundaries of windows, and spans between any two boundaries.

    `moments` are the start (``2o``) and the end (``2o + 1``) of first runs o, increasing; `joined`
    the spans of several windows, by their boundaries: the beginning is 0, the end comes last.
    """

    def __init__(
        self, moments: Sequence[int], joined: Sequence[Sequence[int]], computations: int
    ) -> None:
        self.end = 2 * computations - 1
        for index, moment in enumerate(moments):
            if moment >= self.end:
                place = f"details.moments[{index}]"
                raise InputError(f"{place} must be below {self.end}, not {moment}")
        for index, (one, two) in enumerate(pairwise(moments)):
            if two <= one:
                raise InputError(f"details.moments[{index + 1}] must be above {one}, not {two}")
        # The moment of each boundary; the beginning is before all.
        self.moment = [-1, *moments, self.end]
        self.windows = len(moments) + 1
        self.spans = [(window, window + 1) for window in range(self.windows)]
        for index, span in enumerate(joined):
            if len(span) != 2 or not span[0] + 2 <= span[1] <= self.windows:
                raise InputError(
                    f"details.spans[{index}] must be two boundaries, at most {self.windows}, with "
                    f"another one between them, not {list(span)}"
                )
            self.spans.append((span[0], span[1]))

    def made(self, maker: int, boundary: int) -> bool:
        """Return whether the first run of a computation is over at a boundary; -1 always is."""
        return 2 * maker + 1 <= self.moment[boundary]

    def over(self, maker: int, boundary: int) -> bool:
        """Return whether time may have passed since the first run of a computation."""
        return 2 * maker + 1 < self.moment[boundary]

    def known(self, maker: int, span: int) -> bool:
        """Return whether the first run of a computation is over when a span begins."""
        return self.made(maker, self.spans[span][0])

    def first_runs(self, span: int) -> range:
        """Return the computations whose first runs lie in a span."""
        begin, end = (self.moment[boundary] for boundary in self.spans[span])
        return range((begin + 1) // 2, (end + 1) // 2)

    def single(self, window: int) -> bool:
        """Return whether a window is one first run, from its start to its end."""
        begin, end = self.moment[window], self.moment[window + 1]
        return begin % 2 == 0 and end == begin + 1

    def running(self, boundary: int) -> int:
        """Return the computation that runs at a boundary that is a moment."""
        return self.moment[boundary] // 2

    def ends(self, boundary: int) -> bool:
        """Return whether a boundary that is a moment is the end of a first run."""
        return self.moment[boundary] % 2 == 1


class States:
    """The states of each piece of memory: the values that in-place changes have made of it.

    Values may be copied to the host if `offload` says so.
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
        """Return the values made by a run that it may discard in order to take less memory."""
        if self.network.computations[number].lean is None:
            return frozenset()
        return frozenset(v for v in self.makes[number] if self.memory_of[v] == v)

    def least_beside_outputs(self, number: int) -> int:
        """Return the least bytes that a run takes beside the values that it makes and keeps.

        If it keeps everything, its workspace; if it discards anything, its lean workspace.
        """
        computation = self.network.computations[number]
        beside = computation.workspace
        if computation.lean is not None:
            beside = min(beside, computation.lean)
        return beside + sum(self.size[state] for state in self.found[number])


# Units up to which sums of sizes are told apart; where there are more, they are dense. By
# definition: finders keep to it.
MOST_UNITS = 1 << 22


@dataclass(frozen=True)
class Room:
    """The room that a first run leaves, at one of its moments, to values that it does not use."""

    most: int  # Bytes
    absent: frozenset[int] = frozenset()  # States that cannot be present, as they are too large
    # At the end of a run that takes less memory if it discards values that it makes: bytes for
    # those that are kept, and for the values that it does not use.
    kept: int | None = None


def rooms(states: States, cuts: Cuts, memory: int, whole: bool) -> list[Room]:
    """Return the room at each moment.

    If a copy takes all of its memory or none (`whole`), what is present, and of use later, is a set
    of whole values: those that are needed and can neither return nor be made again, and some
    others.
    """
    found = []
    for boundary in range(1, cuts.windows):
        running = cuts.running(boundary)
        most = memory - states.least_memory(running)
        used = states.found[running] | states.makes[running]
        room = _whole(states, cuts, boundary, most, used) if whole else Room(most)
        kept = None
        if cuts.ends(boundary) and states.discardable(running):
            most = memory - states.least_beside_outputs(running)
            used -= states.discardable(running)
            kept = (_whole(states, cuts, boundary, most, used) if whole else Room(most)).most
        found.append(Room(room.most, room.absent, kept))
    return found


def _whole(states: States, cuts: Cuts, boundary: int, most: int, used: frozenset[int]) -> Room:
    moment = cuts.moment[boundary]
    forced, others = 0, []
    for value, maker in enumerate(states.made_by):
        if value in used or not cuts.made(maker, boundary) or 2 * states.last_use[value] < moment:
            continue
        kept = not states.can_leave[value] and not states.repeatable(maker)
        if kept and 2 * states.last_reader[value] >= moment:
            forced += states.size[value]
        else:
            others.append(value)
    rest = most - forced
    if rest < 0:
        return Room(most)
    sizes = [states.size[value] for value in others]
    absent = frozenset(value for value in others if states.size[value] > rest)
    return Room(forced + largest_sum(sizes, rest), absent)


def largest_sum(sizes: list[int], most: int) -> int:
    """Return the largest sum of some of the sizes that is at most `most`; or `most`, which is more.

    The latter where there are too many sums to tell apart.
    """
    unit = math.gcd(*sizes)
    if unit == 0:
        return 0
    units = most // unit
    if units > MOST_UNITS:
        return most
    mask = (1 << (units + 1)) - 1
    sums = 1
    for size in sizes:
        sums |= (sums << (size // unit)) & mask
    return unit * (sums.bit_length() - 1)
