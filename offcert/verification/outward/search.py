"""The search behind `check`: one side of a cut, from the cut outward.

It is compiled, because a network needs ten thousands of labels, but written for reading: lists of
labels by what has come back, and a queue ordered by how long the side must be. It shares nothing
with the program whose result it confirms.

A label says how many tensors of each class are *back*, less those that have gone since; when the
link is free; how many operations have run; and how many ticks the device has waited. Which tensors
are out at the cut is only known within limits, so every question is answered for the set that suits
it best.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from offcert.core.compiled import IntArray, compiled, inlined
from offcert.verification.growing import grown, put
from offcert.verification.outward.tables import (
    CAN,
    MAY,
    Asked,
    Tables,
    View,
    both_ways,
    can_be_absent,
    dot,
    exchange,
    lost,
    missing,
    overdue,
    rests,
    sums,
    ticks_of_bytes,
)

FOUND, REFUTED, FULL = range(3)
# The mark of no label. By definition.
NONE = -1
# Columns of a label.
MOVED, SPENT, FREE, AWAY, WAITED, RUN, GONE, LENGTH, LINK, MERIT, ALIVE, NEXT = range(12)


@compiled
def search(
    tables: Tables, low: IntArray, high: IntArray, asked: Asked, max_labels: int
) -> tuple[int, int, int, int]:
    """Search one side for ends that meet the limits asked for.

    `low` and `high` are the least and most of each class that are out at the cut.

    Returns
    -------
    status : int
        ``FOUND``; ``REFUTED`` if no side ends by the limit; ``FULL`` if there were too many labels.
    length, link : int
        Unless it is refuted, the least ticks that the side takes, and the least that its link alone
        accounts for.
    stored : int
        Labels.
    """
    classes, count = tables.out.shape
    base, base_returning = sums(tables, low, high)
    rest = rests(tables, high)
    back = np.zeros(classes, dtype=np.int64)
    known, returning = base.copy(), base_returning.copy()
    one_set = tables.shared and _are_equal(low, high)
    view = View(tables, low, high, asked, one_set, rest, back, known, returning)
    labels = np.zeros((256, NEXT + 1), dtype=np.int64)
    backs = np.zeros((256, classes), dtype=np.int64)
    first = {(0, 0): NONE}
    heap = [(0, 0, NONE)]
    heappop(heap)
    # Labels to which a transition leads; as many as operations at which a return can begin.
    proposals = np.zeros((count + 3, NEXT + 1), dtype=np.int64)
    label = np.zeros(NEXT + 1, dtype=np.int64)
    stored = 0
    if asked.leaving >= 0:
        label[MOVED], label[SPENT] = -tables.sizes[asked.leaving], -tables.back[asked.leaving]
    c, change = max(0, asked.leaving), -1 if asked.leaving >= 0 else 0
    label[WAITED], label[RUN] = _advance(view, c, change, label[MOVED], 0, 0, 0)
    label[FREE] = label[AWAY] = asked.begin
    put(proposals[0], label)
    proposed = 1
    codes = (0, 0)
    step = 0
    while True:
        # 1. Keep what is proposed, unless it is covered or too long.
        for index in range(proposed):
            proposal = proposals[index]
            code = codes[0] + change * tables.radix[0, c], codes[1] + change * tables.radix[1, c]
            head = first[code] if code in first else NONE  # noqa: SIM401
            if _covered(labels, head, proposal):
                continue
            _measure(view, c, change, proposal)
            if proposal[LENGTH] > asked.limit:
                continue
            _drop_worse(labels, head, proposal)
            if stored == len(labels):
                labels, backs = grown(labels), grown(backs)
            proposal[ALIVE], proposal[NEXT] = 1, head
            put(labels[stored], proposal)
            put(backs[stored], back)
            backs[stored, c] += change
            first[code] = stored
            heappush(heap, (proposal[LENGTH], -proposal[MERIT], stored))
            stored += 1
        # 2. Of the label at hand, the next tensor to return or to leave.
        proposed = 0
        if 0 < step < 2 * classes:
            c, change = step // 2, 1 - 2 * (step % 2)
            if change == 1:
                proposed = _return(view, label, c, proposals)
            else:
                proposed = _leave(view, label, c, proposals)
            step += 1
            continue
        # 3. Take the label with which the side is shortest.
        label[ALIVE] = 0
        while len(heap) > 0 and label[ALIVE] == 0:
            chosen = heappop(heap)[2]
            put(label, labels[chosen])
            put(back, backs[chosen])
        if label[ALIVE] == 0:
            return REFUTED, 0, 0, stored
        done = label[MOVED] >= asked.enough and (label[RUN] == count or not asked.to_end)
        if done or stored > max_labels:
            link = label[LINK]
            for _, _, waiting in heap:
                if labels[waiting, ALIVE] == 1:
                    link = min(link, labels[waiting, LINK])
            return FOUND if done else FULL, label[LENGTH], link, stored
        codes = dot(back, tables.radix[0]), dot(back, tables.radix[1])
        put(view.known.ravel(), base.ravel())
        put(view.returning, base_returning)
        for d in range(classes):
            if back[d] != 0:
                exchange(view, d, back[d])
        c, change = 0, 1
        proposed = _return(view, label, c, proposals)
        step = 1


@inlined
def _are_equal(low: IntArray, high: IntArray) -> bool:
    for c in range(len(low)):  # noqa: SIM110, compiled code has no generators
        if low[c] != high[c]:
            return False
    return True


@inlined
def _advance(
    view: View, c: int, change: int, moved: int, free: int, waited: int, run: int
) -> tuple[int, int]:
    """Run operations once the link is free; return the ticks waited, and the operations run."""
    begun = run
    while run < len(view.tables.need):
        lacks = missing(view, c, change, moved, run) > 0
        if lacks or _is_due(view, c, change, moved, run):
            break
        run += 1
    if run > begun:
        waited = max(waited, free - view.tables.clock[begun])
    return waited, run


@inlined
def _is_due(view: View, c: int, change: int, moved: int, k: int) -> bool:
    """Whether more is out than may be when operation `k` starts."""
    if overdue(view, c, change, k) > 0:
        return True
    fewer = lost(view, c, change, view.tables.out[c, k])
    return bool(view.asked.least - moved > view.known[MAY, k] - view.tables.sizes[c] * fewer)


@inlined
def _measure(view: View, c: int, change: int, label: IntArray) -> None:
    """Raise the bounds on the ends that a label can lead to."""
    tables, asked = view.tables, view.asked
    moved, free, run = label[MOVED], label[FREE], label[RUN]
    count, total = len(tables.need), tables.clock[len(tables.need)]
    leaving = both = 0
    lacking = _lacking(view, c, change, moved, run)
    if lacking > 0:
        # On a duplex link the first to leave may have been under way at the cut.
        first = 0 if tables.shared or label[GONE] == 1 else tables.largest
        leaving = ticks_of_bytes(max(0, lacking - first), tables.away_rate)
    later = _lacking_later(view, c, change, moved, run, lacking)
    if later > 0:
        both = max(both_ways(tables, later), tables.twice)
    link = free - label[SPENT] + asked.ticks
    longest, length = link + both, label[WAITED] + total
    # How long the side is if nothing leaves from now on.
    stays = stays_link = 0
    if run > 0:
        stays = label[WAITED] + tables.clock[run - 1] + view.rest[run - 1]
    if run < count:
        # The next operation waits for departures, or for a return, or for both.
        begin = label[AWAY] + leaving
        if _is_due(view, c, change, moved, run):
            begin = max(begin, free)
        length = max(length, begin + total - tables.clock[run])
        stays = max(stays, free + view.rest[run])
    if not tables.shared:
        # The link back does not wait for departures.
        leaving = 0
    if run < count:
        starts = _after_returns(view, c, change, run, link - _staying(view, c, change, run), free)
        longest = max(longest, starts + leaving + total - tables.clock[run])
    for e in range(len(tables.due)):
        k = tables.due[e]
        if k >= run:
            out = view.returning[e] - tables.back[c] * lost(view, c, change, tables.out[c, k])
            starts = _after_returns(view, c, change, k, link - out, free)
            longest = max(longest, starts + leaving + total - tables.clock[k])
            stays_link = max(stays_link, link - out + view.rest[k])
    if label[GONE] == 0 and not _more(view, c, change):
        longest = max(longest, min(stays_link, link + tables.twice))
        length = max(length, min(stays, link + tables.twice))
    label[LINK] = max(label[LINK], longest)
    label[LENGTH] = max(label[LENGTH], length, label[LINK])


@inlined
def _after_returns(view: View, c: int, change: int, k: int, time: int, free: int) -> int:
    """Return when operation `k` can start at the earliest; what returns before takes until `time`.

    Over a duplex link the last one may still be under way when it starts, which is said by 0, if no
    other has to begin before it and it is not itself due.
    """
    due = change == 1 and view.tables.out[c, k] < view.low[c] - view.back[c]
    return time if view.tables.shared or time > free or due else 0


@inlined
def _staying(view: View, c: int, change: int, k: int) -> int:
    """Return the ticks in which what may be out when operation `k` starts returns."""
    ticks = 0
    for d in range(len(view.back)):
        out = view.high[d] - view.back[d] - (change if d == c else 0)
        ticks += view.tables.back[d] * min(out, view.tables.out[d, k])
    return ticks


@inlined
def _more(view: View, c: int, change: int) -> bool:
    """Whether more of some class may be out than at the cut."""
    for d in range(len(view.back)):  # noqa: SIM110
        if view.back[d] + (change if d == c else 0) < 0:
            return True
    return False


@inlined
def _lacking(view: View, c: int, change: int, moved: int, run: int) -> int:
    """Return the bytes that must leave before the next operation can run."""
    if run == len(view.tables.need) or view.tables.need[run] <= 0:
        return 0
    can = view.asked.most - moved - overdue(view, c, change, run)
    return int(max(0, view.tables.need[run] - min(can, can_be_absent(view, c, change, run))))


@inlined
def _lacking_later(view: View, c: int, change: int, moved: int, run: int, lacking: int) -> int:
    """Return the most bytes that must leave before any operation still to run can."""
    lacking = max(lacking, view.tables.later[run] - (view.asked.most - moved))
    # One tensor makes no more difference than its size.
    margin = view.tables.sizes[c] * max(0, change)
    for k in range(run, len(view.tables.need)):
        need = view.tables.need[k]
        if need > 0 and need - view.known[CAN, k] + margin > lacking:
            lacking = max(lacking, need - can_be_absent(view, c, change, k))
    return int(lacking)


@inlined
def _merit(view: View, c: int, change: int) -> int:
    """Return how urgent the return is that makes this change; it decides between equals."""
    rank = view.high[c] - view.back[c] - 1 + (change < 0)
    return int(change * view.tables.worth[c, min(max(rank, 0), view.tables.worth.shape[1] - 1)])


@inlined
def _propose(
    view: View, label: IntArray, c: int, change: int, begin: int, run: int, proposal: IntArray
) -> None:
    """Write down what follows if a transfer begins when `run` operations have run and no more."""
    ticks = view.tables.back[c] if change == 1 else view.tables.away[c]
    for column in range(len(label)):
        proposal[column] = label[column]
    proposal[MOVED] += change * view.tables.sizes[c]
    proposal[SPENT] += change * view.tables.back[c]
    if view.tables.shared or change == 1:
        proposal[FREE] = begin + ticks
    if view.tables.shared or change == -1:
        proposal[AWAY] = begin + ticks
    proposal[GONE] = max(label[GONE], change < 0)
    proposal[MERIT] += _merit(view, c, change)
    proposal[WAITED], proposal[RUN] = _advance(
        view, c, change, proposal[MOVED], begin + ticks, label[WAITED], run
    )


@inlined
def _return(view: View, label: IntArray, c: int, proposals: IntArray) -> int:
    """Propose the labels after a tensor's return; return their number.

    The tensor takes memory from the begin of its return on. An operation that lacks that memory
    has ended by then, or runs only after something else has left, which has to return as well. Both
    are proposed, unless the limits allow one set only. Then the second is not needed: what leaves
    to let an operation run can do so before anything returns.
    """
    tables, asked = view.tables, view.asked
    moved = label[MOVED] + tables.sizes[c]
    if view.back[c] >= view.high[c] or moved > asked.most:
        return 0
    waits = view.one_set and label[RUN] < len(tables.need)
    if waits and missing(view, c, 1, moved, label[RUN]) > 0:
        return 0
    proposed, begin = 0, max(label[FREE], label[AWAY])
    # If it begins after that, all else that is out comes back too late.
    latest = asked.limit + label[SPENT] - asked.ticks
    k = np.searchsorted(tables.clock[1 : label[RUN] + 1], begin - label[WAITED], side="right")
    while k < label[RUN] and begin <= latest:
        lacking = missing(view, c, 1, moved, k)
        if lacking > 0:
            if not view.one_set and both_ways(tables, lacking) <= latest - begin:
                _propose(view, label, c, 1, begin, k, proposals[proposed])
                proposed += 1
            begin = label[WAITED] + tables.clock[k + 1]
        k += 1
    if begin <= latest:
        _propose(view, label, c, 1, begin, label[RUN], proposals[proposed])
        proposed += 1
    return proposed


@inlined
def _leave(view: View, label: IntArray, c: int, proposals: IntArray) -> int:
    """Propose the label after a tensor leaves; operations that need it are taken back."""
    tables, asked = view.tables, view.asked
    out = view.low[c] - view.back[c] + 1
    # Its return comes on top of those of all else that is out, and so does a departure over the
    # same link.
    latest = asked.limit + label[SPENT] - asked.ticks - tables.back[c]
    if tables.shared:
        latest -= tables.away[c]
    begin = label[AWAY]
    if not tables.shared and label[GONE] == 0:
        # It may have been under way at the cut.
        begin -= tables.away[c]
    last = asked.limit - tables.away[c] - tables.back[c]
    if out > tables.here[c] or label[FREE] > latest or begin > last:
        return 0
    run = 0
    while run < label[RUN] and out <= tables.out[c, run]:
        run += 1
    _propose(view, label, c, -1, begin, run, proposals[0])
    return 1


@inlined
def _as_good(one: IntArray, two: IntArray) -> bool:
    """Whether a label is at least as good as another with the same tensors back."""
    later = one[FREE] > two[FREE] or one[AWAY] > two[AWAY] or one[WAITED] > two[WAITED]
    return bool(not later and one[RUN] >= two[RUN])


@inlined
def _covered(labels: IntArray, head: int, proposal: IntArray) -> bool:
    """Whether a label with the same tensors back is as good."""
    index = head
    while index != NONE:
        if _as_good(labels[index], proposal):
            return True
        index = labels[index, NEXT]
    return False


@inlined
def _drop_worse(labels: IntArray, head: int, proposal: IntArray) -> None:
    """Drop the labels with the same tensors back that are no better."""
    index = head
    while index != NONE:
        if _as_good(proposal, labels[index]):
            labels[index, ALIVE] = 0
        index = labels[index, NEXT]
