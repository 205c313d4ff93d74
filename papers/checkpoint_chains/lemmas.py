"""The selection paper's Lemmas 1 to 4 and the steps of its algorithms, from their definitions.

Nothing here is shared with `offcert.heuristics.checkpoint`: ``M``, ``U`` and the queue are as §4
prints them, with ``j`` up to `n`, from 0 on. In Lemma 3 the queue for `i` is the one before
``M(i)`` is put there; printed is ``Q_{i-1}``, which does not exist yet when ``M(i)`` is computed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, product

Sizes = Sequence[int]
# A sentence on how a lemma fails on some sizes, or "".
Lemma = Callable[[Sizes], str]


def needed(sizes: Sizes, i: int, j: int) -> int:
    """Return ``U(i, j)``, Eqs. 11 and 15: the data behind `i` up to `j`, and the largest before."""
    return sum(sizes[i + 1 : j + 1]) + max(sizes[i:j])


def _reached(sizes: Sizes) -> tuple[list[int], list[list[int]]]:
    """Return ``M(i)`` by Eq. 16 for every `i`, and for each the queue before it is put there."""
    last = len(sizes) - 1
    memory = [0] * last + [sizes[last]]
    queues: list[list[int]] = [[] for _ in range(last)]
    queue = [last]
    for i in reversed(range(last)):
        queues[i] = list(queue)
        memory[i] = sizes[i] + min(
            max(memory[j], needed(sizes, i, j)) for j in range(i + 1, last + 1)
        )
        while queue and memory[queue[0]] >= memory[i]:
            del queue[0]
        queue.insert(0, i)
    return memory, [*queues, queue]


def lemma_1(sizes: Sizes) -> str:
    """``U(i, j)`` grows with `j`."""
    for i in range(len(sizes) - 1):
        values = [needed(sizes, i, j) for j in range(i + 1, len(sizes))]
        if any(b <= a for a, b in pairwise(values)):
            return f"U({i}, ·) is {values}"
    return ""


def lemma_2(sizes: Sizes) -> str:
    """In the queue ``M`` falls with the index."""
    memory, queues = _reached(sizes)
    for queue in queues:
        values = [memory[j] for j in queue]
        if queue != sorted(queue) or any(b >= a for a, b in pairwise(values)):
            return f"the queue {queue} has {values}"
    return ""


def lemma_3(sizes: Sizes) -> str:
    """The minimum of Eq. 16 over the queue is that over all `j`."""
    memory, queues = _reached(sizes)
    for i in range(len(sizes) - 1):
        among = sizes[i] + min(max(memory[j], needed(sizes, i, j)) for j in queues[i])
        if among != memory[i]:
            return f"M({i}) is {memory[i]}, and {among} from the queue"
    return ""


def _lemma_4(sizes: Sizes, place: Callable[[list[int]], int]) -> str:
    memory, _ = _reached(sizes)
    best = []
    for i in range(len(sizes) - 1):
        values = {j: max(memory[j], needed(sizes, i, j)) for j in range(i + 1, len(sizes))}
        best.append(place([j for j, value in values.items() if value == min(values.values())]))
    return f"j* is {best}" if best != sorted(best) else ""


def lemma_4(sizes: Sizes) -> str:
    """The first best `j` does not fall as `i` grows."""
    return _lemma_4(sizes, min)


def lemma_4_last(sizes: Sizes) -> str:
    """The last best `j` does not, either."""
    return _lemma_4(sizes, max)


FOUR_LEMMAS: tuple[Lemma, ...] = (lemma_1, lemma_2, lemma_3, lemma_4)


def all_chains(layers: int, largest: int) -> Iterator[Sizes]:
    """Yield all chains of at most so many layers, sizes from 1 on."""
    for count in range(1, layers + 1):
        yield from product(range(1, largest + 1), repeat=count + 1)


def random_chains(count: int, seed: int = 0) -> Iterator[Sizes]:
    """Yield chains of 2 to 30 layers, of few different sizes and of many."""
    rng = random.Random(seed)
    for _ in range(count):
        largest = rng.choice((2, 4, 20, 1000))
        yield [rng.randint(1, largest) for _ in range(rng.randint(3, 31))]


def failures(lemma: Lemma, chains: Iterable[Sizes]) -> tuple[int, int, str]:
    """Return how many chains there are, on how many a lemma fails, and how on the first."""
    count = failed = 0
    first = ""
    for sizes in chains:
        count += 1
        if fault := lemma(sizes):
            failed += 1
            first = first or f"sizes {' '.join(map(str, sizes))}: {fault}"
    return count, failed, first


def steps_static(sizes: Sizes) -> int:
    """Return how often Algorithm 3's loops run: over all segment sums, layers and queues."""
    last = len(sizes) - 1
    sums = {sum(sizes[a:b]) for a in range(1, last + 1) for b in range(a + 1, last + 2)}
    steps = 0
    for bound in sums:
        memory, queue = [sizes[0]], [0]
        left = 0
        for i in range(1, last + 1):
            while sum(sizes[left + 1 : i + 1]) > bound:
                left += 1
                steps += 1
            while len(queue) > 1 and queue[0] < left:
                del queue[0]
                steps += 1
            memory.append(sizes[queue[0]] + (memory[queue[0] - 1] if queue[0] else 0))
            while queue and sizes[queue[-1]] + memory[queue[-1] - 1] > sizes[i] + memory[i - 1]:
                del queue[-1]
                steps += 1
            queue.append(i)
            steps += 1
    return steps


def steps_linear(sizes: Sizes) -> int:
    """Return how often Algorithm 6's loops run."""
    memory, _ = _reached(sizes)
    last = len(sizes) - 1
    queue, steps, place = [last], 0, 0
    for i in reversed(range(last)):
        while place and needed(sizes, i, queue[place]) >= memory[queue[place]]:
            place -= 1
            steps += 1
        while queue and memory[queue[0]] >= memory[i]:
            del queue[0]
            place = max(0, place - 1)
            steps += 1
        queue.insert(0, i)
        place = min(place + 1, len(queue) - 1)
        steps += 1
    return steps
