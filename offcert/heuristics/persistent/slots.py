"""Persistent checkpointing with memory in slots, compiled.

Bytes are counted in slots of equal size: what is stored is rounded up, and what runs fits if its
bytes are at most those of the slots that are left. So every strategy that is found is within the
limit, and with a slot a byte nothing is lost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import compiled
from offcert.heuristics.persistent.subchains import KEEP_ALL, Integers, Subchains

NEVER = 2**62


class Slots:
    """Least times of all subchains, for each number of slots.

    Parameters
    ----------
    chain : Subchains
        Of which.
    memory : int
        Bytes.
    slots : int
        How many the memory is divided into; fewer if it has fewer bytes.

    Attributes
    ----------
    budget : int
        Slots of the whole memory.
    time : int or None
        The least ticks of the whole chain, or None if it does not fit.
    """

    def __init__(self, chain: Subchains, memory: int, slots: int) -> None:
        self.chain = chain
        self._unit = max(1, -(-memory // slots))
        self.budget = memory // self._unit
        sweeps = np.zeros((len(chain), len(chain)), np.int64)
        for first in range(len(chain)):
            row = chain.sweep(first)
            sweeps[first, first : first + len(row)] = row
        self._kept = self._rounded(chain.output[:-1] + chain.beside)
        self._stored = self._rounded(chain.output)
        times, self._choices = fill(
            chain.forward,
            chain.backward,
            self._kept,
            self._stored,
            chain.gradient,
            chain.keeping,
            chain.turning,
            sweeps,
            self._unit,
            self.budget,
        )
        least = int(times[0, len(chain) - 1, self.budget])
        self.time = None if least >= NEVER else least

    def _rounded(self, sizes: Integers) -> Integers:
        return np.ascontiguousarray(-(-sizes // self._unit))

    def choice(self, first: int, last: int, budget: int) -> int:
        """Return `KEEP_ALL`, or the stage whose input is stored next."""
        return int(self._choices[first, last, budget])

    def kept(self, stage: int) -> int:
        """Return what a stage that keeps all takes from the budget of what follows it."""
        return int(self._kept[stage])

    def stored(self, stage: int) -> int:
        """Return what a stored input of a stage takes from the budget of what follows it."""
        return int(self._stored[stage])


@compiled
def fill(
    forward: Integers,
    backward: Integers,
    kept: Integers,
    stored: Integers,
    gradient: Integers,
    keeping: Integers,
    turning: Integers,
    sweeps: Integers,
    unit: int,
    slots: int,
) -> tuple[Integers, NDArray[np.int32]]:
    """Return the least ticks of every subchain with every number of slots, and how it begins."""
    stages = len(forward)
    times = np.full((stages, stages, slots + 1), NEVER, np.int64)
    choices = np.full((stages, stages, slots + 1), KEEP_ALL, np.int32)
    for length in range(stages):
        for first in range(stages - length):
            last = first + length
            row, choice = times[first, last], choices[first, last]
            least = max(keeping[first] + gradient[last], turning[first])
            begin = max(-(-least // unit), kept[first] if first < last else 0)
            own = forward[first] + backward[first]
            for slot in range(begin, slots + 1):
                if first == last:
                    row[slot] = own
                elif times[first + 1, last, slot - kept[first]] < NEVER:
                    row[slot] = own + times[first + 1, last, slot - kept[first]]
            passed = 0
            for split in range(first + 1, last + 1):
                passed += forward[split - 1]
                least = sweeps[first, split - 1] + gradient[last]
                shift = stored[first]
                ahead, behind = times[split, last], times[first, split - 1]
                for slot in range(max(-(-least // unit), shift), slots + 1):
                    if ahead[slot - shift] < NEVER and behind[slot] < NEVER:
                        time = passed + ahead[slot - shift] + behind[slot]
                        if time < row[slot]:
                            row[slot] = time
                            choice[slot] = split
    return times, choices
