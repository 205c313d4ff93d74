"""The sub-batch that a memory budget asks for (moDNN paper, §5.1.2, Eq. 8).

The largest for which any 15 % of consecutive tasks can be executed while nothing leaves. Workspaces
come from profiling, which needs a sub-batch, so profiling and selection alternate until nothing
changes; where that never happens, the largest is taken that fits by its own profile. How Eq. 8 is
read here, and which printed numbers decide it, is in docs/theory/modnn.md;
`benchmarks/modnn_readings.py` has other readings beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate

from offcert.core.errors import InputError, NoPlanError
from offcert.core.trace import Trace, require_integer
from offcert.heuristics.modnn.vdnn_tasks import VdnnOutcome, vdnn_tasks
from offcert.questions.schedule.problem import Problem
from offcert.questions.split.menu import Menu
from offcert.questions.split.problem import Round


def task_memory(trace: Trace, menu: Menu | None = None) -> tuple[int, ...]:
    """Return the bytes of what each task reads and writes, and of its least workspace (Eq. 6)."""
    offers = (menu or Menu()).of
    needs = [
        min((way.workspace for way in offers[index]), default=0)
        if index in offers
        else operation.workspace
        for index, operation in enumerate(trace.operations)
    ]
    for tensor in trace.tensors:
        if tensor.evictable:
            for use in tensor.uses:
                if use >= 0:
                    needs[use] += tensor.size
    return tuple(needs)


def held_memory(trace: Trace) -> tuple[int, ...]:
    """Return the bytes that may not leave, during each task: the weights, S_W in the paper."""
    change = [0] * (len(trace) + 1)
    for tensor in trace.tensors:
        if not tensor.evictable:
            change[max(tensor.uses[0], 0)] += tensor.size
            change[tensor.uses[-1] + 1] -= tensor.size
    return tuple(accumulate(change[:-1]))


def least_memory(trace: Trace, menu: Menu | None = None) -> int:
    """Return the least bytes with which there is a schedule for some choice (Eq. 7).

    Of a step in sub-batches, that of one image has the least of all.
    """
    needs = zip(task_memory(trace, menu), held_memory(trace), strict=True)
    return max(max(need + held for need, held in needs), trace.resident_at_start)


ALPHA = Fraction(15, 100)
"""Part of the tasks to be executed while nothing leaves. Given by the paper, from experiments."""

Needs = Callable[[Trace, Sequence[int], Fraction], int]
"""Bytes that Eq. 8 asks for: of a trace, the workspace of each task, and alpha."""


@dataclass(frozen=True)
class SubBatchChoice:
    """A sub-batch, in images, and how it was found.

    Iterations are pairs: the sub-batch that was profiled, and the one that was selected with what
    that said. Where the criterion holds for no sub-batch, the size is 1 and does not fit.
    """

    size: int
    iterations: tuple[tuple[int, int], ...]
    fits: bool


def select_sub_batch(
    profile: Callable[[int], Round],
    batch: int,
    memory: int,
    alpha: Fraction = ALPHA,
    needs: Needs | None = None,
) -> SubBatchChoice:
    """Return the sub-batch that the paper's method selects, of the images of a batch.

    The profile returns the round of so many images: sizes of tensors, and the alternatives of
    tasks. Alpha, above 0 and at most 1, is the part of the tasks that are to be executed while
    nothing leaves. Another reading of Eq. 8 than `window_memory` may be given.
    """
    require_integer(batch, "batch", 1)
    if not 0 < alpha <= 1:
        raise InputError(f"alpha must be above 0 and at most 1, not {alpha}")
    known, needs = cache(profile), needs or window_memory

    def fits(size: int, profiled: int) -> bool:
        return needs(known(size).trace, workspaces(known(profiled)), alpha) <= memory

    iterations: list[tuple[int, int]] = []
    profiled = batch
    while True:
        size = regular(_largest(batch, profiled, fits), batch)
        iterations.append((profiled, size))
        if size == profiled or size in {before for before, _ in iterations}:
            break
        profiled = size
    if size != profiled:
        # It goes round in a circle. A size at rest is one that fits by its own profile.
        sizes = {regular(images, batch) for images in range(1, batch + 1)}
        size = next((each for each in sorted(sizes, reverse=True) if fits(each, each)), 1)
    return SubBatchChoice(size, tuple(iterations), fits(size, size))


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


def window_width(trace: Trace, alpha: Fraction) -> int:
    """Return how many tasks in a row `alpha` of all tasks are, rounded up.

    The update of every weight (BP3, Eq. 5) is a task, too, though neither the paper's graph nor a
    trace draws it: there is one for every ``BP2``.
    """
    updates = sum(operation.name.startswith("BP2 ") for operation in trace.operations)
    return min(len(trace), math.ceil(alpha * (len(trace) + updates)))


def window_memory(trace: Trace, workspace: Sequence[int], alpha: Fraction = ALPHA) -> int:
    """Return the most bytes that `alpha` of the tasks, one after the other, ask for (Eq. 8).

    What they read that was made before is there from the first of them on, what they make from
    then on. It stays for as long as anybody needs it; what nobody needs any more gives its room to
    what is made next. On top comes the largest of their workspaces, and what may not leave.
    """
    width = window_width(trace, alpha)
    using: list[set[int]] = [set() for _ in trace.operations]
    for number, tensor in enumerate(trace.tensors):
        for use in tensor.uses if tensor.evictable else ():
            if use >= 0:
                using[use].add(number)
    held = held_memory(trace)
    most = 0
    for first in range(len(trace) - width + 1):
        window = slice(first, first + width)
        change = [0] * (width + 1)
        for number in set().union(*using[window]):
            tensor = trace.tensors[number]
            change[max(tensor.uses[0] - first, 0)] += tensor.size
            change[min(tensor.uses[-1] + 1 - first, width)] -= tensor.size
        live = max(accumulate(change))
        most = max(most, live + max(workspace[window]) + max(held[window]))
    return most


def vdnn_plus(
    profile: Callable[[int], Round], batch: int, problem: Callable[[Round], Problem]
) -> tuple[int, VdnnOutcome]:
    """Return vDNN with the sub-batch of Eq. 8, or the next smaller one in which it finds room.

    It offloads all layers, as in the moDNN paper (docs/theory/modnn.md). Functions return the round
    of so many images, and the problem of a round. A `NoPlanError` says that a single image does not
    fit.
    """
    memory = problem(profile(1)).platform.memory
    size = select_sub_batch(profile, batch, memory).size
    while True:
        found = profile(size)
        try:
            return size, vdnn_tasks(problem(found), found.menu)
        except NoPlanError:
            if size == 1:
                raise
            size = 1 << ((size - 1).bit_length() - 1)
