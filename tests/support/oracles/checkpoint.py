"""Checkpoints of chains: all subsets at once, random sizes, and the algorithms as printed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np

from papers.checkpoint_chains.memory_models import static_memory


def random_sizes(rng: random.Random, layers: int) -> list[int]:
    """Draw ``d_0 … d_n``: with zeros and ties, all equal, shrinking, or of very different size."""
    kind = rng.randrange(4)
    if kind == 0:
        return [rng.choice((0, 0, 1, 2, 3, 5, 8)) for _ in range(layers + 1)]
    if kind == 1:
        return [rng.choice((1, 7))] * (layers + 1)
    if kind == 2:
        return sorted((rng.randint(1, 40) for _ in range(layers + 1)), reverse=True)
    return [rng.choice((1, 10, 100)) * rng.randint(1, 9) for _ in range(layers + 1)]


def random_chains(count: int, seed: int, most: int = 14) -> list[list[int]]:
    """Draw sizes of `count` chains of 1 to `most` layers; every tenth has the most."""
    rng = random.Random(seed)
    lengths = [most if i % 10 == 0 else rng.randint(1, most) for i in range(count)]
    return [random_sizes(rng, layers) for layers in lengths]


def subsets(layers: int) -> Iterator[tuple[int, ...]]:
    """Yield every set of checkpoints of a chain."""
    for chosen in range(layers):
        for inner in combinations(range(1, layers), chosen):
            yield 0, *inner, layers


def least(sizes: Sequence[int], memory: Callable[[Sequence[int], Sequence[int]], int]) -> int:
    """Return the least memory of any set of checkpoints, one after the other."""
    return min(memory(sizes, checkpoints) for checkpoints in subsets(len(sizes) - 1))


def least_both(sizes: Sequence[int], gradients: Sequence[int] | None = None) -> tuple[int, int]:
    """Return the least static and the least dynamic memory of any set of checkpoints.

    Goes along the chain with all sets together. Bit `i - 1` of a set's number says whether ``d_i``
    is a checkpoint.
    """
    gradients = sizes if gradients is None else gradients
    last = len(sizes) - 1
    sets = np.arange(2 ** (last - 1))
    stored = np.full(len(sets), sizes[0])
    buffer = np.full(len(sets), gradients[0])
    segment, largest, peak = np.zeros((3, len(sets)), np.int64)
    for i in range(1, last + 1):
        ends = (sets >> (i - 1) & 1).astype(bool) if i < last else np.ones(len(sets), bool)
        largest = np.maximum(largest, segment)
        needed = stored + sizes[i] + segment + buffer
        peak = np.where(ends, np.maximum(peak, needed), peak)
        stored = stored + np.where(ends, sizes[i], 0)
        segment = np.where(ends, 0, segment + sizes[i])
        buffer = np.where(ends, gradients[i], np.maximum(buffer, gradients[i]))
    return int((stored + largest).min()), int(peak.min())


def _sums(sizes: Sequence[int]) -> list[int]:
    count = len(sizes)
    return sorted({sum(sizes[i:j]) for i in range(1, count) for j in range(i + 1, count + 1)})


def algorithm_3_as_printed(sizes: Sequence[int]) -> int:
    """Return ``min over s of s + M(n, s)``, with the queue as it is printed."""
    found = [_printed_queue(sizes, len(sizes) - 1, limit) for limit in _sums(sizes)]
    return min(value for value in found if value is not None)


def algorithm_3_with_output_stored(sizes: Sequence[int]) -> int:
    """Return the same with ``d_n`` stored, as the paper's text has it: ``s + d_n + M(n-1, s)``."""
    last = len(sizes) - 1
    found = [
        value + sizes[last]
        for limit in (0, *_sums(sizes))
        if (value := _printed_queue(sizes, last - 1, limit)) is not None
    ]
    return min(found)


def _printed_queue(sizes: Sequence[int], last: int, limit: int) -> int | None:
    """Return ``s + M(last, s)``; None if the queue runs empty before its head is asked for."""
    memory = {-1: 0, 0: sizes[0]}
    queue = [0]
    for i in range(1, last + 1):
        first = next(j for j in range(i + 1) if sum(sizes[j + 1 : i + 1]) <= limit)
        while queue and first > queue[0]:
            queue.pop(0)
        if not queue:
            return None
        memory[i] = sizes[queue[0]] + memory[queue[0] - 1]
        entered = sizes[i] + memory[i - 1]
        while queue and sizes[queue[-1]] + memory[queue[-1] - 1] > entered:
            queue.pop()
        queue.append(i)
    return limit + memory[last]


def equation_8(sizes: Sequence[int]) -> int:
    """Return ``min over s of s + M(n, s)`` by the recursion (8): ``d_n`` need not be stored."""
    best = None
    for limit in (0, *_sums(sizes)):
        memory = {-1: 0, 0: sizes[0]}
        for i in range(1, len(sizes)):
            memory[i] = min(
                sizes[j] + memory[j - 1] for j in range(i + 1) if sum(sizes[j + 1 : i + 1]) <= limit
            )
        value = limit + memory[len(sizes) - 1]
        best = value if best is None else min(best, value)
    assert best is not None
    return best


def _least_with(sizes: Sequence[int], i: int, j: int) -> int:
    """Return ``U(i, j)`` of Eq. (15)."""
    return sum(sizes[i + 1 : j + 1]) + max(sizes[i:j])


def algorithm_5_as_printed(sizes: Sequence[int]) -> int:
    """Return ``M(1)``."""
    last = len(sizes) - 1
    memory = {last: sizes[last]}
    for i in range(last - 1, 0, -1):
        memory[i] = min(
            sizes[i] + max(memory[j], _least_with(sizes, i, j)) for j in range(i + 1, last + 1)
        )
    return memory[1]


def algorithm_6_as_printed(sizes: Sequence[int], in_queue: bool = False) -> int:
    """Return ``M(0)``, with lines 8 to 16 as printed, or with the next in the queue for ``j + 1``.

    For sizes above 0; with others the element from which line 4 starts may have left the queue.
    """
    last = len(sizes) - 1
    memory = {last: sizes[last]}
    queue, best = [last], last
    for i in range(last - 1, -1, -1):
        j = best
        while _least_with(sizes, i, j) >= memory[j] and j != queue[0]:
            j = queue[queue.index(j) - 1]
        beside = j + 1
        if in_queue:
            beside = queue[queue.index(j) + 1] if j != queue[-1] else last + 1
        values = {k: max(memory[k], _least_with(sizes, i, k)) for k in (j, beside) if k <= last}
        best = min(values, key=lambda k: (values[k], k))
        memory[i] = sizes[i] + values[best]
        while queue and memory[queue[0]] >= memory[i]:
            queue.pop(0)
        queue.insert(0, i)
    return memory[0]


def smallest_failure(
    algorithm: Callable[[Sequence[int]], int], right: Callable[[Sequence[int]], int], layers: int
) -> tuple[int, ...] | None:
    """Return the first chain on which an algorithm errs: fewest layers, then fewest bytes.

    Sizes are positive. Looks at chains of at most that many layers, with at most 4 bytes more than
    they have data.
    """
    for count in range(2, layers + 2):
        for total in range(count, count + 5):
            for sizes in _compositions(count, total):
                if algorithm(sizes) != right(sizes):
                    return sizes
    return None


def _compositions(count: int, total: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (total,)
        return
    for first in range(1, total - count + 2):
        for rest in _compositions(count - 1, total - first):
            yield first, *rest


def static_optimum(sizes: Sequence[int]) -> int:
    """Return the least static memory."""
    return least(sizes, static_memory)
