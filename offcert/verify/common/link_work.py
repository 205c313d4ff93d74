"""How long a link needs for bytes that become ready one after the other, for verification."""

from __future__ import annotations


class LinkWork:
    """Tensors in the order in which they become ready, of which some count; for many questions.

    A tree over that order. Each node knows the bytes under it, and when the link, which works on
    them in this order, ends at the earliest, less the time that the work takes. So a node is joined
    to the one on its right without looking into either.

    Parameters
    ----------
    count : int
        How many tensors there are.
    per_byte : int
        Time that a byte takes.
    """

    def __init__(self, count: int, per_byte: int) -> None:
        self._per_byte = per_byte
        self._leaves = 1 << max(count - 1, 0).bit_length()
        self._bytes = [0] * (2 * self._leaves)
        self._latest = [0] * (2 * self._leaves)

    def put(self, place: int, ready: int, size: int) -> None:
        """Let the tensor at a place count, with its time and bytes; none counts with 0 bytes."""
        amounts, latest, per_byte = self._bytes, self._latest, self._per_byte
        node = self._leaves + place
        amounts[node], latest[node] = size, ready
        while node > 1:
            node >>= 1
            left, right = 2 * node, 2 * node + 1
            amounts[node] = amounts[left] + amounts[right]
            if not amounts[right]:
                latest[node] = latest[left]
            elif not amounts[left]:
                latest[node] = latest[right]
            else:
                latest[node] = max(latest[left], latest[right] - amounts[left] * per_byte)

    def finish(self, need: int) -> int:
        """Return the first time at which `need` bytes can have passed the link.

        The link is last idle just before some tensor appears; from then on it works without a
        pause. Trying every such moment and taking the latest finish needs no simulation.
        """
        if need == 0:
            return 0
        finish, before = 0, 0
        node = 1
        while node < self._leaves:
            node *= 2
            if before + self._bytes[node] < need:
                finish = max(finish, self._from(node, need - before))
                before += self._bytes[node]
                node += 1
        return max(finish, self._from(node, need - before))

    def _from(self, node: int, rest: int) -> int:
        return self._latest[node] + rest * self._per_byte if self._bytes[node] else 0
