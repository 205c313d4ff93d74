"""A thread that copies from one place of the host to another, while streams do something else."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.interface import Arena, DeviceEvent

# Whether this is a thread of a clerk.
_local = threading.local()


class Done:
    """A flag: whether a thread has made a copy."""

    __slots__ = ("_future",)

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    @property
    def reached(self) -> bool:
        """Whether it has been made."""
        return self._future.done() and self._future.exception() is None

    def wait_here(self) -> None:
        """Wait until it has been made; raise what went wrong."""
        if getattr(_local, "copies", False) and not self._future.done():
            # Whatever is collected as garbage is collected in any thread, also in one of these.
            raise OffcertError("a thread that copies cannot wait for copies to be made")
        self._future.result()

    def wait_as_clerk(self) -> None:
        """Wait likewise, in a thread that copies, for something that was ordered before."""
        self._future.result()


class ThreadClerk:
    """Copies in a thread of its own, which ends when it is closed or nobody has it any more.

    `begin` is called in the thread before all else.
    """

    def __init__(self, name: str, begin: Callable[[], None] | None = None) -> None:
        self._pool = ThreadPoolExecutor(
            1, thread_name_prefix=name, initializer=_begin, initargs=(begin,)
        )

    def copy(
        self,
        source: tuple[Arena, int],
        target: tuple[Arena, int],
        size: int,
        after: Sequence[DeviceEvent] = (),
    ) -> Done:
        """Let bytes be copied once events have been reached."""
        # Views hold the memory, whatever becomes of the arenas.
        there, here = (arena.view(at, size) for arena, at in (source, target))
        return Done(self._pool.submit(copy_after, there, here, tuple(after)))

    def close(self) -> None:
        """Wait until all is done."""
        self._pool.shutdown(wait=not getattr(_local, "copies", False))


def _begin(begin: Callable[[], None] | None) -> None:
    _local.copies = True
    if begin is not None:
        begin()


def copy_after(source: torch.Tensor, target: torch.Tensor, after: Sequence[DeviceEvent]) -> None:
    """Copy bytes, once every event has been reached."""
    for event in after:
        if isinstance(event, Done):
            event.wait_as_clerk()
        else:
            event.wait_here()
    # Neither here nor while it waits does the thread hold the interpreter's lock.
    ctypes.memmove(target.data_ptr(), source.data_ptr(), source.numel())
