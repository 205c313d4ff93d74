"""How much memory the host has left, for this process: the system's, and its groups' limits.

Who takes more is not refused: the system ends a process, and often this one. Registered memory is
worse, as it cannot be moved out. So memory is counted before it is taken. What a group has used
contains files that were read, which the kernel drops first; they count as free, as in what it
says of the whole system (``MemAvailable``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from offcert.core.errors import OffcertError

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
    """Return how many bytes this process can take before something is ended; None if unknown.

    Parameters
    ----------
    root : Path
        Where ``proc`` and ``sys`` are.
    """
    left = [each for each in _lefts(root) if each is not None]
    return max(0, min(left)) if left else None


def require_free(size: int, of: int | None = None) -> None:
    """Refuse to take more memory of the host than is left.

    Parameters
    ----------
    size : int
        Bytes that are about to be taken.
    of : int, optional
        Bytes that they are a part of, for the message.

    Raises
    ------
    OffcertError
        If there are not so many.
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
