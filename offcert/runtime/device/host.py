"""Memory of the host: how much of it is left, and where it is put.

Who takes more is not refused: the system ends a process, and often this one. Registered memory is
worse, as it cannot be moved out. So memory is counted before it is taken. What a group has used
contains files that were read, which the kernel drops first; they count as free, as in what it
says of the whole system (``MemAvailable``).

A copy from the memory of another processor goes through the link between the processors too. Linux
says to which node a device on the PCI bus belongs. Everything here is a wish: where it cannot be
had, memory is where the system puts it, and the answer says so.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    """Return how many bytes this process can take before something is ended; None if unknown."""
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


# The policy "preferred". Given by Linux: linux/mempolicy.h.
_MPOL_PREFERRED = 1
# The number of the system call `mbind`, which nothing in the standard library makes. Given by
# Linux.
_MBIND = {"x86_64": 237, "aarch64": 235}
_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)

# Asks the kernel for a node for bytes from an address on; returns 0, or an error's number.
Bind = Callable[[int, int, int], int]


@dataclass(slots=True)
class ArenaPlace:
    """Where an arena has been put, in words that follow "the arena is"."""

    text: str


def node_of_device(bus_id: str | None, system: Path = Path("/sys")) -> int | None:
    """Return the node of a device on the PCI bus, such as ``0000:17:00.0``; None if not known.

    It is not known either where all memory is the same, that is, where there is one node.
    """
    if bus_id is None:
        return None
    try:
        text = (system / "bus/pci/devices" / bus_id.lower() / "numa_node").read_text()
        nodes = list((system / "devices/system/node").glob("node[0-9]*"))
        node = int(text)
    except (OSError, ValueError):
        return None
    return node if node >= 0 and len(nodes) > 1 else None


def processors_of(node: int, system: Path = Path("/sys")) -> frozenset[int]:
    """Return the processors of a node; none if they are not known."""
    try:
        text = (system / f"devices/system/node/node{node}/cpulist").read_text().strip()
        found: set[int] = set()
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    except (OSError, ValueError):
        return frozenset()
    return frozenset(found)


@contextmanager
def near(
    node: int | None,
    address: int,
    size: int,
    bind: Bind | None = None,
    system: Path = Path("/sys"),
) -> Iterator[ArenaPlace]:
    """Let pages that are first touched meanwhile come from a node, if it has any left.

    Either the kernel is told for these addresses, or, where it does not listen, the calling thread
    stays on the node's processors meanwhile, from whose memory pages are then taken. Yields in
    words where the arena has been put. The address is of whole pages that nobody has touched;
    without a node nothing is asked for. `bind` and `system` are for tests.
    """
    if node is None or size == 0:
        yield ArenaPlace("where the system puts it: no node is known to be nearer to the device")
        return
    error = (_mbind if bind is None else bind)(address, size, node)
    if error == 0:
        yield ArenaPlace(f"on node {node}, which is the device's, as far as that has room")
        return
    before = _processors()
    wanted = processors_of(node, system) & before
    if not wanted or not _stay(wanted):
        why = os.strerror(error) if error > 0 else "the call is not known here"
        yield ArenaPlace(f"where the system puts it: node {node} could not be asked for ({why})")
        return
    try:
        yield ArenaPlace(f"on node {node}, which is the device's: touched first by its processors")
    finally:
        _stay(before)


def _mbind(address: int, size: int, node: int) -> int:
    number = _MBIND.get(platform.machine())
    if number is None or not hasattr(os, "sched_setaffinity"):
        return -1
    words = node // _WORD + 1
    mask = (ctypes.c_ulong * words)()
    mask[node // _WORD] = 1 << node % _WORD
    try:
        system_call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return -1
    # The kernel takes one bit less than it is told.
    arguments = (number, address, size, _MPOL_PREFERRED)
    failed = system_call(
        *map(ctypes.c_long, arguments), mask, ctypes.c_long(words * _WORD + 1), ctypes.c_long(0)
    )
    return ctypes.get_errno() or -1 if failed else 0


def _processors() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def _stay(processors: frozenset[int]) -> bool:
    try:
        os.sched_setaffinity(0, processors)
    except (OSError, ValueError):
        return False
    return True
