"""The host's memory that a simulated device has registered, and its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.interface import Arena
from offcert.runtime.device.pinned import RegistrationError
from offcert.runtime.simulated.races import HostRanges
from offcert.runtime.simulated.storages import poison


class SimulatedArena:
    """Memory of the host, poisoned until something is written to it.

    Parameters
    ----------
    memory : Arena
        Its bytes.
    streams : int
        How many use it.
    closing : callable
        Called with it when it is given back.

    Attributes
    ----------
    size : int
        Bytes.
    registered : bool
        Whether streams copy to and from it by themselves.
    where : str
        Where its memory is.
    ranges : HostRanges
        Ranges of addresses, with the copies that have used them.
    closed : bool
        Whether it has been given back.
    """

    def __init__(
        self, memory: Arena, streams: int, closing: Callable[[SimulatedArena], None]
    ) -> None:
        self.size = memory.size
        self.registered = memory.registered
        self.where = memory.where
        self.closed = False
        self.ranges = HostRanges(self.size, streams)
        self._closing = closing
        self._memory = memory
        # Kept when it is given back: who looks at it then finds poison.
        self._data = memory.view(0, self.size)
        poison(self.address(0), self.size)

    def view(self, offset: int, size: int) -> torch.Tensor:
        """Return bytes of it as a tensor over the same memory."""
        if self.closed:
            raise OffcertError("an arena is used after it has been given back")
        return self._data[offset : offset + size]

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield bytes of it as addresses and sizes, each of which can be copied by one call."""
        return self._memory.pieces(offset, size)

    def address(self, offset: int) -> int:
        """Return where a byte of it lies in this process."""
        return self._data.data_ptr() + offset

    def close(self) -> None:
        """Give the memory back; whoever has kept a view of it finds poison."""
        if not self.closed:
            self.closed = True
            self._closing(self)
            self._memory.close()
            poison(self.address(0), self.size)


class PinnedBudget:
    """How many bytes of the host may be registered, and how many are; a `Registrar`.

    Parameters
    ----------
    limit : int or None
        None for as many as are asked for.
    name : str
        Of the device.

    Attributes
    ----------
    known : dict of int to int
        Registered memory: bytes by address.
    """

    def __init__(self, limit: int | None, name: str) -> None:
        self.known: dict[int, int] = {}
        self._limit = limit
        self._name = name

    @property
    def held(self) -> int:
        """Bytes that are registered."""
        return sum(self.known.values())

    def register(self, address: int, size: int) -> None:
        """Take exactly so many bytes.

        Raises
        ------
        RegistrationError
            If there are not so many left.
        OffcertError
            If the same are registered already.
        """
        if self._limit is not None and self.held + size > self._limit:
            raise RegistrationError(
                f"device {self._name} may register {self._limit} bytes of the host's memory and "
                f"holds {self.held} of them: no room for an arena of {size} bytes"
            )
        if address in self.known:
            raise OffcertError(f"device {self._name} has registered {size} bytes already")
        self.known[address] = size

    def unregister(self, address: int) -> None:
        """Give bytes back; as CUDA, it refuses those that it does not know."""
        if self.known.pop(address, None) is None:
            raise OffcertError(f"device {self._name} has not registered what is to be given back")

    def settle(self) -> None:
        """Do nothing: that copies have ended is looked at when an arena is closed."""
