"""How many bytes what a first run does not use may take at its moments, for verification."""

from __future__ import annotations

import math
from dataclasses import dataclass

from offcert.verify.joint.grid import Cuts
from offcert.verify.joint.states import States

# Sums of sizes are told apart up to this number of units; where there are more, they are dense.
_MOST_UNITS = 1 << 22


@dataclass(frozen=True)
class Room:
    """What a first run leaves, at one of its moments, to what it does not use.

    Attributes
    ----------
    most : int
        Bytes.
    absent : frozenset of int
        States that cannot be present, as they are too large.
    kept : int or None
        At the end of a run that may discard what it makes and then takes less: bytes for what of
        that is kept, and for what it does not use.
    """

    most: int
    absent: frozenset[int] = frozenset()
    kept: int | None = None


def rooms(states: States, cuts: Cuts, memory: int, whole: bool) -> list[Room]:
    """Return the room at each moment.

    Parameters
    ----------
    states : States
        Of the network.
    cuts : Cuts
        With the moments.
    memory : int
        Bytes on the device.
    whole : bool
        Whether a copy takes all of its memory or none. Then what is present, and of use later, is
        a set of whole values: those that are needed and can neither return nor be made again, and
        some others.
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
    """Return the largest sum of some of the sizes that is at most `most`, or `most` itself.

    The latter where there are too many sums to tell apart.
    """
    unit = math.gcd(*sizes)
    if unit == 0:
        return 0
    units = most // unit
    if units > _MOST_UNITS:
        return most
    mask = (1 << (units + 1)) - 1
    sums = 1
    for size in sizes:
        sums |= (sums << (size // unit)) & mask
    return unit * (sums.bit_length() - 1)
