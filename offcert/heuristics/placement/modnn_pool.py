"""moDNN's memory pool (Chen et al., "moDNN: Memory optimal DNN training on GPUs", 2018, §3.3).

A list of free and taken blocks. A request takes the first free block that has exactly its size, as
many tensors of a network are equally large, and else the first one that is large enough. Where none
is, moDNN makes room by offloading neighbours, or by *defragmentation*: all data leave, and what is
needed returns to the beginning of the pool. Both change the schedule. For a schedule that is fixed,
`modnn_pool` says which pool the requests take without them, and `defragmentations` how often a pool
of some capacity would have to be cleared.
"""

from __future__ import annotations

from bisect import insort

from offcert.core.errors import InputError
from offcert.heuristics.placement.in_order import Rule, in_time, placed_in_order
from offcert.questions.placement.problem import Placement, PlacementProblem


def modnn_pool(problem: PlacementProblem) -> Placement:
    """Place residences as they begin: in a free block of exactly their size, or the first one."""
    return placed_in_order(problem, in_time(problem), Rule.EXACT)


def defragmentations(problem: PlacementProblem, capacity: int) -> int:
    """Return how often moDNN's pool would be cleared because no free block is large enough.

    After clearing, what is live lies at the beginning of the pool, in order of its addresses.

    Parameters
    ----------
    problem : PlacementProblem
        Its own capacity is not looked at.
    capacity : int
        Bytes of the pool, at least the load.

    Raises
    ------
    InputError
        If the capacity is less than the load: clearing does not help.
    """
    if capacity < problem.load:
        raise InputError(f"capacity must be at least the load, {problem.load}, not {capacity}")
    sizes, residences = problem.sizes, problem.residences
    # Address, size and residence of what is live, by address.
    live: list[tuple[int, int, int]] = []
    count = 0
    for index in in_time(problem):
        if sizes[index] == 0:
            continue
        now = residences[index].start
        live = [block for block in live if residences[block[2]].end > now]
        address = _free_block(live, sizes[index], capacity)
        if address is None:
            count += 1
            live = _packed(live)
            address = sum(size for _, size, _ in live)
        insort(live, (address, sizes[index], index))
    return count


def _free_block(live: list[tuple[int, int, int]], size: int, capacity: int) -> int | None:
    """Return the address of the first free block of a size, or of the first that has more."""
    free, first = 0, None
    for address, taken, _ in [*live, (capacity, 0, -1)]:
        if address - free == size:
            return free
        if first is None and address - free > size:
            first = free
        free = address + taken
    return first


def _packed(live: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    address, packed = 0, []
    for _, size, index in live:
        packed.append((address, size, index))
        address += size
    return packed
