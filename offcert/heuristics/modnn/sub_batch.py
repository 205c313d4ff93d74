"""Which sub-batch a memory budget asks for (moDNN paper, §5.1.2, Eq. 8).

The largest for which any 15 % of consecutive tasks find room together. Workspaces come from
profiling, which needs a sub-batch, so profiling and selection alternate until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from offcert.core.errors import InputError
from offcert.core.step import Round
from offcert.core.trace import Trace, require_integer
from offcert.heuristics.modnn.lower_bounds import held_memory

ALPHA = Fraction(15, 100)
"""Part of the tasks that are to find room together; the paper's, found by experiment."""


@dataclass(frozen=True)
class Selection:
    """A sub-batch, and how it was found.

    Attributes
    ----------
    size : int
        Images in a sub-batch.
    iterations : tuple of (int, int)
        The sub-batch that was profiled, and the one that was selected with what that said.
    fits : bool
        Whether the criterion holds for it; where it holds for no sub-batch, the size is 1.
    """

    size: int
    iterations: tuple[tuple[int, int], ...]
    fits: bool


def select_sub_batch(
    profile: Callable[[int], Round], batch: int, memory: int, alpha: Fraction = ALPHA
) -> Selection:
    """Return the sub-batch that the paper's method selects.

    Parameters
    ----------
    profile : callable
        Returns the round of so many images: sizes of tensors, and the alternatives of tasks.
    batch : int
        Images in the whole batch.
    memory : int
        Bytes on the device.
    alpha : Fraction
        Part of the tasks that are to find room together, above 0 and at most 1.

    Raises
    ------
    InputError
        If `alpha` is out of its range, or there are no images.
    """
    require_integer(batch, "batch", 1)
    if not 0 < alpha <= 1:
        raise InputError(f"alpha must be above 0 and at most 1, not {alpha}")
    known = cache(profile)

    def fits(size: int, profiled: int) -> bool:
        return window_memory(known(size).trace, workspaces(known(profiled)), alpha) <= memory

    iterations: list[tuple[int, int]] = []
    profiled = batch
    while True:
        size = regular(_largest(batch, profiled, fits), batch)
        iterations.append((profiled, size))
        if size == profiled or size in {before for before, _ in iterations}:
            break
        profiled = size
    if size != profiled:
        # It goes round in a circle: the smallest in it is the safest.
        turn = [before for before, _ in iterations]
        size = min(turn[turn.index(size) :])
    return Selection(size, tuple(iterations), fits(size, size))


def _largest(batch: int, profiled: int, fits: Callable[[int, int], bool]) -> int:
    """Search the largest sub-batch that fits, by halving; 1 if none does."""
    low, high = 1, batch
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle, profiled):
            low = middle
        else:
            high = middle - 1
    return low


def regular(size: int, batch: int) -> int:
    """Return a multiple of 64, or else a power of two, at most `size`; a whole batch stays whole.

    The paper: a multiple of 64 above 64, of 32 between 32 and 64, and so on.
    """
    if size >= batch:
        return batch
    return size - size % 64 if size >= 64 else 1 << (size.bit_length() - 1)


def workspaces(profile: Round) -> list[int]:
    """Return the workspace of each task's fastest alternative."""
    trace = profile.chosen(profile.menu.fastest())
    return [operation.workspace for operation in trace.operations]


def window_memory(trace: Trace, workspace: list[int], alpha: Fraction = ALPHA) -> int:
    """Return the most bytes that `alpha` of the tasks, one after the other, use together (Eq. 8).

    What several of them use counts once, and of their workspaces the largest; what may not leave
    comes on top.
    """
    count = len(trace)
    width = max(1, -(-count * alpha.numerator // alpha.denominator))
    change = [0] * (count + 1)
    for tensor in trace.tensors:
        if not tensor.evictable:
            continue
        # Windows are called by their first task; those that begin from `free` on do not count yet.
        free = 0
        for use in tensor.uses:
            if use < 0:
                continue
            first = max(free, use - width + 1)
            change[first] += tensor.size
            change[use + 1] -= tensor.size
            free = use + 1
    held = held_memory(trace)
    most = total = 0
    for first in range(count - width + 1):
        total += change[first]
        window = slice(first, first + width)
        most = max(most, total + max(workspace[window]) + max(held[window]))
    return most
