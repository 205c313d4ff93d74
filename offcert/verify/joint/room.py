"""How many bytes what a first run does not use may take at its moments, for verification."""

from __future__ import annotations

import math

from offcert.verify.joint.grid import Cuts
from offcert.verify.joint.states import States

# Sums of sizes are told apart up to this number of units; where there are more, they are dense.
_MOST_UNITS = 1 << 22


def room(states: States, cuts: Cuts, memory: int) -> list[int]:
    """Return, for each moment, the bytes of memory beside what its first run takes at least."""
    return [
        memory - states.least_memory(cuts.running(boundary)) for boundary in range(1, cuts.windows)
    ]


def whole_room(states: States, cuts: Cuts, memory: int) -> list[int]:
    """Return the same, rounded down to what whole values that are of use can take.

    Something else could be thrown away. What is needed later and can neither return nor be made
    again is there; the rest is a set of whole values.
    """
    bytes_ = room(states, cuts, memory)
    return [_rounded(states, cuts, boundary + 1, most) for boundary, most in enumerate(bytes_)]


def _rounded(states: States, cuts: Cuts, boundary: int, most: int) -> int:
    running, moment = cuts.running(boundary), cuts.moment[boundary]
    used = states.found[running] | states.makes[running]
    forced, sizes = 0, []
    for value, maker in enumerate(states.made_by):
        last_use = 2 * states.last_use[value]
        if value in used or not cuts.made(maker, boundary) or last_use < moment:
            continue
        kept = not states.can_leave[value] and not states.repeatable(maker)
        if kept and 2 * states.last_reader[value] >= moment:
            forced += states.size[value]
        elif states.size[value]:
            sizes.append(states.size[value])
    return forced + largest_sum(sizes, most - forced) if most >= forced else most


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
