"""The grid on which moving and computing are bounded together: cells, contents and room."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from offcert.core.network import Network
from offcert.formulations.combinatorial.relaxations import subset_sums

# Windows of the longest span of which all are there; longer spans end with the execution.
# Arbitrary.
_LONGEST_INNER = 4
# All spans are there if the square of the windows times the number of computations is at most this.
# Arbitrary.
_FEW_SPANS = 40_000


@dataclass(frozen=True)
class Grid:
    """Boundaries, the windows between them, and spans of several windows.

    Boundary 0 is the beginning; then come the moments; the last boundary is the end. Moment ``2o``
    is the start of the first run of computation o, ``2o + 1`` its end.
    """

    network: Network  # The network that is executed.
    moments: tuple[int, ...]  # Increasing, before the last computation's end.
    # Spans of at least two windows, each by its first and last boundary.
    joined: tuple[tuple[int, int], ...]

    @cached_property
    def at(self) -> tuple[int, ...]:
        """For each boundary, its moment; -1 is the beginning."""
        return (-1, *self.moments, 2 * len(self.network) - 1)

    @property
    def windows(self) -> int:
        """Number of windows."""
        return len(self.moments) + 1

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The windows, then those joined."""
        return (*((w, w + 1) for w in range(self.windows)), *self.joined)

    def runs(self, span: int) -> range:
        """Return the computations whose first runs are in a span."""
        begin, end = self.spans[span]
        return range((self.at[begin] + 1) // 2, (self.at[end] + 1) // 2)

    def single(self, window: int) -> bool:
        """Return whether a window is a single first run, so that nothing else can run in it."""
        return self.at[window] % 2 == 0 and self.at[window + 1] == self.at[window] + 1

    def running(self, boundary: int) -> int:
        """Return the computation that runs at a moment."""
        return self.at[boundary] // 2

    def duration(self, window: int) -> int:
        """Return the ticks of the first runs in a window."""
        inside = self.runs(window)
        return self.network.cumulative[inside.stop] - self.network.cumulative[inside.start]


def grid_of(network: Network, moments: Iterable[int], worst: int | None = None) -> Grid:
    """Return the grid of some moments, with the spans that are worth their time.

    Those up to the end, of a few windows, and from or to the worst moment; all where that is not
    many. One that begins with the execution says nothing of values that are made in it.

    Parameters
    ----------
    network : Network
        Any network.
    moments : iterable of int
        In any order.
    worst : int, optional
        The one of these moments where most bytes have to be absent.
    """
    chosen = tuple(sorted(set(moments)))
    last = len(chosen) + 1
    marked = {last} if worst is None else {last, chosen.index(worst) + 1}
    sourced = any(writer < 0 for writer in network.writer)
    every = last * last * len(network) <= _FEW_SPANS
    joined = []
    for begin in range(0 if sourced else 1, last):
        for end in range(begin + 2, last + 1):
            near = end - begin <= _LONGEST_INNER
            if (every or near or marked & {begin, end}) and (begin, end) != (0, last):
                joined.append((begin, end))
    return Grid(network, chosen, tuple(joined))


@dataclass(frozen=True)
class Contents:
    """Each value of a network as something that is made, read, moved and kept by itself."""

    # For each value, the computation that makes it; -1 if it is there at the start.
    maker: tuple[int, ...]
    stored: tuple[int, ...]  # For each value, the one in whose memory it lies.
    size: tuple[int, ...]  # For each value, bytes of that memory.
    movable: tuple[bool, ...]  # For each value, whether that memory may be copied to the host.
    # For each computation, what it has to find, and what there is after it.
    reads: tuple[tuple[int, ...], ...]
    makes: tuple[tuple[int, ...], ...]
    repeatable: tuple[bool, ...]  # For each value, whether its maker may run again.
    # For each value, the last computation that reads it; -1 if none does.
    last_reader: tuple[int, ...]
    # For each value, the last computation before whose first run it can be of any use; -1 if it is
    # of none.
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
        Any network.
    offload : bool
        Whether anything may leave the device.
    """
    values, stored = network.values, network.stored
    # The state in which each memory is, by the value that stands for it.
    now = list(range(len(values)))
    reads, makes = [], [each.writes for each in network.computations]
    for each in network.computations:
        reads.append(tuple(sorted({now[stored[value]] for value in each.reads})))
        for value in each.writes:
            now[stored[value]] = value
    last_reader = [-1] * len(values)
    for number, found in enumerate(reads):
        for value in found:
            last_reader[value] = number
    return Contents(
        tuple(network.writer),
        stored,
        tuple(values[base].size for base in stored),
        tuple(offload and values[base].evictable and values[base].size > 0 for base in stored),
        tuple(reads),
        tuple(makes),
        tuple(maker >= 0 and network.computations[maker].repeatable for maker in network.writer),
        tuple(last_reader),
        _latest(network, reads, makes),
    )


def _latest(
    network: Network, reads: list[tuple[int, ...]], makes: list[tuple[int, ...]]
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


# Units up to which sums of sizes are told apart. By definition: as verification does.
MOST_UNITS = 1 << 22


def least_need(network: Network, known: Contents, computation: int) -> int:
    """Return the bytes that a run takes at least: values read and written, and workspace."""
    each = network.computations[computation]
    beside = each.workspace + network.size_of(each.writes)
    if each.lean is not None:
        beside = min(beside, each.lean)
    return beside + sum(known.size[value] for value in known.reads[computation])


def demands(network: Network, known: Contents) -> list[int]:
    """Return, for each computation, the bytes during its first run if nothing is ever made again.

    That is what it takes itself, and what later first runs read and earlier ones have made.
    """
    change = [0] * (len(network) + 1)
    for value, end in enumerate(known.last_reader):
        if end >= 0:
            change[known.maker[value] + 1] += known.size[value]
            change[end + 1] -= known.size[value]
    live = list(accumulate(change[:-1]))
    found = []
    for number, held in enumerate(live):
        read = sum(known.size[value] for value in known.reads[number])
        found.append(held - read + least_need(network, known, number))
    return found


@dataclass(frozen=True)
class Room:
    """The room that the first run at a moment leaves to all values that it does not use."""

    most: int  # Bytes.
    too_large: frozenset[int] = frozenset()  # Values that cannot be there, as wholes.
    # At the end of a run that takes less if it discards what it makes: bytes for that, and for
    # everything that it does not use.
    kept: int | None = None


def rooms(known: Contents, grid: Grid, memory: int, whole: bool) -> list[Room]:
    """Return the room at each moment of a grid.

    Parameters
    ----------
    known : Contents
        Of the network.
    grid : Grid
        Its moments.
    memory : int
        Bytes on the device.
    whole : bool
        Whether to round down to what whole values take. Only those count that are of use later;
        those that can neither return nor be made again are there.
    """
    found = []
    for boundary in range(1, grid.windows):
        running = grid.running(boundary)
        most = memory - least_need(grid.network, known, running)
        used = {*known.reads[running], *known.makes[running]}
        room = _whole(known, grid, boundary, most, used) if whole else Room(most)
        read = beside_outputs(grid, known, boundary)
        if read is not None:
            each = grid.network.computations[running]
            assert each.lean is not None
            beside = min(each.workspace, each.lean)
            most = memory - beside - sum(known.size[value] for value in known.reads[running])
            kept = _whole(known, grid, boundary, most, read) if whole else Room(most)
            room = replace(room, kept=kept.most)
        found.append(room)
    return found


def beside_outputs(grid: Grid, known: Contents, boundary: int) -> set[int] | None:
    """Return the values a run uses and cannot discard; None if discarding saves it no memory.

    Only at the end of the run: before, the values that it makes only take memory.
    """
    running = grid.running(boundary)
    network = grid.network
    made = known.makes[running]
    outputs = {value for value in made if network.values[value].base is None}
    ends = grid.at[boundary] == 2 * running + 1
    if not ends or not outputs or network.computations[running].lean is None:
        return None
    return {*known.reads[running], *made} - outputs


def _whole(known: Contents, grid: Grid, boundary: int, most: int, used: Collection[int]) -> Room:
    moment = grid.at[boundary]
    held = 0
    others = []
    for value, (maker, latest) in enumerate(zip(known.maker, known.latest, strict=True)):
        if value in used or not 2 * maker < moment <= 2 * latest:
            continue
        lasting = not known.movable[value] and not known.repeatable[value]
        if lasting and 2 * known.last_reader[value] >= moment:
            held += known.size[value]
        else:
            others.append(value)
    if most < held:
        return Room(most)
    fitting = _largest_sum([known.size[value] for value in others], most - held)
    return Room(held + fitting, frozenset(v for v in others if known.size[v] > most - held))


def _largest_sum(sizes: Sequence[int], most: int) -> int:
    """Return the largest sum of some sizes up to a limit; the limit if there are too many sums."""
    unit = math.gcd(*sizes)
    if not unit:
        return 0
    count = most // unit
    if count > MOST_UNITS:
        return most
    reachable = subset_sums((size // unit for size in sizes), count)
    return unit * (reachable.bit_length() - 1)
