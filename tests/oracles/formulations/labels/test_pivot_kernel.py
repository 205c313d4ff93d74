"""What the pivot program works out once for all successors of a label, against its definition."""

import random

import numpy as np
import pytest

from offcert.formulations.labels.pivot import arrays, kernel
from offcert.formulations.labels.pivot.model import (
    NestedProblem,
    NestedSide,
    back_side,
    front_side,
    nested,
)
from offcert.formulations.labels.store import NEVER
from support.problems.nested import nested_problems

UNLIMITED = np.full(4, NEVER)


def settled(
    data: NestedProblem, side: NestedSide, other: NestedSide, m: list[int], t: int, s: int, k: int
) -> tuple[int, int, int, int]:
    """What `kernel._settle` returns, one definition after the other; exact ticks as fractions."""
    last, sizes = side.operations, [members[0].size for members in data.classes]
    classes = range(len(m))
    missing = [
        side.required[j] - sum(sizes[c] * min(m[c], side.spans[c][j]) for c in classes)
        for j in range(last + 1)
    ]

    def due(j: int) -> bool:
        return any(side.deadline[c][r] == j for c in classes for r in range(m[c]))

    started = False
    while k < last and missing[k] <= 0 and not due(k):
        if not started:
            s, started = max(s, t - side.prefix[k]), True
        k += 1
    ticks = data.problem.platform.transfer_time
    late = [
        t + ticks(missing[j], side.out) - side.prefix[j] + side.floor[j]
        for j in range(k, last + 1)
        if missing[j] > 0
    ]
    back = [ticks(size, side.back) for size in sizes]
    excess = sum(back[c] * max(0, m[c] - side.eligible[c]) for c in classes)
    way, arrivals = 0, [0]
    heads = {
        (c, r): other.prefix[other.available[c][r] + 1]
        for c, r in data.items
        if r < side.eligible[c]
    }
    for c, r in sorted(heads, key=lambda item: (other.available[item[0]][item[1]], item))[::-1]:
        if r < m[c]:
            way += back[c]
            arrivals.append(way + heads[c, r])
    most = max([0, *missing[k:]])
    extra = ticks(most, side.out)
    way += ticks(most, side.back) + min(heads.values(), default=0)
    fv = max([s + side.floor[k], t, t + excess, *late])
    return s, k, fv, t + excess + extra + max(*arrivals, way)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_a_successor_is_settled_as_if_it_was_looked_at_by_itself(seed: int) -> None:
    [problem] = nested_problems(1, 7000 + 40 * seed, 8)
    rng = random.Random(seed)
    data = nested(problem)
    for pivot in range(1, len(problem.trace)):
        sides = front_side(data, pivot), back_side(data, pivot)
        for side, other in (sides, sides[::-1]):
            compact = arrays.side_arrays(data, side, other)
            store = arrays.new_pool(compact)
            m = [rng.randint(0, count) for count in side.count]
            store.m[:] = m
            kernel._look(compact, store)
            for c, change in [(c, change) for c in range(len(m)) for change in (1, -1)]:
                if not 0 <= m[c] + change <= side.count[c]:
                    continue
                t, s, k = rng.randint(0, 40), rng.randint(0, 10), rng.randint(0, side.operations)
                store.m[c] += change
                got = kernel._settle(compact, store, c, change, t, 0, s, k, 0, UNLIMITED)[1:]
                expected = settled(data, side, other, store.m.tolist(), t, s, k)
                store.m[c] -= change
                assert got[:2] == expected[:2]
                # A transfer's time is rounded up, what is left of the rest down.
                assert expected[2] - 2 <= got[2] <= expected[2]
                assert got[3] == expected[3]
