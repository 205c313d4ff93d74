"""What has to stay on the device within a memory limit, for verification.

Stage `s` lasts from the end of the first run of computation `s - 1` to the end of that of `s`.
Who reads a value for the first time reads a copy that some run of its writer has made. In stages in
which the writer cannot run again that copy is on the device throughout, if it may not leave. What
stays leaves less room, so that more cannot run again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offcert.core.network import Network
from offcert.verify.least_memory.needs import Needs
from offcert.verify.limits import Allowance, BeyondLimitsError


class Kept:
    """What follows from a memory limit.

    Parameters
    ----------
    network : Network
        What is executed.
    needs : Needs
        Of the problem.
    memory : int
        Bytes.
    allowance : Allowance
        Looked at after every round.

    Attributes
    ----------
    refuted : bool
        Whether no execution is within the limit.
    last_again : list of int
        For each computation, the last stage in which it might run again; -1 if there is none.
    """

    def __init__(self, network: Network, needs: Needs, memory: int, allowance: Allowance) -> None:
        self._network, self._needs, self._memory = network, needs, memory
        count = len(network)
        if 2 * count * len(needs.sizes) > allowance.limits.memory:
            raise BeyondLimitsError(f"{count} computations take too much memory")
        self._readers = _all_readers(network)
        self.last_again = [-1] * count
        # Of what each value is kept for: the stages throughout which it stays, and before them the
        # stage during whose first run it is there already.
        self._rows: dict[int, NDArray[np.bool_]] = {}
        self._during: dict[int, NDArray[np.bool_]] = {}
        self._whole = np.zeros(count, np.int64)
        self._first = np.zeros(count, np.int64)
        while self._round():
            allowance.require_time()
        self.refuted = any(self._overfull(index) for index in range(count))

    def _beside(self, computation: int) -> NDArray[np.int64]:
        """Return, for each stage, bytes while a computation runs again in it."""
        taken = self._whole + self._needs.own[computation]
        for value in self._needs.touched[computation]:
            if value in self._rows:
                taken = taken - self._needs.sizes[value] * self._rows[value]
        return taken

    def _overfull(self, computation: int) -> bool:
        taken = int(self._first[computation]) + self._needs.own[computation]
        for value in self._needs.touched[computation]:
            if value in self._during and self._during[value][computation]:
                taken -= self._needs.sizes[value]
        return taken > self._memory

    def _round(self) -> bool:
        """Conclude once from what is known; return whether that is more than before."""
        more = False
        count = len(self._network)
        last = [self._last_stages(index) for index in range(count)]
        for value, size in enumerate(self._needs.sizes):
            if not size or not self._needs.held[value]:
                continue
            whole = np.zeros(count, bool)
            during = np.zeros(count, bool)
            writer = self._needs.writer[value]
            for reader in self._readers[value]:
                made = -1 if writer < 0 else int(last[writer][reader])
                whole[made + 1 : reader + 1] = True
                during[max(made, 0) : reader + 1] = True
            more = more or value not in self._rows or bool((self._rows[value] != whole).any())
            self._rows[value], self._during[value] = whole, during
        self._whole[:] = self._first[:] = 0
        for value, size in enumerate(self._needs.sizes):
            if value in self._rows:
                self._whole += size * self._rows[value]
                self._first += size * self._during[value]
        return more

    def _last_stages(self, computation: int) -> NDArray[np.int64]:
        """Return, for each stage, the last one up to it in which a computation may have run."""
        count = len(self._network)
        stages = np.arange(count)
        may = np.zeros(count, bool)
        if self._needs.again[computation]:
            may = (self._beside(computation) <= self._memory) & (stages > computation)
        again = stages[may]
        self.last_again[computation] = int(again[-1]) if len(again) else -1
        return np.maximum.accumulate(np.where(may, stages, computation))


def _all_readers(network: Network) -> list[list[int]]:
    """Return, for each value, who reads it or what was made of it in place."""
    found: list[set[int]] = [set(readers) for readers in network.readers]
    for number, value in enumerate(network.values):
        if value.base is not None:
            found[value.base] |= found[number]
    return [sorted(readers) for readers in found]
