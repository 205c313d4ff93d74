"""The host's memory that a simulated device has registered, and its budget."""

from __future__ import annotations

from collections.abc import Callable

import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.simulated.poison import poison, poisoned
from offcert.runtime.device.simulated.races import HostRanges


class SimulatedArena:
    """Memory of the host, poisoned until something is written to it.

    Attributes
    ----------
    size : int
        Bytes.
    ranges : HostRanges
        Which copies have used which of them.
    closed : bool
        Whether it has been given back.
    """

    def __init__(
        self,
        size: int,
        streams: int,
        closing: Callable[[SimulatedArena], None],
        data: torch.Tensor | None = None,
    ) -> None:
        self.size = size
        self.closed = False
        self.ranges = HostRanges(size, streams)
        self._closing = closing
        self._data = poisoned(size) if data is None else data
        if data is not None:
            poison(self.address(0), size)

    def view(self, offset: int, size: int) -> torch.Tensor:
        """Return bytes of it as a tensor over the same memory."""
        if self.closed:
            raise OffcertError("an arena is used after it has been given back")
        return self._data[offset : offset + size]

    def address(self, offset: int) -> int:
        """Return where a byte of it lies in this process."""
        return self._data.data_ptr() + offset

    def close(self) -> None:
        """Give the memory back; whoever has kept a view of it finds poison."""
        if not self.closed:
            self.closed = True
            self._closing(self)
            poison(self.address(0), self.size)


class PinnedBudget:
    """How many bytes of the host may be registered, and how many are.

    Parameters
    ----------
    limit : int or None
        None for as many as are asked for.
    name : str
        Of the device.

    Attributes
    ----------
    held : int
        Bytes of the arenas that have not been closed.
    """

    def __init__(self, limit: int | None, name: str) -> None:
        self.held = 0
        self._limit = limit
        self._name = name

    def take(self, size: int) -> None:
        """Take exactly so many bytes.

        Raises
        ------
        OffcertError
            If there are not so many left.
        """
        if self._limit is not None and self.held + size > self._limit:
            raise OffcertError(
                f"device {self._name} may register {self._limit} bytes of the host's memory and "
                f"holds {self.held} of them: no room for an arena of {size} bytes"
            )
        self.held += size

    def give_back(self, size: int) -> None:
        """Give so many bytes back."""
        self.held -= size
