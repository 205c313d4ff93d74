"""From joined labels back to a schedule."""

from __future__ import annotations

from offcert.core.plan import Kind
from offcert.core.schedule import Schedule, Transfer
from offcert.formulations.labels.pivot.model import Nested, NestedSide
from offcert.formulations.labels.pivot.pool import Pool

# (whether out, class, rank, start, end), in the side's own time.
Leg = tuple[bool, int, int, int, int]


def replay(data: Nested, side: NestedSide, pool: Pool, label: int) -> tuple[list[Leg], list[int]]:
    """Return the transfers that led to a label, and the true end of each operation run."""
    path = []
    while label >= 0:
        path.append(label)
        label = int(pool.parent[label])
    counts = [0] * len(data.classes)
    legs: list[Leg] = []
    ends: list[int] = []
    for label in reversed(path):
        action, free, run = int(pool.action[label]), int(pool.t[label]), int(pool.k[label])
        if action != 0:
            c = abs(action) - 1
            counts[c] += action > 0
            kind = side.out if action > 0 else side.back
            took = data.problem.platform.transfer_time(data.classes[c][0].size, kind)
            legs.append((action > 0, c, counts[c] - 1, free - took, free))
            counts[c] -= action < 0
        # What was taken back runs later; what is new waited for this transfer.
        kept = min(len(ends), run)
        del ends[kept:]
        for operation in range(kept, run):
            begin = max(ends[-1] if ends else 0, free)
            ends.append(begin + side.prefix[operation + 1] - side.prefix[operation])
    return legs, ends


def schedule_from(
    data: Nested,
    sides: tuple[NestedSide, NestedSide],
    pools: tuple[Pool, Pool],
    how: tuple[int, int, int, int, int],
    length: int,
) -> Schedule:
    """Return the schedule of a join; see ``join.join`` for `how`."""
    front, back, straddling, c, begin = how
    legs, ends = replay(data, sides[0], pools[0], front)
    reverse_legs, reverse_ends = replay(data, sides[1], pools[1], back)
    items = data.classes
    transfers = [
        Transfer(Kind.OFFLOAD if out else Kind.PREFETCH, items[k][r].gap, start, end)
        for out, k, r, start, end in legs
    ]
    transfers += [
        Transfer(
            Kind.PREFETCH if out else Kind.OFFLOAD, items[k][r].gap, length - end, length - start
        )
        for out, k, r, start, end in reverse_legs
    ]
    if straddling:
        side_legs = legs if straddling == 1 else reverse_legs
        rank = sum(1 if leg[0] else -1 for leg in side_legs if leg[1] == c) - 1
        item = items[c][rank]
        if straddling == 1:
            took = data.problem.platform.transfer_time(item.size, Kind.PREFETCH)
            transfers.append(Transfer(Kind.PREFETCH, item.gap, begin, begin + took))
        else:
            took = data.problem.platform.transfer_time(item.size, Kind.OFFLOAD)
            start = length - begin - took
            transfers.append(Transfer(Kind.OFFLOAD, item.gap, start, start + took))
    ends += [
        length - end + duration
        for end, duration in zip(
            reversed(reverse_ends),
            data.problem.trace.durations[sides[0].operations :],
            strict=True,
        )
    ]
    starts = [
        end - duration for end, duration in zip(ends, data.problem.trace.durations, strict=True)
    ]
    return Schedule(starts, ends, transfers)
