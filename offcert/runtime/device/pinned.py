"""Arenas on the host: registered with the device, or in a file.

PyTorch's own pinned memory is rounded up to the next power of two, a 9 GiB arena to 16, and kept
when it is given back. So an arena is a mapping of exactly the planned bytes, which is registered
once and unregistered once, whatever happens in between. Drivers refuse to register 512 GiB and more
by one call, however much memory there is. So it is registered in chunks, and no copy goes
across the border of two, which CUDA would refuse, or let the host wait for. To register memory is
to take it: before all of it, and again before each chunk, it is asked how much the host has left.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.host import near, require_free
from offcert.runtime.device.interface import Arena
from offcert.runtime.device.store import mapped_file

# The flag "portable": for all devices of the process, whichever is current. Given by CUDA.
_PORTABLE = 1
# Bytes that are registered by one call: far from where drivers fail, whole pages of any size, and
# few enough for the memory that others take meanwhile to be seen. Arbitrary.
CHUNK = 2**32


class RegistrationError(OffcertError):
    """Memory that is there, but that a device refuses to register."""


class Registrar(Protocol):
    """Makes memory of the host known to a device."""

    def register(self, address: int, size: int) -> None:
        """Make it known.

        Raises
        ------
        RegistrationError
            If the device does not take so much.
        """

    def unregister(self, address: int) -> None:
        """Make it unknown."""

    def settle(self) -> None:
        """Wait until no copy that has been handed over needs the host any more."""


class CudaRegistrar:
    """Registers memory with CUDA, through the runtime that PyTorch has loaded.

    Parameters
    ----------
    device : torch.device
        In whose context it is done.
    streams : sequence of torch.cuda.Stream
        The streams that copy.
    """

    def __init__(self, device: torch.device, streams: Sequence[torch.cuda.Stream]) -> None:
        self._device = device
        self._streams = tuple(streams)
        # CUDA does not survive a fork; what the parent has registered is the parent's.
        self._process = os.getpid()

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


def stretches(offset: int, size: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Yield bytes from an address on, cut at all multiples of a chunk: addresses, and sizes."""
    end = offset + size
    while offset < end:
        border = min(end, (offset // chunk + 1) * chunk)
        yield offset, border - offset
        offset = border


class PinnedArena:
    """Memory of the host, of exactly so many bytes, that a device can copy from and to by itself.

    It is a mapping that is shared with children: were it private, a child that is forked, such as a
    worker that loads data, would make the kernel copy all of it.

    It is unregistered when it is closed, or nobody has it any more, or the interpreter ends; each
    time after the copies that are still to be done. The mapping goes when its last view does.

    Parameters
    ----------
    size : int
        Bytes.
    registrar : Registrar
        The registrar of the device.
    node : int, optional
        Of the memory that is nearest to the device (`offcert.runtime.device.host`).
    chunk : int
        Bytes that are registered at a time; for a real device, whole pages.

    Attributes
    ----------
    size : int
        Bytes.
    where : str
        Where its memory is, in words that follow "the arena is".

    Raises
    ------
    OffcertError
        If the host has not so much left.
    RegistrationError
        If the device does not take it.
    """

    registered = True

    def __init__(
        self, size: int, registrar: Registrar, node: int | None = None, *, chunk: int = CHUNK
    ) -> None:
        self.size = size
        self.where = "empty"
        self._chunk = chunk
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._finalizer: weakref.finalize[..., PinnedArena] | None = None
        if size == 0:
            return
        mapped = _mapped(size)
        self._bytes = torch.frombuffer(mapped, dtype=torch.uint8)
        address = self._bytes.data_ptr()
        # The mapping is held until it has been unregistered, views or no views. What may or may not
        # have been registered when an interrupt comes is unregistered, which does no harm.
        known: list[int] = []
        self._finalizer = weakref.finalize(self, _release, registrar, known, mapped)
        try:
            # Whole pages are placed; to register them is to touch them.
            with near(node, address, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE) as placement:
                for begin, part in stretches(0, size, chunk):
                    require_free(part, size)
                    known.append(address + begin)
                    try:
                        registrar.register(address + begin, part)
                    except OffcertError:
                        known.pop()
                        raise
        except OffcertError:
            self._finalizer.detach()
            _unregister(registrar, known)
            raise
        self.where = placement.text

    def view(self, offset: int, size: int) -> torch.Tensor:
        """Return bytes of it as a tensor over the same memory."""
        return self._bytes[offset : offset + size]

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield bytes of it as they were registered, each to be copied by itself."""
        return stretches(offset, size, self._chunk)

    @property
    def closed(self) -> bool:
        """Whether the device does not know the memory any more."""
        return self._finalizer is None or not self._finalizer.alive

    def close(self) -> None:
        """Wait for the copies that are still to be done, and give the memory back."""
        if self._finalizer is not None:
            self._finalizer()
        self._bytes = torch.empty(0, dtype=torch.uint8)


def _release(registrar: Registrar, known: Sequence[int], mapped: mmap.mmap) -> None:
    try:
        registrar.settle()
    finally:
        # Also after an error of the device, which is told to whoever closes.
        _unregister(registrar, known)


def _unregister(registrar: Registrar, known: Sequence[int]) -> None:
    """Make every chunk unknown, whatever becomes of the others."""
    with ExitStack() as stack:
        for address in known:
            stack.callback(registrar.unregister, address)


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

    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def view(self, offset: int, size: int) -> torch.Tensor:
        """Return bytes of it as a tensor over the same memory."""
        return self._bytes[offset : offset + size]

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield all of it: the driver cuts what it copies by itself."""
        yield offset, size

    def close(self) -> None:
        """Give the memory back, once no view of it is left."""
        self._bytes = torch.empty(0, dtype=torch.uint8)


class PageableArena(_Unregistered):
    """Memory of the host that a device has refused to register.

    Parameters
    ----------
    size : int
        Bytes.
    chunk : int
        Bytes that are taken at a time.

    Raises
    ------
    OffcertError
        If the host has not so much left.
    """

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

    Parameters
    ----------
    size : int
        Bytes.
    directory : str, optional
        Where the file is made; by default where the system puts temporary files.

    Raises
    ------
    OffcertError
        If there is not so much space.
    """

    where = "in a file"

    def __init__(self, size: int, directory: str | None = None) -> None:
        super().__init__(size)
        if size:
            self._bytes = mapped_file(size, directory)


class SplitArena:
    """Two arenas behind each other, of which nothing lies in both.

    Parameters
    ----------
    first, second : Arena
        Addresses below the first one's size are in it, others in the second.
    """

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

    def close(self) -> None:
        """Give both back."""
        try:
            self._first.close()
        finally:
            self._second.close()
