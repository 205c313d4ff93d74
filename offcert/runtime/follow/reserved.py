"""Memory that a device's allocator has reserved around a step: more than tensors take."""

from __future__ import annotations

from offcert.core.errors import InputError
from offcert.core.units import Units, format_size
from offcert.runtime.device.interface import Device, MemoryReading

_BYTES = Units("ns", "B")


class Reserved:
    """Reads the memory that a device's allocator reserves in a step, and compares it with a limit.

    Without a limit it only reads: the peaks, which are the program's own as well, are then those
    since the program has reset them.

    Parameters
    ----------
    device : Device or None
        The device whose allocator is read; None on the CPU, where nothing is known.
    limit : int or None
        Bytes that it may have reserved at most.

    Raises
    ------
    InputError
        If there is a limit, and no device.
    """

    def __init__(self, device: Device | None, limit: int | None) -> None:
        if limit is not None and device is None:
            raise InputError("reserved_memory is for devices; the model is on the CPU")
        self.limit = limit
        self._device = device

    def begin(self, *, fresh: bool = False) -> None:
        """Begin to look for the most bytes, if there is a limit.

        What is reserved and not in use is given back if it is `fresh`, or beyond the limit: steps
        without a plan have reserved it.
        """
        if self._device is None or self.limit is None:
            return
        if fresh or self._device.memory().reserved > self.limit:
            self._device.release()
        self._device.reset_peaks()

    def read(self) -> MemoryReading | None:
        """Return the bytes that the allocator has given and reserved now; None without a device."""
        return None if self._device is None else self._device.memory()

    @property
    def fragments(self) -> int:
        """Bytes that were reserved at most beyond those in use; 0 without a limit."""
        found = None if self.limit is None else self.read()
        return 0 if found is None else max(0, found.peak_reserved - found.peak_allocated)

    def exceeded(self, reading: MemoryReading | None) -> str | None:
        """Return in words that more was reserved than may be, or None."""
        if self.limit is None or reading is None or reading.peak_reserved <= self.limit:
            return None
        held, given = reading.peak_reserved, reading.peak_allocated
        return (
            f"the device's allocator has reserved {held} bytes ({format_size(held, _BYTES)}), but "
            f"may reserve {self.limit} ({format_size(self.limit, _BYTES)}); at most {given} were "
            "in use"
        )
