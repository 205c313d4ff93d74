"""The search behind `check`: one side of a cut, label by label.

It is compiled, because a network needs a million labels, but written for reading: lists of labels
by what is out, a queue ordered by when the link is free, and no bounds but those of `tables`. It
shares nothing with the program whose result it confirms.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, compiled, inlined
from offcert.verification.growing import grown
from offcert.verification.pivot.tables import (
    BACK,
    COLUMNS,
    FREE,
    HELD,
    LAST,
    NONE,
    OUT,
    RETURNED,
    RUN,
    WAITED,
    Standing,
    Tables,
    absent_after,
    beyond_the_cut,
    first_due,
    on_the_way,
    take_stock,
    to_the_end,
)


@compiled
def search(
    tables: Tables, now: Standing, limit: int, whole_limit: int, max_labels: int
) -> tuple[bool, IntArray, IntArray]:
    """Return every complete label that ends by `limit`.

    Returns
    -------
    finished : bool
        False if more than `max_labels` would have been expanded, or twice as many held.
    labels : int64 array, one row a label
        Complete ones: when the link is free, on the way out and on that back, ticks waited, the
        classes that may not leave any more, and what is out.
    straddles : int64 array, one row a return across the cut
        End of the side, begin of the transfer, its class, the classes that may not leave any more,
        and what is out after it. None on a duplex link, where labels may have returns under way.
    """
    classes, count = len(tables.sizes), len(tables.clock) - 1
    first = {0: NONE}
    labels = np.zeros((1024, COLUMNS), dtype=np.int64)
    following = np.full(1024, NONE, dtype=np.int64)
    alive = np.zeros(1024, dtype=np.bool_)
    # A class can leave once and come back at as many times as there are operations.
    proposals = np.zeros((classes * (count + 2) + 1, COLUMNS), dtype=np.int64)
    complete = np.zeros((64, 5), dtype=np.int64)
    straddles = np.zeros((64, 5), dtype=np.int64)
    stored = expanded = completed = straddling = 0
    proposed = 1
    take_stock(tables, 0, now)
    heap = [(0, NONE)]
    heappop(heap)
    while True:
        # 1. Keep what is proposed, unless it is late or covered.
        for index in range(proposed):
            if not _runs_in_time(tables, now, proposals, index, limit, whole_limit):
                continue
            code = proposals[index, OUT]
            head = first[code] if code in first else NONE  # noqa: SIM401
            if _covered(labels, following, head, proposals, index):
                continue
            head = _without_covered(labels, following, alive, head, proposals, index)
            if stored == len(labels):
                labels, following, alive = grown(labels), grown(following), grown(alive)
            for column in range(COLUMNS):
                labels[stored, column] = proposals[index, column]
            following[stored], alive[stored] = head, True
            first[code] = stored
            heappush(heap, (proposals[index, FREE], stored))
            stored += 1
        if len(heap) == 0:
            break
        # 2. Expand the label whose link is free first.
        chosen = heappop(heap)[1]
        proposed = 0
        if not alive[chosen]:
            continue
        expanded += 1
        if expanded > max_labels or stored > 2 * max_labels:
            return False, complete[:0], straddles[:0]
        label = labels[chosen]
        take_stock(tables, label[OUT], now)
        if label[RUN] == count and _complete(tables, now, NONE):
            if completed == len(complete):
                complete = grown(complete)
            complete[completed] = (
                label[FREE],
                label[BACK],
                label[WAITED],
                label[RETURNED],
                label[OUT],
            )
            completed += 1
        proposed = _send(tables, now, label, proposals)
        for c in range(classes):
            if now.out[c] == 0 or tables.opens[c, now.out[c] - 1] >= label[RUN]:
                continue
            begin, proposed = _fetch(tables, now, label, c, proposals, proposed)
            across = not tables.duplex and now.out[c] <= tables.across[c]
            if across and label[RUN] == count and _complete(tables, now, c):
                if straddling == len(straddles):
                    straddles = grown(straddles)
                end = max(label[WAITED] + tables.clock[count], begin)
                returned = label[RETURNED] | tables.once[c]
                straddles[straddling] = (end, begin, c, returned, label[OUT] - tables.radix[c])
                straddling += 1
    return True, complete[:completed], straddles[:straddling]


@inlined
def _runs_in_time(
    tables: Tables,
    now: Standing,
    proposals: IntArray,
    index: int,
    limit: int,
    whole_limit: int,
) -> bool:
    """Run operations as far as possible; return whether the side and the whole may end in time."""
    count, last = len(tables.clock) - 1, proposals[index, LAST]
    c, change = max(0, abs(last) - 1), 1 if last > 0 else -1 if last < 0 else 0
    begun = run = proposals[index, RUN]
    free, due = proposals[index, FREE], first_due(tables, now, c, change)
    latest = max(free, proposals[index, BACK])
    arrived = latest if change < 0 else free
    while run < min(count, due) and absent_after(tables, now, c, change, run) >= tables.need[run]:
        run += 1
    if run > begun:
        if arrived - tables.clock[begun] > proposals[index, WAITED]:
            proposals[index, WAITED] = arrived - tables.clock[begun]
            if tables.duplex and change < 0:
                proposals[index, HELD] = begun
        proposals[index, RUN] = run
    best, excess, missing = to_the_end(tables, now, c, change, run)
    if not tables.duplex:
        best = max(best, excess)
    if max(proposals[index, WAITED] + tables.head[run], free + best) > limit:
        return False
    if change < 0 and tables.duplex and latest + beyond_the_cut(tables, now, c) > whole_limit:
        return False
    return bool(latest + excess + on_the_way(tables, now, c, change, missing) <= whole_limit)


@inlined
def _covers(one: IntArray, row: int, two: IntArray, other: int) -> bool:
    """Whether one label is at least as good as another in everything."""
    return (
        one[row, FREE] <= two[other, FREE]
        and one[row, BACK] <= two[other, BACK]
        and one[row, WAITED] <= two[other, WAITED]
        and one[row, RUN] >= two[other, RUN]
        and one[row, HELD] >= two[other, HELD]
        and one[row, RETURNED] & ~two[other, RETURNED] == 0
    )


@inlined
def _covered(
    labels: IntArray, following: IntArray, head: int, proposals: IntArray, index: int
) -> bool:
    """Whether a label with the same tensors out covers the proposal."""
    label = head
    while label != NONE:
        if _covers(labels, label, proposals, index):
            return True
        label = following[label]
    return False


@inlined
def _without_covered(
    labels: IntArray,
    following: IntArray,
    alive: NDArray[np.bool_],
    head: int,
    proposals: IntArray,
    index: int,
) -> int:
    """Drop the labels that the proposal covers; return the first of those left."""
    previous, label = NONE, head
    while label != NONE:
        if not _covers(proposals, index, labels, label):
            previous = label
        else:
            alive[label] = False
            if previous == NONE:
                head = following[label]
            else:
                following[previous] = following[label]
        label = following[label]
    return int(head)


@inlined
def _complete(tables: Tables, now: Standing, back: int) -> bool:
    """Whether the tensors that are out, but the last of class `back`, are right for the cut."""
    count = len(tables.clock) - 1
    absent = now.absent[count]
    for c in range(len(now.out)):
        fewer = 1 if c == back else 0
        if now.out[c] - fewer > tables.across[c]:
            return False
        if fewer and now.out[c] <= tables.spans[c, count]:
            absent -= tables.sizes[c]
    return bool(absent >= tables.need[count])


@inlined
def _propose(
    tables: Tables,
    proposals: IntArray,
    proposed: int,
    label: IntArray,
    c: int,
    change: int,
    free: int,
    run: int,
) -> int:
    """Write down a label whose last transfer ends at `free`; return how many there are."""
    both = tables.duplex
    proposals[proposed, FREE] = label[FREE] if both and change < 0 else free
    proposals[proposed, BACK] = free if both and change < 0 else label[BACK]
    proposals[proposed, WAITED], proposals[proposed, HELD] = label[WAITED], min(label[HELD], run)
    proposals[proposed, RUN] = run
    returned = label[RETURNED]
    proposals[proposed, RETURNED] = returned | tables.once[c] if change < 0 else returned
    proposals[proposed, LAST] = change * (c + 1)
    proposals[proposed, OUT] = label[OUT] + change * tables.radix[c]
    return proposed + 1


@inlined
def _send(tables: Tables, now: Standing, label: IntArray, proposals: IntArray) -> int:
    """Move the next tensor of each class out."""
    since, proposed = -1, 0
    if label[LAST] < 0 and not tables.duplex:
        last = -label[LAST] - 1
        if now.out[last] < tables.across[last]:
            # What was ready when that return began has left before it, in another label that is no
            # worse; so only what became ready later leaves right after it.
            since = label[FREE] - tables.back_times[last]
    for c in range(len(now.out)):
        m = now.out[c]
        if m >= tables.here[c] or label[RETURNED] & tables.once[c]:
            continue
        if tables.ready[c, m] >= label[RUN]:
            continue
        ready = label[WAITED] + tables.clock[tables.ready[c, m] + 1]
        if tables.ready[c, m] < label[HELD]:
            # The wait for a return came after that, and may have been long.
            ready = 0
        free = max(label[FREE], ready) + tables.out_times[c]
        closes = tables.closes[c, m]
        late = closes <= label[RUN] and free >= label[WAITED] + tables.clock[closes]
        late = late and not tables.duplex
        if ready <= since or late:
            continue
        run = min(label[RUN], tables.due[c, m])
        proposed = _propose(tables, proposals, proposed, label, c, 1, free, run)
    return proposed


@inlined
def _fetch(
    tables: Tables, now: Standing, label: IntArray, c: int, proposals: IntArray, proposed: int
) -> tuple[int, int]:
    """Move the last tensor of class `c` back; return its latest begin, and how many proposals."""
    rank = now.out[c] - 1
    opens, closes = tables.opens[c, rank], tables.closes[c, rank]
    begin = max(label[FREE], label[BACK], label[WAITED] + tables.clock[opens + 1])
    for j in range(opens + 1, min(label[RUN], closes)):
        end = label[WAITED] + tables.clock[j + 1]
        if now.absent[j] - tables.sizes[c] < tables.need[j] and end > begin:
            # Either this operation has not run yet, or the tensor waits for its end.
            if _idle_fits(tables, now, label, c, begin, j):
                free = begin + tables.back_times[c]
                proposed = _propose(tables, proposals, proposed, label, c, -1, free, j)
            begin = end
    if _idle_fits(tables, now, label, c, begin, label[RUN]):
        free = begin + tables.back_times[c]
        proposed = _propose(tables, proposals, proposed, label, c, -1, free, label[RUN])
    return begin, proposed


@inlined
def _idle_fits(
    tables: Tables, now: Standing, label: IntArray, back: int, begin: int, run: int
) -> bool:
    """Whether memory holds a tensor that returns while the device waits to run operation `run`."""
    if tables.duplex or begin < label[WAITED] + tables.clock[run]:
        return True
    absent = 0
    for c in range(len(now.out)):
        members = now.out[c] - 1 if c == back else now.out[c]
        for rank in range(members):
            if tables.opens[c, rank] < run <= tables.closes[c, rank]:
                absent += tables.sizes[c]
    return bool(absent >= tables.idle_need[run])
