"""Which alternative a task is executed with: what it saves, less the delays that it causes.

Chen et al., TPDS 2019, §5.2.3, Eq. 10.
"""

from __future__ import annotations

from collections.abc import Iterable

from offcert.core.menu import Alternative
from offcert.heuristics.modnn.memory import Memory
from offcert.heuristics.modnn.schemes import Scheme


def gain(memory: Memory, task: int, now: int, way: Alternative, base: Alternative) -> int | None:
    """Return the gain of an alternative over the one of least workspace (Eq. 10), in ticks.

    Parameters
    ----------
    memory : Memory
        What lies where, just before the task; inputs and outputs of the task among it.
    task : int
        The task.
    now : int
        When it could begin.
    way, base : Alternative
        The alternative, and the one it is compared with.

    Returns
    -------
    int or None
        None if there is no room for its workspace, whatever leaves.
    """
    scheme: Scheme | None = None
    delay = 0
    if way.workspace:
        segment = memory.pool.find(way.workspace)
        if segment is not None:
            delay = max(0, segment.since - now)
        else:
            scheme = memory.scheme(way.workspace, now, task, task)
            if scheme is None:
                return None
            delay = max(0, scheme.ready - now)
    late = _delayed(memory, task, way.workspace, scheme) if way.workspace else 0
    return base.duration - way.duration - delay - late


def _delayed(memory: Memory, task: int, size: int, scheme: Scheme | None) -> int:
    """Return the ticks of the prefetches for the next task in need that a workspace delays.

    Those are delayed that would start now (Eq. 9) and find room without the workspace only.
    """
    view = memory.view
    away = memory.absent(memory.blocks)
    if not away:
        return 0
    nearest = min(view.next_use(tensor, task + 1) for tensor in away)
    missing = [each for each in away if view.next_use(each, task + 1) == nearest]
    if not view.is_due(task, nearest, missing):
        return 0
    without = _fitting(_free(memory, None), missing, view.sizes)
    room = _free(memory, scheme)
    _fit(room, size)
    return sum(view.back_time[each] for each in without - _fitting(room, missing, view.sizes))


def _free(memory: Memory, scheme: Scheme | None) -> list[int]:
    """Return the sizes of the free segments, once a scheme has been carried out."""
    gone = frozenset(scheme.blocks) if scheme is not None else frozenset()
    sizes = [0]
    for segment in memory.pool:
        if segment.block is None or segment.block in gone:
            sizes[-1] += segment.size
        elif sizes[-1]:
            sizes.append(0)
    return sizes


def _fitting(room: list[int], tensors: Iterable[int], sizes: list[int]) -> set[int]:
    """Return those of some tensors that fit into free segments, one after the other."""
    room = list(room)
    return {tensor for tensor in tensors if _fit(room, sizes[tensor])}


def _fit(room: list[int], size: int) -> bool:
    """Take a piece of the free segments: exact fit first, then first fit."""
    places = [place for place, free in enumerate(room) if free >= size]
    if not places:
        return False
    place = next((each for each in places if room[each] == size), places[0])
    room[place] -= size
    return True
