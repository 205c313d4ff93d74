"""`Flight`: bytes of the device that a stream copies, held until ``compute`` has waited for it.

Whatever ends a step, the end of the flight comes before that of the bytes: also if the flight is
forgotten, because an exception or an interrupt came between two lines of the program, or nobody has
the step any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch

from offcert.runtime.device.interface import Device, Event, Stream


class Flight:
    """A transfer from when it is about to be handed over.

    Parameters
    ----------
    device : Device
        Whose stream copies. The memory is that of the stream in which the calling thread's
        operators run.
    stream : Stream
        ``out`` or ``back``.
    data : sequence of torch.Tensor
        All bytes of the storages.

    Attributes
    ----------
    done : Event or None
        After the copy; None until it has been handed over.
    """

    __slots__ = ("_compute", "_data", "_stream", "done")

    def __init__(self, device: Device, stream: Stream, data: Sequence[torch.Tensor]) -> None:
        self.done: Event | None = None
        self._compute = device.compute
        self._stream = stream
        self._data = tuple(data)

    def land(self) -> None:
        """Let ``compute`` wait for the copy; the bytes are not held any more."""
        if self._data:
            # Interrupted, it may have been handed over or not.
            self._compute.wait(self._stream.record() if self.done is None else self.done)
            self._data = ()

    def __del__(self) -> None:
        # Nobody hears of an error here, and the device of an interpreter that ends may be gone.
        with suppress(Exception):
            self.land()
