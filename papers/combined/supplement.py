"""The combined paper's supplement: its Lemma 1 tried step by step, its states counted.

Sequences of Lemma 1 run on a grid of ticks: in each, an operation goes on, or the device idles, and
the link may carry what it can. What the lemma says in a formula is the least idle time that a
search through all these finds. For the dynamic program of B.1 to B.3, all states that a chain
reaches are counted, with the choices that are looked at in each.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class FixedSequence:
    """A fixed sequence of operations while memory falls (prefetching).

    Attributes
    ----------
    durations, memory : tuple of int
        Ticks of each operation, and bytes that it requires.
    rate : int
        Bytes that the link carries in a tick.
    least : int
        Bytes that are available at the end.
    """

    durations: tuple[int, ...]
    memory: tuple[int, ...]
    rate: int
    least: int

    def idle_by_lemma(self) -> int:
        """Return the ticks of Lemma 1, rounded up: transfers begin at whole ticks here."""
        behind = sum(self.durations)
        most = 0
        for duration, memory in zip(self.durations, self.memory, strict=True):
            behind -= duration
            lacking = memory - self.least - self.rate * behind
            most = max(most, -(-lacking // self.rate))
        return most

    def idle_by_search(self) -> int:
        """Return the least idle ticks, by a search through all ways to run and to prefetch.

        A state is how many ticks of work are done, and how many bytes have still to come. So many
        may come before that anything would fit, which costs nothing.
        """
        work = [m for d, m in zip(self.durations, self.memory, strict=True) for _ in range(d)]
        most = max([0, *(memory - self.least for memory in work)])
        begin = {(0, left) for left in range(most + self.rate + 1)}
        waiting = deque((state, 0) for state in begin)
        seen = set(begin)
        while waiting:
            (done, left), idle = waiting.popleft()
            if done == len(work) and not left:
                return idle
            for carried in range(min(self.rate, left) + 1):
                rest = left - carried
                # What has come by its end is there while the tick of work runs.
                runs = done < len(work) and work[done] <= self.least + rest
                for more in (1, 0) if runs else (0,):
                    state = (done + more, rest)
                    if state not in seen:
                        seen.add(state)
                        put = waiting.appendleft if more else waiting.append
                        put((state, idle + 1 - more))
        raise AssertionError("at the end everything can have come")


def sequences(count: int, seed: int = 0) -> Iterator[FixedSequence]:
    """Yield random sequences of one to five operations."""
    rng = random.Random(seed)
    for _ in range(count):
        length = rng.randint(1, 5)
        durations = tuple(rng.randint(1, 4) for _ in range(length))
        memory = tuple(rng.randint(0, 20) for _ in range(length))
        yield FixedSequence(durations, memory, rng.randint(1, 3), rng.randint(0, 8))


def choices(layers: int, slots: int, sizes: Sequence[int]) -> int:
    """Return how many choices the program of B.1 to B.3 looks at, over all states it reaches.

    Parameters
    ----------
    layers : int
        Stages of the chain, which all take a tick forward and two backward.
    slots : int
        Values that memory has; a tick carries a slot.
    sizes : sequence of int
        Slots of each stage's input.
    """
    count = 0

    @cache
    def recomputed(i: int, j: int, kept: int, coming: int) -> None:
        nonlocal count
        count += 1
        if i == j:
            return
        # First operation F_all: the rest is a shorter chain. F_ck: up to some stage, then both.
        rest = max(0, coming - 3)
        if kept + sizes[i + 1] <= slots:
            recomputed(i + 1, j, kept + sizes[i + 1], rest)
        for middle in range(i + 1, j + 1):
            count += 1
            if kept + sizes[middle] <= slots:
                recomputed(middle, j, kept + sizes[middle], coming)
                recomputed(i, middle - 1, kept, max(0, coming - 3 * (j - middle + 1)))

    @cache
    def forward(i: int, kept: int, going: int, coming: int) -> None:
        nonlocal count
        count += 1
        if i == layers - 1:
            return
        for leaves in (True, False):
            size = sizes[i]
            at = kept if leaves else kept + size
            if at > slots:
                continue
            for j in range(i, layers - 1):
                count += 1
                ran = j - i + 1
                out = max(0, going + size * leaves - ran)
                back = min(slots, max(0, coming - 2 * ran) + size * leaves)
                if out <= slots:
                    forward(j + 1, at, out, back)
                if j > i:
                    recomputed(i, j, min(slots, kept + size), coming)

    forward(0, 0, 0, 0)
    return count


def allowed(layers: int, slots: int) -> int:
    """Return the paper's bound without its constant: ``L² N³ + L³ N²``."""
    return layers**2 * slots**3 + layers**3 * slots**2


def counted(layers: int, slots: int, seed: int = 0) -> int:
    """Return the choices on a chain of random sizes that fill the memory together, about."""
    rng = random.Random(f"{layers} {seed}")
    most = max(2, 2 * slots // layers)
    return choices(layers, slots, [rng.randint(1, most) for _ in range(layers)])
