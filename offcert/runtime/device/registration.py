"""Registers memory of the host with a device, chunk by chunk, while the training goes on.

To register memory is to take it: the kernel clears every page first, which is most of the time
that it takes, and which several threads do at once; CUDA's own part follows one by one. The chunks
are taken in the order in which a plan needs them. A copy to or from a chunk whose turn has not come
goes through other memory, and the host waits for it; meanwhile the chunk is not registered, for
CUDA wants the memory of a copy to be registered as a whole, or not at all.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol

import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.host import require_free
from offcert.runtime.device.interface import Pinning

# Threads that register one arena at most; half of the processors are left to the training in any
# case. Arbitrary.
THREADS = 8

# Whether this is a thread that registers.
_local = threading.local()


class RegistrationError(OffcertError):
    """Memory that is there, but that a device refuses to register."""


class Registrar(Protocol):
    """Makes memory of the host known to a device; from several threads at once."""

    def begin_thread(self) -> None:
        """Prepare the calling thread, which registers from now on."""

    def register(self, address: int, size: int) -> None:
        """Make it known, or raise a `RegistrationError` if the device does not take so much."""

    def unregister(self, address: int) -> None:
        """Make it unknown."""

    def settle(self) -> None:
        """Wait until no copy that has been handed over needs the host any more."""


def stretches(offset: int, size: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Yield bytes from an address on, cut at all multiples of a chunk: addresses, and sizes."""
    end = offset + size
    while offset < end:
        border = min(end, (offset // chunk + 1) * chunk)
        yield offset, border - offset
        offset = border


class Registration:
    """Registers the chunks of a mapping; nobody but its threads and its arena has it.

    Nothing of the mapping's bytes has been touched. `order` has addresses and sizes in the order in
    which they are needed; all others come last.
    """

    def __init__(
        self,
        registrar: Registrar,
        data: torch.Tensor,
        chunk: int,
        order: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._registrar, self._data = registrar, data
        size = data.numel()
        self._chunks = list(stretches(0, size, chunk))
        first = [at // chunk for begin, part in order for at, _ in stretches(begin, part, chunk)]
        self._left = deque(dict.fromkeys([*first, *range(len(self._chunks))]))
        self._chunk = chunk
        self._locks = [threading.RLock() for _ in self._chunks]
        self._one = threading.Lock()
        # Of each chunk, whether it is registered, and whether something may have been copied to it.
        self._ready = [False] * len(self._chunks)
        self._used = [False] * len(self._chunks)
        self._known: list[int] = []
        self._threads: list[threading.Thread] = []
        self._stopped = self._released = False
        self._refused: OffcertError | None = None
        self._begun, self._seconds = time.monotonic(), 0.0

    # Registering.

    def begin(self, *, background: bool) -> None:
        """Register the first chunk, and all others now or in the `background`.

        If one that is registered now is refused, what was registered is to be released.
        """
        self._next()
        if not background:
            while self._left:
                self._next()
            return
        count = min(THREADS, len(self._left), max(1, (os.cpu_count() or 1) // 2))
        for number in range(count):
            thread = threading.Thread(
                target=self._work, name=f"offcert-register-{number}", daemon=True
            )
            self._threads.append(thread)
            try:
                thread.start()
            except RuntimeError:
                # There are no more threads to be had.
                self._threads.remove(thread)
                break
        while self._left and not self._threads:
            self._next()

    def _work(self) -> None:
        _local.registers = True
        try:
            self._registrar.begin_thread()
            while self._left:
                self._next()
        except Exception as error:
            refused = error if isinstance(error, OffcertError) else OffcertError(repr(error))
            self._refused = self._refused or refused
            self._left.clear()

    def _next(self) -> None:
        """Register the chunk that is needed next, if there is one left."""
        try:
            number = self._left.popleft()
        except IndexError:
            # Another thread was faster.
            return
        begin, size = self._chunks[number]
        address = self._data.data_ptr() + begin
        with self._locks[number]:
            if self._stopped:
                return
            require_free(size, self._data.numel())
            if not self._used[number]:
                # Without the interpreter's lock, and before the device holds its own.
                ctypes.memset(address, 0, size)
            # What may or may not have been registered when an interrupt comes is unregistered,
            # which does no harm. One at a time: others that wait for the device's own lock would
            # keep operators from it.
            with self._one:
                if self._stopped:
                    return
                self._known.append(address)
                try:
                    self._registrar.register(address, size)
                except OffcertError:
                    self._known.remove(address)
                    raise
            if self._released:
                # Whoever released it has not waited for this thread.
                with suppress(OffcertError):
                    self._registrar.unregister(address)
                return
            self._ready[number] = True
            self._seconds = time.monotonic() - self._begun

    # Copies meanwhile.

    @property
    def complete(self) -> bool:
        """Whether everything is registered."""
        return all(self._ready)

    def is_ready(self, offset: int) -> bool:
        """Whether the chunk of an address is registered."""
        return self._ready[offset // self._chunk]

    @contextmanager
    def held(self, offset: int) -> Iterator[None]:
        """Keep the chunk of an address as it is while a copy to or from it is waited for."""
        number = offset // self._chunk
        with self._locks[number]:
            self._used[number] = True
            yield

    @property
    def pinning(self) -> Pinning:
        """How far it has come."""
        size = sum(
            size for (_, size), ready in zip(self._chunks, self._ready, strict=True) if ready
        )
        return Pinning(
            self._data.numel(),
            size,
            self._seconds,
            len(self._threads),
            not any(thread.is_alive() for thread in self._threads),
            "" if self._refused is None else str(self._refused),
        )

    def finish(self) -> None:
        """Wait until everything is registered, or refused."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    # The end.

    def release(self) -> None:
        """Register no more, wait for threads and copies, and unregister everything."""
        if getattr(_local, "registers", False):
            # Garbage is collected in any thread; this one cannot wait for itself, nor for one that
            # waits for it.
            threading.Thread(target=self._release, name="offcert-unregister").start()
        else:
            self._release()

    def _release(self) -> None:
        self._stopped = True
        self._left.clear()
        try:
            self.finish()
            self._registrar.settle()
        finally:
            # Also after an error of the device, which is told to whoever closes.
            self._released = True
            self.unregister()

    def unregister(self) -> None:
        """Make every chunk unknown, whatever becomes of the others."""
        with ExitStack() as stack:
            while self._known:
                stack.callback(self._registrar.unregister, self._known.pop())
