"""What runs take at least, and what they leave to everything that they do not use."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from offcert.core.network import Network
from offcert.formulations.joint.contents import Contents
from offcert.formulations.joint.grid import Grid

# Sums of sizes are told apart up to this number of units, as verification does.
_MOST_UNITS = 1 << 22


def least_need(network: Network, known: Contents, computation: int) -> int:
    """Return the bytes that a run takes at least: what it reads, writes, and its workspace."""
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
    """What the first run at a moment leaves to everything that it does not use.

    Attributes
    ----------
    most : int
        Bytes.
    too_large : frozenset of int
        Values that cannot be there, as wholes.
    kept : int or None
        At the end of a run that takes less if it discards what it makes: bytes for that, and for
        everything that it does not use.
    """

    most: int
    too_large: frozenset[int] = frozenset()
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
    """Return what a run uses that it cannot discard; None if it cannot take less by discarding.

    Only at its end: what it makes is there before only in that it takes memory.
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
    if count > _MOST_UNITS:
        return most
    reachable = 1
    for size in sizes:
        reachable |= reachable << (size // unit)
        reachable &= (2 << count) - 1
    return unit * (reachable.bit_length() - 1)
