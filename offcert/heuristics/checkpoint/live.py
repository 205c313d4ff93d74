"""A set of checkpoints as a program that the runtime can carry out, and the bytes it holds.

From checkpoint `h` to the next, `i`, the stages ``h … i-1`` are one segment, as under
``torch.utils.checkpoint``: its input stays; when its backward pass begins, *all* its stages run
again. Two stretches are no segments, as running them again would bring nothing back that is gone:

- the last one, which is needed backward as soon as it has run forward;
- a single stage that keeps nothing but its output, as both its ends are stored.

Data of a chain are ``d_0 … d_n``, in bytes; ``d_0`` is the input, ``d_n`` the output, both are
checkpoints. Chen's rule tries limits until segments of √n layers each remain: Tianqi Chen, Bing Xu,
Chiyuan Zhang and Carlos Guestrin, *Training Deep Nets with Sublinear Memory Cost*, 2016, §4.1. It
is optimal up to rounding if all sizes are equal, and knows no sizes else. Both papers' selections
ask for the least bytes to store if no segment may exceed a limit: O(n) by a queue, compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.compiled import IntArray, plain_inner
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.program import Program, Segment
from offcert.core.trace import require_integer


def require_checkpoints(count: int, checkpoints: Sequence[int]) -> None:
    """Raise unless these are checkpoints of `count` data."""
    for index, checkpoint in enumerate(checkpoints):
        require_integer(checkpoint, f"checkpoints[{index}]", 0)
        if index and checkpoint <= checkpoints[index - 1]:
            raise InputError(
                f"checkpoints must increase, but {checkpoint} follows {checkpoints[index - 1]}"
            )
    if len(checkpoints) < 2 or checkpoints[0] != 0 or checkpoints[-1] != count - 1:
        raise InputError(
            f"checkpoints must begin with 0 and end with {count - 1}, not be {list(checkpoints)}"
        )


def chen_memory(sizes: Sequence[int], checkpoints: Sequence[int]) -> int:
    """Return the bytes stored between segments, and of the largest segment with its end.

    Chen et al. 2016, Algorithm 3: the sum of its two outputs, the last segment among them. A
    segment counts with the checkpoint that ends it (``temp`` there). The input is not counted, and
    the output is part of the last segment.
    """
    require_checkpoints(len(sizes), checkpoints)
    stored = sum(sizes[checkpoint] for checkpoint in checkpoints[1:-1])
    return stored + max(sum(sizes[h + 1 : i + 1]) for h, i in pairwise(checkpoints))


def checkpoint_program(chain: CheckpointChain, checkpoints: Sequence[int]) -> Program:
    """Return the program that stores a set of checkpoints, and runs again what lies between."""
    require_checkpoints(len(chain.output), checkpoints)
    return Program(
        Segment(h, i - 1)
        for h, i in pairwise(checkpoints)
        if i < len(chain) and (i > h + 1 or chain.extra[h])
    )


def checkpoint_execution(chain: CheckpointChain, checkpoints: Sequence[int]) -> Execution:
    """Return the execution of `checkpoint_program` in which nothing unread is kept."""
    network = chain.network()
    strategy = checkpoint_program(chain, checkpoints).strategy(network)
    return strategy.without_unread(network).expand(network)


def live_bytes(chain: CheckpointChain, checkpoints: Sequence[int]) -> int:
    """Return the most bytes that are live on the device at once, exactly: the peak of the trace."""
    return checkpoint_execution(chain, checkpoints).trace.peak_memory


def recomputed_time(chain: CheckpointChain, checkpoints: Sequence[int]) -> int:
    """Return the ticks that running stages again takes."""
    program = checkpoint_program(chain, checkpoints)
    return sum(sum(chain.forward[each.first : each.last + 1]) for each in program.segments)


# The largest total of sizes. Derived: kernels add up to three totals in 64 bits.
LARGEST_SUM = 2**60


@dataclass(frozen=True, slots=True)
class Selection:
    """The data of a chain that are stored from the first forward pass on, 0 and n among them.

    The memory is the bytes that this takes under the model for which the algorithm selects.
    """

    checkpoints: tuple[int, ...]
    memory: int


def size_array(sizes: Sequence[int], field: str = "sizes") -> IntArray:
    """Return ``d_0 … d_n`` as an array of ``int64``."""
    if len(sizes) < 2:
        raise InputError(f"{field} must have at least 2 entries, not {len(sizes)}")
    for index, size in enumerate(sizes):
        require_integer(size, f"{field}[{index}]", 0)
    total = sum(map(int, sizes))
    if total >= LARGEST_SUM:
        raise InputError(f"{field} must sum to less than 2**60 bytes, not {total}")
    return np.array(sizes, dtype=np.int64)


def gradient_array(sizes: IntArray, gradients: Sequence[int] | None) -> IntArray:
    """Return the sizes of the gradients of ``d_0 … d_n``; by default those of the data."""
    if gradients is None:
        return sizes
    array = size_array(gradients, "gradients")
    if len(array) != len(sizes):
        raise InputError(f"gradients must have {len(sizes)} entries, not {len(array)}")
    return array


def path(following: IntArray) -> tuple[int, ...]:
    """Return the checkpoints from 0 to n of which each names the next."""
    last = len(following) - 1
    checkpoints = [0]
    while checkpoints[-1] != last:
        checkpoints.append(int(following[checkpoints[-1]]))
    return tuple(checkpoints)


def path_back(previous: IntArray) -> tuple[int, ...]:
    """Return the checkpoints from 0 to n of which each names the one before."""
    checkpoints = [len(previous) - 1]
    while checkpoints[-1] != 0:
        checkpoints.append(int(previous[checkpoints[-1]]))
    return tuple(reversed(checkpoints))


# Rows of the scratch array. By definition.
STORED, PREVIOUS, QUEUE = 0, 1, 2
ROWS = 3


@plain_inner
def least_stored(sizes: IntArray, totals: IntArray, limit: int, scratch: IntArray) -> int:
    """Return the least bytes of checkpoints between which lie at most `limit` bytes each.

    ``STORED`` of `i` is the least for ``d_0 … d_i`` with both ends stored: ``d_i`` and the least
    of those `h` for which ``d_{h+1} … d_{i-1}`` sum to at most the limit. These `h` are a window
    that moves to the right, and those that may still become its least wait in a queue (selection
    paper, Algorithm 3).
    """
    stored, previous, queue = scratch[STORED], scratch[PREVIOUS], scratch[QUEUE]
    stored[0] = sizes[0]
    queue[0] = 0
    head, tail = 0, 1
    for i in range(1, len(sizes)):
        while totals[i - 1] - totals[queue[head]] > limit:
            head += 1
        best = queue[head]
        previous[i] = best
        stored[i] = sizes[i] + stored[best]
        while tail > head and stored[queue[tail - 1]] >= stored[i]:
            tail -= 1
        queue[tail] = i
        tail += 1
    return int(stored[len(sizes) - 1])


# Budgets that are tried: few are enough, as the pass does the same for many budgets. Arbitrary.
BUDGETS = 6


def budget_search(
    sizes: Sequence[int],
    budgets: int | None = BUDGETS,
    measure: Callable[[Sequence[int]], int] | None = None,
) -> Selection:
    """Return the best selection of the greedy pass over all budgets that are tried.

    With budget 0 everything is stored: `x` bytes between segments, the largest segment of `y`.
    Then budgets from ``√(xy/2)`` to ``√(2xy)`` are tried at equal distances.
    """
    plain = [int(size) for size in size_array(sizes)]
    cost = measure or (lambda checkpoints: chen_memory(plain, checkpoints))
    tried = _all(plain) if budgets is None else (_greedy(plain, b) for b in _grid(plain, budgets))
    found = ((cost(checkpoints), checkpoints) for checkpoints in tried)
    memory, checkpoints = min(found, key=lambda each: each[0])
    return Selection(checkpoints, memory)


def _grid(sizes: Sequence[int], budgets: int) -> Iterator[int]:
    """Yield 0, and some budgets around the guess that follows from it."""
    yield 0
    product = sum(sizes[1:-1]) * max(sizes[1:])
    low, high = math.isqrt(product // 2), math.isqrt(2 * product)
    for index in range(budgets):
        yield low + (high - low) * index // max(1, budgets - 1)


def _greedy(sizes: Sequence[int], budget: int) -> tuple[int, ...]:
    checkpoints, segment = [0], 0
    last = len(sizes) - 1
    for index in range(1, last):
        segment += sizes[index]
        if segment > budget:
            checkpoints.append(index)
            segment = 0
    return (*checkpoints, last)


def _all(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every selection that some budget gives, from the one that stores most.

    The pass does the same for all budgets below the least segment that it ends.
    """
    totals = list(accumulate(sizes))
    budget = 0
    while True:
        checkpoints = _greedy(sizes, budget)
        yield checkpoints
        if len(checkpoints) == 2:
            return
        budget = min(totals[i] - totals[h] for h, i in pairwise(checkpoints[:-1]))


def sqrt_rule(sizes: Sequence[int]) -> Selection:
    """Store every ``⌈√n⌉``-th of the data.

    Rounding up gives the sets that the selection paper lists for this rule (its Table 2).
    """
    array = size_array(sizes)
    layers = len(array) - 1
    step = math.isqrt(layers - 1) + 1
    checkpoints = (*range(0, layers, step), layers)
    return Selection(checkpoints, chen_memory(sizes, checkpoints))
