"""One pivot of the pivot dynamic program: both sides, searched round by round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from offcert.core.schedule import Schedule
from offcert.formulations.labels.atomic_heads.bound import SideEnds, quick_ends
from offcert.formulations.labels.common.limits import OutOfLabelsError
from offcert.formulations.labels.pivot import arrays, kernel
from offcert.formulations.labels.pivot import pool as store
from offcert.formulations.labels.pivot.join import join
from offcert.formulations.labels.pivot.model import Nested, back_side, front_side
from offcert.formulations.labels.pivot.rebuild import schedule_from

# Labels expanded between two looks at the clock.
STRIDE = 20_000
# The first round raises the target by this part of what is open, each later one by twice as much.
FIRST_STEP = 64


class Cut:
    """One pivot: two sides, their labels, and what has been proved with them."""

    def __init__(
        self,
        data: Nested,
        pivot: int,
        tracked: frozenset[int] = frozenset(),
        ends: SideEnds | None = None,
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

    def take(self, ends: SideEnds) -> None:
        """Use what is known about the ends of the sides, unless that is less for one of them.

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

        Raises
        ------
        OutOfTimeError
            From `pause`.
        OutOfLabelsError
            At about `max_labels`. After either, everything proved before stays proved, and the
            round can be called again.
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

        Nothing of the other side changes.

        Raises
        ------
        OutOfTimeError
            From `pause`.
        OutOfLabelsError
            At about `most` labels of this side. After either, it can be called again.
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
                self.pools[i] = arrays.grown(self.pools[i])
        pool = self.pools[i]
        waiting = pool.deferred[: pool.counters[store.DEFERRED]]
        waiting = waiting[pool.alive[waiting] == 1]
        least = pool.fv[waiting].min(initial=store.NEVER)
        # Labels beyond the absolute limit are forgotten, so nothing is known beyond it.
        bound = min(int(least), int(pool.counters[store.BEST]), int(limits[2]) + 1)
        self.minimum[i] = max(self.minimum[i], bound)
