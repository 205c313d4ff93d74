"""Arenas on the host: registered with the device, or in a file.

PyTorch's own pinned memory is rounded up to the next power of two, a 9 GiB arena to 16, and kept
when it is given back. So an arena is a mapping of exactly the planned bytes, which is registered
once and unregistered once, whatever happens in between. It is registered in chunks
(`offcert.runtime.device.registration`), and no copy goes across the border of two, which CUDA would
refuse, or let the host wait for. To register memory is to take it: before all of it, and again
before each chunk, it is asked how much the host has left.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.host import mapped_file, require_free
from offcert.runtime.device.interface import Arena, Pinning
from offcert.runtime.device.registration import (
    Registrar,
    Registration,
    RegistrationError,
    stretches,
)

# The flag "portable": for all devices of the process, whichever is current. Given by CUDA.
_PORTABLE = 1
# The mode of captures in which a thread may call anything. Given by CUDA: `CUstreamCaptureMode`.
_RELAXED = 2
# Bytes that are registered by one call: whole pages of any size, few enough for kernels that are
# launched meanwhile not to wait long for the driver, and for a first chunk to be there at once.
# Arbitrary.
CHUNK = 2**26


class CudaRegistrar:
    """Registers memory with CUDA, through the runtime that PyTorch has loaded."""

    def __init__(self, device: torch.device, streams: Sequence[torch.cuda.Stream]) -> None:
        self._device = device
        self._streams = tuple(streams)
        # CUDA does not survive a fork; what the parent has registered is the parent's.
        self._process = os.getpid()

    def begin_thread(self) -> None:
        """Let the thread register also while some other one captures a CUDA graph."""
        # Otherwise such a graph would be lost, whoever captures it: CUDA takes calls like these for
        # unsafe, in all threads, unless a thread says that it knows better.
        with suppress(OSError, AttributeError):
            mode = ctypes.c_int(_RELAXED)
            ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

    def register(self, address: int, size: int) -> None:
        """Make it known to CUDA."""
        with torch.cuda.device(self._device):
            error = int(_cudart().cudaHostRegister(address, size, _PORTABLE))
            if error == 0:
                return
            text = _clear_error(self._device)
        raise RegistrationError(
            f"{size} bytes of host memory cannot be registered with {self._device}: CUDA error "
            f"{error}{text}"
        )

    def unregister(self, address: int) -> None:
        """Make it unknown to CUDA."""
        if os.getpid() != self._process:
            return
        with torch.cuda.device(self._device):
            if int(_cudart().cudaHostUnregister(address)) != 0:
                _clear_error(self._device)

    def settle(self) -> None:
        """Wait for the streams that copy."""
        if os.getpid() != self._process:
            return
        for stream in self._streams:
            stream.synchronize()


def _cudart() -> Any:
    return torch.cuda.cudart()


def _clear_error(device: torch.device) -> str:
    """Take the error from CUDA, which would report it at the next kernel, whosever that is."""
    try:
        torch.zeros(1, device=device).add_(1)
    except RuntimeError as error:
        return f" ({str(error).splitlines()[0]})"
    return ""


class PinnedArena:
    """Memory of the host, of exactly so many bytes, that a device can copy from and to by itself.

    It is a mapping that is shared with children: were it private, a child that is forked, such as a
    worker that loads data, would make the kernel copy all of it. It is unregistered when it is
    closed, or nobody has it any more, or the interpreter ends; each time after the copies that are
    still to be done. The mapping goes when its last view does.

    It is registered in chunks, for a real device of whole pages. With an `order`, addresses and
    sizes as they are needed, all but the first chunk is registered in the background. What is
    refused there stays as it is, and copies to and from it are waited for.

    If the host has not so much left, that is an `OffcertError`; if the device does not take it, a
    `RegistrationError`.
    """

    registered = True
    where = "in registered memory"

    def __init__(
        self,
        size: int,
        registrar: Registrar,
        *,
        chunk: int = CHUNK,
        order: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.size, self._chunk = size, chunk
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._finalizer: weakref.finalize[..., PinnedArena] | None = None
        self._registration: Registration | None = None
        self._pinning = Pinning(0, 0, 0.0)
        if size == 0:
            return
        mapped = _mapped(size)
        self._bytes = torch.frombuffer(mapped, dtype=torch.uint8)
        registration = Registration(registrar, self._bytes, chunk, order or ())
        # The mapping is held until it has been unregistered, views or no views.
        self._finalizer = weakref.finalize(self, registration.release)
        try:
            registration.begin(background=order is not None)
        except OffcertError:
            self._finalizer.detach()
            registration.unregister()
            raise
        self._pinning = registration.pinning
        if not registration.complete:
            self._registration = registration

    def view(self, offset: int, size: int) -> torch.Tensor:
        """Return bytes of it as a tensor over the same memory."""
        return self._bytes[offset : offset + size]

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield bytes of it as they were registered, each to be copied by itself."""
        return stretches(offset, size, self._chunk)

    def pending(self, offset: int) -> AbstractContextManager[None] | None:
        """Return a context in which a piece is copied that is not registered yet, or None."""
        registration = self._registration
        if registration is None or registration.is_ready(offset):
            return None
        return registration.held(offset)

    @property
    def pinning(self) -> Pinning:
        """How far it has been registered."""
        registration = self._registration
        if registration is not None:
            self._pinning = registration.pinning
            if registration.complete:
                # From now on no copy asks any more.
                self._registration = None
        return self._pinning

    def finish(self) -> None:
        """Wait until all of it is registered, or refused."""
        if self._registration is not None:
            self._registration.finish()

    @property
    def closed(self) -> bool:
        """Whether the device does not know the memory any more."""
        return self._finalizer is None or not self._finalizer.alive

    def close(self) -> None:
        """Wait for the copies that are still to be done, and give the memory back."""
        self._pinning = self.pinning
        self._registration = None
        if self._finalizer is not None:
            self._finalizer()
        self._bytes = torch.empty(0, dtype=torch.uint8)


def _mapped(size: int) -> mmap.mmap:
    """Return memory of the host that is shared with children; nothing has been taken of it yet."""
    require_free(size)
    try:
        return mmap.mmap(-1, size)
    except (OSError, OverflowError) as error:
        raise OffcertError(f"no room for {size} bytes of offloaded tensors: {error}") from error


class _Unregistered:
    """Memory of the host that no device knows.

    A copy goes through memory of the driver's, and whoever hands it over waits for it.
    """

    registered = False
    pinning = None

    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def view(self, offset: int, size: int) -> torch.Tensor:
        """Return bytes of it as a tensor over the same memory."""
        return self._bytes[offset : offset + size]

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield all of it: the driver cuts what it copies by itself."""
        yield offset, size

    def pending(self, offset: int) -> None:
        """Return None: it stays as it is."""

    def finish(self) -> None:
        """Do nothing: none of it is registered."""

    def close(self) -> None:
        """Give the memory back, once no view of it is left."""
        self._bytes = torch.empty(0, dtype=torch.uint8)


class PageableArena(_Unregistered):
    """Memory of the host that a device has refused to register, taken chunk by chunk."""

    where = "in memory that is not registered"

    def __init__(self, size: int, *, chunk: int = CHUNK) -> None:
        super().__init__(size)
        if size == 0:
            return
        self._bytes = torch.frombuffer(_mapped(size), dtype=torch.uint8)
        for begin, part in stretches(0, size, chunk):
            require_free(part, size)
            # Now, not in the middle of a step.
            self._bytes[begin : begin + part : mmap.PAGESIZE] = 0


class FileArena(_Unregistered):
    """Memory of the host in a file without a name, for what does not fit into the host's limit.

    Its pages may leave the host's memory.
    """

    where = "in a file"

    def __init__(self, size: int, directory: str | None = None) -> None:
        super().__init__(size)
        if size:
            self._bytes = mapped_file(size, directory)


class SplitArena:
    """Two arenas behind each other, of which nothing lies in both."""

    def __init__(self, first: Arena, second: Arena) -> None:
        self.size = first.size + second.size
        self.registered = first.registered and second.registered
        self.where = f"{first.where}, and {second.where}"
        self._first, self._second = first, second

    def locate(self, offset: int) -> tuple[Arena, int]:
        """Return in which arena an address lies, and its address there."""
        size = self._first.size
        return (self._first, offset) if offset < size else (self._second, offset - size)

    def view(self, offset: int, size: int) -> torch.Tensor:
        """Return bytes of it, which must lie in one of the two."""
        if offset < self._first.size < offset + size:
            raise OffcertError(f"{size} bytes at {offset} lie in two arenas")
        arena, within = self.locate(offset)
        return arena.view(within, size)

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield bytes of one of the two as they can be copied."""
        arena, within = self.locate(offset)
        for begin, piece in arena.pieces(within, size):
            yield begin - within + offset, piece

    def pending(self, offset: int) -> AbstractContextManager[None] | None:
        """Return a context in which a piece is copied that is not registered yet, or None."""
        arena, within = self.locate(offset)
        return arena.pending(within)

    def finish(self) -> None:
        """Wait until all of both is registered that ever will be."""
        self._first.finish()
        self._second.finish()

    @property
    def pinning(self) -> Pinning | None:
        """How far the first has been registered, if the second never is."""
        return self._first.pinning

    def close(self) -> None:
        """Give both back."""
        try:
            self._first.close()
        finally:
            self._second.close()
