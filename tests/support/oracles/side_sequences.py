"""All sequences of transfers on one side of an operation, executed plainly; and random sides."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import permutations

from offcert.formulations.labels.ends.side import HeadSide, Movable


def least_end(side: HeadSide, strict: bool = False) -> int:
    """Return the least end of a side over all sequences of transfers.

    If `strict`, what has left counts only for operations during which it can be absent.
    """
    ends = [
        end
        for count in range(len(side.items) + 1)
        for order in permutations(side.items, count)
        if (end := end_of(side, order, strict)) is not None
    ]
    return min(ends)


def end_of(side: HeadSide, order: tuple[Movable, ...], strict: bool = False) -> int | None:
    """Return when a side ends if tensors leave in this order, or None if that is impossible."""
    last = len(side.prefix) - 1
    durations = [side.prefix[j + 1] - side.prefix[j] for j in range(last)]
    ended: list[int] = []
    gone: list[Movable] = []

    def enough(j: int) -> bool:
        absent = (v.size for v in gone if not strict or j == last or v.absent[j])
        return sum(absent) >= side.required[j]

    def run(now: int) -> None:
        while len(ended) < last and enough(len(ended)):
            ended.append(max(now, ended[-1] if ended else 0) + durations[len(ended)])

    free = 0
    run(free)
    for item in order:
        if item.ready >= len(ended):
            return None
        free = max(free, ended[item.ready] if item.ready >= 0 else 0) + item.time
        gone.append(item)
        run(free)
    if len(ended) < last or not enough(last):
        return None
    return max(free, ended[-1] if ended else 0)


def random_side(rng: random.Random, bandwidth: Fraction) -> HeadSide:
    """Return a side on which all tensors can always be absent, with the plainest floor."""
    count = rng.randint(2, 4)
    prefix = [0]
    for _ in range(count):
        prefix.append(prefix[-1] + rng.choice((0, 1, 3, 8, 20)))
    items = []
    for gap in range(rng.randint(3, 5)):
        size = rng.choice((1, 2, 3, 3, 5, 8))
        ready = rng.randint(-1, count - 1)
        items.append(Movable(gap, size, -(-size // bandwidth), ready, (True,) * count))
    items.sort(key=lambda item: (item.ready, item.size, item.gap))
    required = []
    for j in range(count + 1):
        there = sum(item.size for item in items if item.ready < j)
        required.append(max(0, there - rng.choice((0, 1, 2, 4, 9))))
    rate = bandwidth.numerator, bandwidth.denominator
    return HeadSide(prefix, required, items, [prefix[-1]] * (count + 1), rate)
