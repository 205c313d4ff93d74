"""The compiled search of one side of a pivot, outward and best first.

Of the set `O` that is out at the cut only this is known: it has at least ``low`` and at most
``high`` tensors of each class, and ``LEAST`` to ``MOST`` bytes. A label is what a sequence of
returns and departures leads to, in the side's own time: how many of each class have returned, less
those that have left; when the link is free, or either direction of a duplex link; how many
operations have run, each as early as it could, and their idle time. The end of an operation that
has run is its idle time plus the sum of durations; if the device has waited since, that is too
late, but then it has waited for a transfer, so both the true end and this one are at most ``t`` or
``r``, and every use takes a maximum with these.
docs/theory/outward.md says when an operation runs, what a return and a departure lead to, and what
bounds a label promises.

With limits on `O` departures before returns would do as well as for one set, over one link. But
then the bound would not always rise as limits get tighter, and a verifier makes them tighter than
the search did.

The first label off the heap that has moved ``WINDOW`` bytes ends the search: no side is shorter.
Ties go to what is urgent, so that a search whose bound is tight runs straight outward.
"""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import inlined, inlined_and_entered, plain, plain_inner
from offcert.formulations.labels.outward.model import PARTS, OutwardSide
from offcert.formulations.labels.outward.outlook import (
    BEGIN,
    LEAVING,
    LIMIT,
    MOST,
    ONE_SET,
    ROOM,
    TICKS,
    TO_END,
    WINDOW,
    Outlook,
    SideQuestion,
    bounds,
    can_be,
    fits,
    is_due,
    look,
    look_at_cut,
    prepare,
)
from offcert.formulations.labels.store import (
    HEAP,
    LABELS,
    NEVER,
    NONE,
    Pool,
    enter,
    new_store,
    place_of,
    store_with,
    take,
)

# Labels of one search of one side, as in `store.Store`, and more; ``r`` is when the way out is
# free, the same as ``t`` over one link. The ``key`` are the tensors of each class that have
# returned, less those that have left; ``fv`` bounds the end of the side, and ``ft`` says how urgent
# the bytes ``moved`` were. ``spent`` are the link's ticks for these returns alone, ``left`` whether
# anything has left, ``link`` what the link alone says of the side's end; the last transfer
# ``began`` when ``kept`` operations had run and stayed run (the action is class + 1 for a return,
# minus that for a departure); ``bucket`` is a label's place in the table. ``nothing`` and
# ``limits`` are what `store.enter` asks for.
Labels = store_with("Labels", __name__, "moved spent left link began kept bucket nothing limits")


def new_labels(classes: int, capacity: int) -> Pool:
    """Return an empty store; `capacity` is a power of two."""
    moved, spent, link, began = (np.empty(capacity, np.int64) for _ in range(4))
    return Labels(
        *new_store(capacity, classes, 0, best_first=True),
        moved=moved,
        spent=spent,
        left=np.zeros(capacity, np.int8),
        link=link,
        began=began,
        kept=np.empty(capacity, np.int32),
        bucket=np.empty(capacity, np.int32),
        nothing=np.zeros(0, np.int64),
        limits=np.full(4, NEVER),
    )


@plain
def forget(labels: Pool) -> None:
    """Empty the store, in time that grows with the number of its labels."""
    for label in range(labels.counters[LABELS]):
        labels.table[labels.bucket[label]] = NONE
    labels.counters[LABELS] = labels.counters[HEAP] = 0


FOUND, REFUTED, FULL = range(3)


@inlined_and_entered
def run(
    side: OutwardSide,
    question: SideQuestion,
    outlook: Outlook,
    c: int,
    change: int,
    moved: int,
    free: int,
    idle: int,
    k: int,
) -> tuple[int, int]:
    """Run operations from `k` on as far as possible; return the idle time and how many have run.

    Of class `c` one tensor more (`change` 1) or less (-1) is back than with the label looked at.
    """
    waited, most = True, question.asked[MOST] - moved
    left, absent = question.high[c] - outlook.now[c], side.absent[c]
    while k < side.need.size:
        can = can_be(outlook.absent[k], side.size[c], change, left, absent[k])
        if not fits(side.need[k], most, can):
            break
        if is_due(side, question, outlook, c, change, moved, k):
            break
        if waited:
            idle = max(idle, free - side.prefix[k])
            waited = False
        k += 1
    return idle, k


@inlined
def _enter(
    side: OutwardSide,
    question: SideQuestion,
    outlook: Outlook,
    labels: Pool,
    parent: int,
    c: int,
    change: int,
    began: int,
    kept: int,
) -> None:
    """Store the label that a transfer leads to, unless it is hopeless or dominated.

    ``outlook.now`` holds what has returned then.
    """
    moved = labels.moved[parent] + change * side.size[c]
    spent = labels.spent[parent] + change * side.back[c]
    ended = began + (side.back[c] if change > 0 else side.away[c])
    left = 1 if change < 0 else labels.left[parent]
    free = ended if side.shared or change > 0 else labels.t[parent]
    out = ended if side.shared or change < 0 else labels.r[parent]
    idle, k = run(side, question, outlook, c, change, moved, ended, labels.s[parent], kept)
    length, link = bounds(
        side, question, outlook, c, change, moved, spent, free, out, idle, k, left
    )
    urgent = labels.ft[parent] + _urgency(side, question, outlook, c, change)
    _keep(
        outlook,
        labels,
        (free, out, idle, k),
        (max(length, labels.fv[parent]), max(link, labels.link[parent]), urgent),
        (moved, spent, left),
        (parent, change * (c + 1), began, kept),
    )


@inlined
def _keep(
    outlook: Outlook,
    labels: Pool,
    times: tuple[int, int, int, int],
    ends: tuple[int, int, int],
    done: tuple[int, int, int],
    origin: tuple[int, int, int, int],
) -> None:
    """Store a label unless it is hopeless or dominated; ``outlook.now`` is its key."""
    label = labels.counters[LABELS]
    free, out, idle, k = times
    length, link, urgent = ends
    parent, action, began, kept = origin
    key, limits = outlook.now, labels.limits
    enter(
        labels, key, labels.nothing, free, out, 0, idle, k, length, urgent, parent, action, limits
    )
    if labels.counters[LABELS] > label:
        labels.moved[label], labels.spent[label], labels.left[label] = done
        labels.link[label], labels.began[label], labels.kept[label] = link, began, kept
        labels.bucket[label] = place_of(labels.table, labels.key, key)


@inlined
def _urgency(
    side: OutwardSide, question: SideQuestion, outlook: Outlook, c: int, change: int
) -> int:
    """Return how urgent the last return was, or minus that of a departure."""
    rank = question.high[c] - outlook.now[c] - (change < 0)
    return change * side.urgent[c, min(max(rank, 0), side.urgent.shape[1] - 1)]


@plain_inner
def _start(side: OutwardSide, question: SideQuestion, outlook: Outlook, labels: Pool) -> None:
    """Enter the label of nothing returned.

    If a transfer away is under way at the cut, its tensor counts as out at once.
    """
    asked = question.asked
    for d in range(outlook.now.size):
        outlook.now[d] = 0
    moved, spent, c, change = 0, 0, max(0, asked[LEAVING]), 0
    look_at_cut(question, outlook)
    look(side, question, outlook)
    if asked[LEAVING] >= 0:
        outlook.now[c] = change = -1
        moved, spent = -side.size[c], -side.back[c]
    idle, k = run(side, question, outlook, c, change, moved, 0, 0, 0)
    free = asked[BEGIN]
    length, link = bounds(side, question, outlook, c, change, moved, spent, free, free, idle, k, 0)
    done = moved, spent, 0
    _keep(outlook, labels, (free, free, idle, k), (length, link, 0), done, (NONE, 0, 0, k))


@inlined
def _return(
    side: OutwardSide, question: SideQuestion, outlook: Outlook, labels: Pool, label: int, c: int
) -> int:
    """Write down when a tensor of class `c` can return; return how many ways there are."""
    asked, now = question.asked, outlook.now[c]
    moved = labels.moved[label] + side.size[c]
    if now >= question.high[c] or moved > asked[MOST]:
        return 0
    idle, k, begin = labels.s[label], labels.k[label], max(labels.t[label], labels.r[label])
    left, size, limits = question.high[c] - now - 1, side.size[c], side.absent[c]
    if asked[ONE_SET] == 1 and k < side.need.size:
        can = can_be(outlook.absent[k], size, 1, left, limits[k])
        if not fits(side.need[k], asked[MOST] - moved, can):
            return 0
    # A beginning after that is too late.
    latest = asked[LIMIT] + labels.spent[label] - asked[TICKS]
    ways, operation = 0, _first_after(side, idle, begin, k)
    while operation < k and begin <= latest:
        can = can_be(outlook.absent[operation], size, 1, left, limits[operation])
        need, most = side.need[operation], asked[MOST] - moved
        if not fits(need, most, can):
            # What the operation lacks has to leave, and to come back.
            both = (need - min(most, can)) * side.both_ways[0] // PARTS
            if asked[ONE_SET] == 0 and both <= latest - begin:
                outlook.began[ways], outlook.kept[ways] = begin, operation
                ways += 1
            begin = idle + side.prefix[operation + 1]
        operation += 1
    if begin <= latest:
        outlook.began[ways], outlook.kept[ways] = begin, k
        ways += 1
    return ways


@inlined
def _first_after(side: OutwardSide, idle: int, time: int, k: int) -> int:
    """Return the first of `k` operations that ends after a time."""
    low, high = 0, k
    while low < high:
        middle = (low + high) // 2
        if idle + side.prefix[middle + 1] > time:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def _leave(
    side: OutwardSide, question: SideQuestion, outlook: Outlook, labels: Pool, label: int, c: int
) -> int:
    """Write down when a tensor of class `c` can leave; return how many ways there are."""
    out, begin, asked = question.low[c] - outlook.now[c] + 1, labels.r[label], question.asked
    if out > side.here[c]:
        return 0
    link = labels.t[label] + side.back[c] - labels.spent[label] + asked[TICKS]
    if side.shared:
        link += side.away[c]
    elif labels.left[label] == 0:
        # The first to leave may have been under way at the cut.
        begin -= side.away[c]
    if max(link, begin + side.away[c] + side.back[c]) > asked[LIMIT]:
        return 0
    kept = 0
    while kept < labels.k[label] and out <= side.out[c, kept]:
        kept += 1
    outlook.began[0], outlook.kept[0] = begin, kept
    return 1


@plain
def search(
    side: OutwardSide, question: SideQuestion, outlook: Outlook, labels: Pool
) -> tuple[int, int]:
    """Search a side; the store is empty, the outlook scratch space.

    Return ``FOUND``, ``REFUTED`` if no side ends within the limit, or ``FULL`` if there is no room;
    and the label off the heap: its ``length`` bounds the end of the side unless it is refuted.
    """
    labels.limits[0] = labels.limits[2] = question.asked[LIMIT]
    prepare(side, question)
    _start(side, question, outlook, labels)
    classes = question.low.size
    while labels.counters[HEAP] > 0:
        label = take(labels)
        if labels.alive[label] == 0:
            continue
        done = question.asked[TO_END] == 0 or labels.k[label] == side.need.size
        if labels.moved[label] >= question.asked[WINDOW] and done:
            return FOUND, label
        stored, room = labels.counters[LABELS], classes * (labels.k[label] + 3)
        if stored >= question.asked[ROOM] or stored + room > labels.t.size:
            return FULL, label
        for c in range(classes):
            outlook.now[c] = labels.key[label, c]
        look(side, question, outlook)
        for each in range(2 * classes):
            c, change = each // 2, 1 - 2 * (each % 2)
            if change > 0:
                ways = _return(side, question, outlook, labels, label, c)
            else:
                ways = _leave(side, question, outlook, labels, label, c)
            outlook.now[c] += change
            for way in range(ways):
                began, kept = outlook.began[way], outlook.kept[way]
                _enter(side, question, outlook, labels, label, c, change, began, kept)
            outlook.now[c] -= change
    return REFUTED, NONE


@plain
def least_link(labels: Pool, label: int) -> int:
    """Return the least link bound of a label and of all that are still waiting."""
    least = labels.link[label]
    for place in range(labels.counters[HEAP]):
        waiting = labels.heap[place]
        if labels.alive[waiting] == 1:
            least = min(least, labels.link[waiting])
    return int(least)
