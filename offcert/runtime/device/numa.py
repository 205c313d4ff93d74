"""Where memory of the host is put, on machines where some of it is nearer to the device.

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
from pathlib import Path

# The policy "preferred". Given by Linux: linux/mempolicy.h.
_MPOL_PREFERRED = 1
# The number of the system call `mbind`, which nothing in the standard library makes. Given by
# Linux.
_MBIND = {"x86_64": 237, "aarch64": 235}
_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)

# Asks the kernel for a node for bytes from an address on; returns 0, or an error's number.
Bind = Callable[[int, int, int], int]


@dataclass(slots=True)
class Placement:
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
) -> Iterator[Placement]:
    """Let pages that are first touched meanwhile come from a node, if it has any left.

    Either the kernel is told for these addresses, or, where it does not listen, the calling thread
    stays on the node's processors meanwhile, from whose memory pages are then taken.

    Parameters
    ----------
    node : int or None
        None: nothing is asked for.
    address, size : int
        Of whole pages that nobody has touched.
    bind : callable, optional
        For tests.
    system : Path
        For tests.

    Yields
    ------
    Placement
        The place where the arena has been put, in words.
    """
    if node is None or size == 0:
        yield Placement("where the system puts it: no node is known to be nearer to the device")
        return
    error = (_mbind if bind is None else bind)(address, size, node)
    if error == 0:
        yield Placement(f"on node {node}, which is the device's, as far as that has room")
        return
    before = _processors()
    wanted = processors_of(node, system) & before
    if not wanted or not _stay(wanted):
        why = os.strerror(error) if error > 0 else "the call is not known here"
        yield Placement(f"where the system puts it: node {node} could not be asked for ({why})")
        return
    try:
        yield Placement(f"on node {node}, which is the device's: touched first by its processors")
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
