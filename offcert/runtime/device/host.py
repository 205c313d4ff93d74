"""The host side: how much memory is left, where offloaded bytes are, threads that copy them.

Who takes more is not refused: the system ends a process, and often this one. Registered memory is
worse, as it cannot be moved out. So memory is counted before it is taken. What a group has used
contains files that were read, which the kernel drops first; they count as free, as in what it
says of the whole system (``MemAvailable``).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path, PurePosixPath

import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.interface import Arena, DeviceEvent

_ROOT = Path("/")
# Bytes below which the host is not asked: its answer is an estimate, and not as exact. Assumed.
_EXACT = 2**20
# Names of limit and use, and of files' pages in `memory.stat`, in version 1 and 2 of groups.
_V1 = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)
_V2 = ("memory.max", "memory.current", ("active_file", "inactive_file"))


def free_memory(root: Path = _ROOT) -> int | None:
    """Return how many bytes this process can take before the system ends a process, if known."""
    left = [each for each in _lefts(root) if each is not None]
    return max(0, min(left)) if left else None


def require_free(size: int, of: int | None = None) -> None:
    """Raise an `OffcertError` if there are not so many bytes of memory left.

    `of`: as a part of more.
    """
    free = free_memory() if size >= _EXACT else None
    if free is not None and size > free:
        part = "" if of is None or of == size else f" (the last {size} of them)"
        raise OffcertError(
            f"no room for {size if of is None else of} bytes of offloaded tensors{part}: the host "
            f"has {free} bytes of memory left"
        )


def in_memory(descriptor: int, root: Path = _ROOT) -> bool:
    """Whether a file is on a file system that is memory, whatever its size says."""
    device = os.fstat(descriptor).st_dev
    return _kind(f"{os.major(device)}:{os.minor(device)}", root) in ("tmpfs", "ramfs")


@cache
def _kind(number: str, root: Path) -> str | None:
    """Return the kind of file system that has a number."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        if before.split()[2] == number:
            return after.split()[0]
    return None


def _lefts(root: Path) -> Iterator[int | None]:
    yield _available(root)
    for version, base, path in _groups(root):
        # A group's memory is that of all groups it is in. Where a container has a name that is not
        # seen inside of it, what is mounted is its own.
        group = PurePosixPath(path)
        for each in dict.fromkeys((group, *group.parents, PurePosixPath("/"))):
            yield _left_in(base / str(each).lstrip("/"), *version)


def _available(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _groups(root: Path) -> Iterator[tuple[tuple[str, str, tuple[str, str]], Path, str]]:
    """Yield the process's groups: names of files, where groups are mounted, and which one it is."""
    mounted = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield _V2, mounted, path
        elif "memory" in controllers.split(","):
            yield _V1, mounted / "memory", path


def _left_in(group: Path, limit: str, used: str, pages: tuple[str, str]) -> int | None:
    """Return the bytes that a group has left; None if it is not there, or has no limit."""
    most, taken = (_number(group / name) for name in (limit, used))
    if most is None or taken is None:
        return None
    rows = dict(line.split()[:2] for line in _lines(group / "memory.stat"))
    return most - taken + min(taken, sum(int(rows.get(name, 0)) for name in pages))


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


# Bytes below which an operator takes longer to be called than to copy; above, it may use several
# threads. Measured; no record.
_SMALL = 2**20


class HostStore:
    """Host memory of a fixed size: a memory-mapped temporary file, which has no name.

    It is given back when the store and all views of it are gone.
    """

    def __init__(self, size: int, directory: str | None = None) -> None:
        self._directory = directory
        empty = size == 0
        self._bytes = torch.empty(0, dtype=torch.uint8) if empty else mapped_file(size, directory)
        self._address = self._bytes.data_ptr()

    def another(self, size: int) -> HostStore:
        """Return another store of the same kind."""
        return HostStore(size, self._directory)

    def write(self, offset: int, storage: torch.UntypedStorage, size: int) -> None:
        """Copy a storage of `size` bytes into the store, from `offset` on."""
        if storage.device.type == "cpu" and size < _SMALL:
            ctypes.memmove(self._address + offset, storage.data_ptr(), size)
        else:
            whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            self.view(offset, size).copy_(whole)

    def read(self, offset: int, data: torch.Tensor, size: int) -> None:
        """Fill a tensor of `size` bytes with what lies in the store from `offset` on."""
        if data.device.type == "cpu" and size < _SMALL:
            ctypes.memmove(data.data_ptr(), self._address + offset, size)
        else:
            data.copy_(self.view(offset, size))

    def view(self, offset: int, size: int) -> torch.Tensor:
        """Return `size` bytes from `offset` on, as a tensor over the store."""
        return self._bytes[offset : offset + size]


def mapped_file(size: int, directory: str | None) -> torch.Tensor:
    """Return bytes in a temporary file without a name, at least one, if there is so much space."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            reserve(file.fileno(), size)
            mapped = mmap.mmap(file.fileno(), size)
    except (OSError, OverflowError) as error:
        raise OffcertError(f"no room for {size} bytes of offloaded tensors: {error}") from error
    return torch.frombuffer(mapped, dtype=torch.uint8)


def reserve(descriptor: int, size: int) -> None:
    """Make a file so many bytes long, with disk space set aside for all of them.

    If there are not so many free, on the disk or, for a file that is in memory, of that, an
    `OffcertError` says so.
    """
    space = os.fstatvfs(descriptor)
    free = space.f_bavail * space.f_frsize
    # Before others on a disk that would be full for a moment get to feel it.
    if size > free:
        raise OffcertError(
            f"no room for {size} bytes of offloaded tensors: where their file is made, {free} "
            "bytes are free"
        )
    if in_memory(descriptor):
        require_free(size)
    # Writing to a page that a full disk has no block for would end the process with a signal.
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


# Whether this is a thread of a clerk.
_local = threading.local()


class CopyDone:
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
    ) -> CopyDone:
        """Let bytes be copied once events have been reached."""
        # Views hold the memory, whatever becomes of the arenas.
        there, here = (arena.view(at, size) for arena, at in (source, target))
        return CopyDone(self._pool.submit(copy_after, there, here, tuple(after)))

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
        if isinstance(event, CopyDone):
            event.wait_as_clerk()
        else:
            event.wait_here()
    # Neither here nor while it waits does the thread hold the interpreter's lock.
    ctypes.memmove(target.data_ptr(), source.data_ptr(), source.numel())
