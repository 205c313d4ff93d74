"""One pivot of the pivot dynamic program: both sides, searched round by round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from offcert.core.compiled import IntArray, plain, plain_inner
from offcert.core.platform import Kind
from offcert.formulations.labels import store
from offcert.formulations.labels.common import OutOfLabelsError
from offcert.formulations.labels.ends.heads import quick_ends
from offcert.formulations.labels.pivot import arrays, kernel
from offcert.formulations.labels.pivot.arrays import SideArrays, decode
from offcert.formulations.labels.pivot.model import NestedProblem, NestedSide, back_side, front_side
from offcert.formulations.labels.store import FINALS, NEVER, STRADDLES, Pool, bucket
from offcert.proofs.kinds.labels import Heads
from offcert.questions.schedule.schedule import Schedule, Transfer

# (whether out, class, rank, start, end), in the side's own time.
Leg = tuple[bool, int, int, int, int]


def replay(
    data: NestedProblem, side: NestedSide, pool: Pool, label: int
) -> tuple[list[Leg], list[int]]:
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
        if action < 0 and data.problem.platform.duplex:
            free = int(pool.r[label])
        if action != 0:
            c = abs(action) - 1
            counts[c] += action > 0
            kind = side.out if action > 0 else side.back
            took = data.problem.platform.transfer_time(data.classes[c][0].size, kind)
            legs.append((action > 0, c, counts[c] - 1, free - took, free))
            counts[c] -= action < 0
        # Operations that were taken back run later; new ones waited for this transfer.
        kept = min(len(ends), run)
        del ends[kept:]
        for operation in range(kept, run):
            begin = max(ends[-1] if ends else 0, free)
            ends.append(begin + side.prefix[operation + 1] - side.prefix[operation])
    return legs, ends


def schedule_from(
    data: NestedProblem,
    sides: tuple[NestedSide, NestedSide],
    pools: tuple[Pool, Pool],
    how: tuple[int, int, int, int, int],
    length: int,
) -> Schedule:
    """Return the schedule of a join; see `join` for `how`."""
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


@plain_inner
def _end(side: SideArrays, pool: Pool, label: int) -> int:
    last = side.prefix.size - 1
    return max(pool.s[label] + side.prefix[last], pool.t[label])


@plain_inner
def _compatible(mask: IntArray, pool: Pool, label: int) -> bool:
    for i in range(mask.size):  # noqa: SIM110, compiled code has no generators
        if mask[i] & pool.mask[label, i]:
            return False
    return True


@plain
def join_whole(
    front: SideArrays, front_pool: Pool, back: SideArrays, back_pool: Pool, best: int
) -> tuple[int, tuple[int, int]]:
    """Return the best length below `best` without a straddling transfer, and its two labels."""
    last = back.prefix.size - 1
    key, mask = front_pool.at_key, front_pool.at_mask
    found = (-1, -1)
    for i in range(front_pool.counters[FINALS]):
        label = front_pool.final[i]
        begin = _end(front, front_pool, label)
        for i in range(key.size):
            key[i] = front_pool.key[label, i]
        for i in range(mask.size):
            mask[i] = front_pool.mask[label, i]
        other = bucket(back_pool, key)
        while other >= 0:
            if back_pool.k[other] == last:
                length = begin + _end(back, back_pool, other)
                if front.duplex:
                    # What is under way at the cut ends before what moves in its direction then.
                    to_device = front_pool.r[label] + back_pool.t[other]
                    to_host = front_pool.t[label] + back_pool.r[other]
                    length = max(length, to_device, to_host)
                if length < best and _compatible(mask, back_pool, other):
                    best = length
                    found = (label, other)
            other = back_pool.following[other]
    return best, found


@plain
def join_straddling(
    side: SideArrays, pool: Pool, other: SideArrays, other_pool: Pool, best: int
) -> tuple[int, tuple[int, int]]:
    """Return the best length with a return that straddles the cut from `side`.

    The rest of the answer: the row of the straddling return, and the other side's label.
    """
    last = side.prefix.size - 1
    other_last = other.prefix.size - 1
    found = (-1, -1)
    m, key, mask = pool.m, pool.at_key, pool.at_mask
    for row in range(pool.counters[STRADDLES]):
        label = np.int64(pool.straddle[row, 0])
        c = pool.straddle[row, 1]
        begin = pool.straddle[row, 2]
        for i in range(key.size):
            key[i] = pool.key[label, i]
        decode(side, key, m)
        key[side.word[c]] -= np.int64(1) << side.shift[c]
        end = max(begin, pool.s[label] + side.prefix[last])
        partner = bucket(other_pool, key)
        if partner < 0:
            continue
        for i in range(mask.size):
            mask[i] = pool.mask[label, i]
        mask[c // 62] |= side.tracked[c] << (c % 62)
        ready = other.prefix[other.available[c, m[c] - 1] + 1]
        while partner >= 0:
            if other_pool.k[partner] == other_last:
                begins = max(other_pool.t[partner], other_pool.s[partner] + ready)
                length = max(
                    end + _end(other, other_pool, partner), begin + side.time_back[c] + begins
                )
                if length < best and _compatible(mask, other_pool, partner):
                    best = length
                    found = (row, int(partner))
            partner = other_pool.following[partner]
    return best, found


How = tuple[int, int, int, int, int]


def join(
    front: SideArrays, front_pool: Pool, back: SideArrays, back_pool: Pool, best: int
) -> tuple[int, How | None]:
    """Return the best length below `best`, and how it comes about (None if there is none).

    The second part is ``(front label, back label, straddling side, class, begin)``; the straddling
    side is 0 for none, 1 for the front and 2 for the back.
    """
    how: How | None = None
    length, (one, two) = join_whole(front, front_pool, back, back_pool, best)
    if one >= 0:
        best, how = int(length), (int(one), int(two), 0, -1, -1)
    length, (row, two) = join_straddling(front, front_pool, back, back_pool, best)
    if row >= 0:
        label, c, begin = (int(value) for value in front_pool.straddle[row])
        best, how = int(length), (label, int(two), 1, c, begin)
    length, (row, one) = join_straddling(back, back_pool, front, front_pool, best)
    if row >= 0:
        label, c, begin = (int(value) for value in back_pool.straddle[row])
        best, how = int(length), (int(one), label, 2, c, begin)
    return min(int(best), int(NEVER)), how


# Labels that are expanded between two looks at the clock. Arbitrary.
STRIDE = 20_000
# The first round raises the target by one part in so many of what is open, each later one by twice
# as much. Arbitrary.
FIRST_STEP = 64


class Cut:
    """One pivot: two sides, their labels, and what has been proved with them."""

    def __init__(
        self,
        data: NestedProblem,
        pivot: int,
        tracked: frozenset[int] = frozenset(),
        ends: Heads | None = None,
    ) -> None:
        self.data = data
        self.pivot = pivot
        self.tracked = tracked
        self.sides = (front_side(data, pivot), back_side(data, pivot))
        self.arrays = tuple(
            arrays.side_arrays(data, self.sides[i], self.sides[1 - i], tracked) for i in (0, 1)
        )
        self.pools = [arrays.new_pool(side) for side in self.arrays]
        self.minimum = [0, 0]
        self.proven = 0
        self.step = 0
        # Whether the best join is no schedule, so that more labels prove nothing more.
        self.stuck = False
        unlimited = np.full(4, store.NEVER)
        self.ends = quick_ends(data.problem, data.required, pivot) if ends is None else ends
        for i in (0, 1):
            kernel.start(self.arrays[i], self.pools[i], unlimited)
            pool = self.pools[i]
            self.minimum[i] = int(pool.fv[0])
            self.proven = max(self.proven, int(pool.ft[0]))
            # The first round decides when to expand it.
            pool.counters[store.HEAP] = 0
            pool.counters[store.DEFERRED] = 1
            pool.deferred[0] = 0
        self._raise_minimum()

    def take(self, ends: Heads) -> None:
        """Use known bounds on the ends of the sides, unless these are less for one of them.

        Then a proof holds one pair of searches, not a head of one and a tail of another.
        """
        if ends.head >= self.ends.head and ends.tail >= self.ends.tail:
            self.ends = ends
            self._raise_minimum()

    def _raise_minimum(self) -> None:
        for i, end in enumerate((self.ends.head, self.ends.tail)):
            self.minimum[i] = max(self.minimum[i], end)
        self.proven = max(self.proven, sum(self.minimum))

    @property
    def labels(self) -> int:
        """Labels stored on both sides."""
        return self.stored(0) + self.stored(1)

    def stored(self, i: int) -> int:
        """Labels stored on side `i`."""
        return int(self.pools[i].counters[store.LABELS])

    def round(self, upper: int, pause: Callable[[], None], max_labels: int) -> Schedule | None:
        """Raise the proven bound, at most to `upper`; return a schedule shorter than it, or None.

        It may raise `OutOfTimeError` (from `pause`), or `OutOfLabelsError` at about `max_labels`.
        After either, everything proved before stays proved, and the round can be called again.
        """
        if self.step == 0:
            self.step = max(1, (upper - self.proven) // FIRST_STEP)
        target = min(upper - 1, self.proven + self.step - 1)
        for i in (0, 1):
            other, most = self.minimum[1 - i], max_labels - self.stored(1 - i)
            self.search(i, target, upper, other, pause, most)
        self.step *= 2
        length, how = join(self.arrays[0], self.pools[0], self.arrays[1], self.pools[1], upper)
        self.proven = min(max(self.proven, target + 1, sum(self.minimum)), length)
        if how is None:
            return None
        return schedule_from(self.data, self.sides, (self.pools[0], self.pools[1]), how, length)

    def search(
        self,
        i: int,
        target: int,
        upper: int,
        other: int,
        pause: Callable[[], None],
        most: int,
    ) -> None:
        """Search side `i` completely for ends that leave the other side `other` ticks.

        Nothing of the other side changes. It may raise `OutOfTimeError` (from `pause`), or
        `OutOfLabelsError` at about `most` labels of this side. After either, it can be called
        again.
        """
        limits = np.array([target - other, target, upper - 1 - other, upper - 1], np.int64)
        kernel.resume(self.pools[i], limits)
        while True:
            status = kernel.run(self.arrays[i], self.pools[i], limits, max(1, min(STRIDE, most)))
            if status == kernel.DONE:
                break
            pause()
            if self.stored(i) >= most:
                raise OutOfLabelsError
            if status == kernel.FULL:
                self.pools[i] = store.grown(self.pools[i])
        pool = self.pools[i]
        waiting = pool.deferred[: pool.counters[store.DEFERRED]]
        waiting = waiting[pool.alive[waiting] == 1]
        least = pool.fv[waiting].min(initial=store.NEVER)
        # Labels beyond the absolute limit are forgotten, so nothing is known beyond it.
        bound = min(int(least), int(pool.counters[store.BEST]), int(limits[2]) + 1)
        self.minimum[i] = max(self.minimum[i], bound)
