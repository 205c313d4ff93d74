"""Transfers that have to come, and so the end at the earliest, where everything runs once."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from itertools import accumulate

from offcert.core.platform import Kind, Platform
from offcert.core.trace import Trace
from offcert.verification.joint.contents import Held


class Moves:
    """Transfers that have to come before and after each operation, and their time at least.

    What has to be absent during an operation must have left before it, and what is absent then must
    return after it. What is on the host only must return before its next use.

    Parameters
    ----------
    trace : Trace
        What is executed; contents are its tensors.
    platform : Platform
        The link.
    memory : int
        Bytes.
    """

    def __init__(self, trace: Trace, platform: Platform, memory: int) -> None:
        self.trace, self.platform = trace, platform
        count = len(trace.operations)
        self.lacking = [-memory] * count
        # For each operation, tensors that may be absent during it, each with its next use.
        self.absent: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for operation, each in enumerate(trace.operations):
            self.lacking[operation] += each.workspace
            for place, tensor in enumerate(trace.tensors):
                first, last = max(tensor.uses[0], 0), tensor.uses[-1]
                if not first <= operation <= last:
                    continue
                self.lacking[operation] += tensor.size
                if operation not in tensor.uses and tensor.evictable and tensor.size:
                    use = tensor.uses[bisect_left(tensor.uses, operation)]
                    self.absent[operation].append((place, use))
        self.to_end = self._to_end()
        self.still = cache(self._still)

    def _ticks(self, size: int, kind: Kind) -> int:
        return self.platform.transfer_time(size, kind) if size > 0 else 0

    def _to_end(self) -> list[int]:
        """Return the ticks from the start of each operation to the end of all, at least."""
        found = [0]
        count = len(self.lacking)
        for operation in range(count - 1, -1, -1):
            ends = [found[-1]]
            if self.lacking[operation] > 0:
                # The last of them to return is used by an operation after that.
                uses = [use for _, use in self.absent[operation]]
                used = min((found[count - use] for use in uses), default=0)
                ends.append(self._ticks(self.lacking[operation], Kind.PREFETCH) + used)
            found.append(self.trace.operations[operation].duration + max(ends))
        return found[::-1]

    def _still(self, begun: int, here: Held, there: Held) -> tuple[int, int, int]:
        """Return how long before the end of all the link has to be free, at least.

        For the next offload, for the next return, and for both in turn; 0 if none has to come.

        Parameters
        ----------
        begun : int
            How many operations have begun.
        here, there : Held
            Tensors on the device and on the host, or on their way there.
        """
        count = len(self.lacking)
        returns = [0] * count
        for place, tensor in enumerate(self.trace.tensors):
            later = bisect_left(tensor.uses, begun)
            if there >> place & 1 and not here >> place & 1 and later < len(tensor.uses):
                returns[tensor.uses[later]] += self._ticks(tensor.size, Kind.PREFETCH)
        outs, backs, turns = [0], [0], [0]
        for operation, back in enumerate(accumulate(returns[begun:]), begun):
            gone = sum(
                self.trace.tensors[place].size
                for place, _ in self.absent[operation]
                if there >> place & 1
            )
            out = self._ticks(self.lacking[operation] - gone, Kind.OFFLOAD)
            end = self.to_end[operation]
            outs.append(out + end if out else 0)
            backs.append(back + end if back else 0)
            turns.append(out + back + end if out or back else 0)
        return max(outs), max(backs), max(turns)
