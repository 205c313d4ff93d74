"""What a simulated execution writes down: its schedule, and residences with addresses."""

from __future__ import annotations

from collections.abc import Sequence

from offcert.core.placement import Residence
from offcert.core.plan import Kind
from offcert.core.schedule import Schedule, Transfer
from offcert.core.trace import Trace


class Record:
    """Times and addresses of one simulated execution.

    A tensor that is brought back and given up again before anybody used it was brought back for
    nothing: of the transfers for one gap only the last counts, and the link stands idle instead. So
    does it where everything is vacated and what the next task needs returns at once.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.offloads: dict[int, tuple[int, int]] = {}
        self.prefetches: dict[int, tuple[int, int]] = {}
        self.residences: list[Residence] = []
        self.addresses: list[int] = []
        self._begun: dict[int, tuple[int, int]] = {}

    def begin(self, block: int, address: int, start: int) -> None:
        """Note that a block lies at an address from a time on."""
        self._begun[block] = (address, start)

    def end(self, block: int, name: str, size: int, end: int) -> None:
        """Note until when a block lies where it is."""
        address, start = self._begun.pop(block)
        if start < end:
            self.residences.append(Residence(name, size, start, end))
            self.addresses.append(address)

    def returned(self, tensor: int, before: int, after: int, start: int, end: int) -> None:
        """Note that a tensor returns between two uses; what is no gap needs no transfer."""
        gap = self.trace.gap_numbers.get((tensor, before, after))
        if gap is not None:
            self.prefetches[gap] = (start, end)

    def schedule(self) -> Schedule:
        """Return the schedule, with the times of the simulation."""
        transfers = [Transfer(Kind.PREFETCH, gap, *times) for gap, times in self.prefetches.items()]
        first: dict[int, int] = {}
        for gap in sorted(self.prefetches):
            first.setdefault(self.trace.gaps[gap].tensor, gap)
        transfers += [
            Transfer(Kind.OFFLOAD, gap, *self.offloads[tensor]) for tensor, gap in first.items()
        ]
        return Schedule(self.starts, self.ends, transfers)


def bytes_of(transfers: Sequence[Transfer], trace: Trace) -> int:
    """Return the bytes that transfers move together."""
    return sum(trace.gap_size(transfer.gap) for transfer in transfers)
