"""The least memory of a chain's checkpoints in the papers' models, by recursions of three lines.

With `P` the least bytes of checkpoints up to one of them, a limit on segments allows every
checkpoint before it from which the stretch in between is no longer. All sums of stretches are
tried as limits. With `M` the least bytes from a checkpoint on, the next one decides: either the
most is needed behind it, or while the stretch up to it is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise


def memory_of(model: str, sizes: Sequence[int], checkpoints: Sequence[int]) -> int:
    """Return the bytes that checkpoints take in a model, both ends among the checkpoints."""
    stretches = list(pairwise(checkpoints))
    if model == "dynamic":
        most = stored = 0
        for h, i in stretches:
            stored += sizes[h]
            most = max(most, stored + sum(sizes[h + 1 : i + 1]) + max(sizes[h:i]))
        return most
    ends = sizes[0] + sizes[-1] if model == "reforwarding" else 0
    segment = max(sum(sizes[h + 1 : i]) for h, i in stretches)
    return sum(sizes[each] for each in checkpoints) + segment - ends


def least_of(model: str, sizes: Sequence[int]) -> int:
    """Return the least bytes that any checkpoints of a chain take in a model."""
    if model == "dynamic":
        return _least_dynamic(sizes)
    ends = sizes[0] + sizes[-1] if model == "reforwarding" else 0
    return _least_static(sizes) - ends


def _least_static(sizes: Sequence[int]) -> int:
    totals = [0, *accumulate(sizes)]
    count = len(sizes)
    stretches = {totals[i] - totals[h + 1] for i in range(count) for h in range(i)}
    best = None
    for limit in stretches:
        paid = [sizes[0]]
        for i in range(1, count):
            near = [paid[h] for h in range(i) if totals[i] - totals[h + 1] <= limit]
            paid.append(sizes[i] + min(near))
        found = limit + paid[-1]
        best = found if best is None else min(best, found)
    assert best is not None
    return best


def _least_dynamic(sizes: Sequence[int]) -> int:
    last = len(sizes) - 1
    least = [0] * last + [sizes[last]]
    for h in reversed(range(last)):
        segment, buffer, options = 0, 0, []
        for i in range(h + 1, last + 1):
            segment += sizes[i]
            buffer = max(buffer, sizes[i - 1])
            options.append(max(least[i], segment + buffer))
        least[h] = sizes[h] + min(options)
    return least[0]
