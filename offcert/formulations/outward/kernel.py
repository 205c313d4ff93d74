"""The compiled search of one side of a pivot, outward and best first.

Of the set `O` that is out at the cut only this is known: it has at least ``low`` and at most
``high`` tensors of each class, and ``LEAST`` to ``MOST`` bytes. A label is what a sequence of
returns and departures leads to, in the side's own time: how many of each class have returned, less
those that have left; when the link is free; how many operations have run, each as early as it
could, and their idle time. The end of an operation that has run is its idle time plus the sum of
durations; if the device has waited since, that is too late, but then it has waited for a transfer,
so both the true end and this one are at most ``free``, and every use takes a maximum with ``free``.

*An operation runs* when enough can be absent while it does, as far as bytes and classes tell, and
nothing need be out that must be back by then: of each class the surely absent, of all classes the
bytes.

*A return* takes its memory when it begins. Operations that have run and need that memory must have
ended by then; or they have not run yet, and neither has what comes after them, and wait for a
departure to make up for it. Either is followed up.

*A departure* frees memory when it ends. What must not run while its tensor is out, has not run yet.

*Bounds.* The device has to run what is left. The link has to return what is out; and if an
operation waits, all that must be back before one of the later ones, and those then have to run. An
operation that needs more absent than can be, waits for departures, which take time and have to
return. With at most so many bytes of `O` out, no tensors that are smaller than these are needed.

*Dominance.* Of labels with the same tensors back, one that is free no later, with no more idle time
and no fewer operations run, makes the other superfluous.

The first label off the heap that has moved ``WINDOW`` bytes ends the search: no side is shorter.
Ties go to what is urgent, so that a search whose bound is tight runs straight outward.
"""

from __future__ import annotations

from offcert.formulations.outward.ends import bounds
from offcert.formulations.outward.labels import (
    NONE,
    STORED,
    TOUCHED,
    WAITING,
    Labels,
    take,
    wait,
)
from offcert.formulations.outward.model import Side
from offcert.formulations.outward.question import (
    BEGIN,
    LEAST,
    LEAVING,
    LIMIT,
    MOST,
    ROOM,
    TICKS,
    TO_END,
    WINDOW,
    Question,
    fits,
    gone,
    is_due,
    prepare,
    touch,
)
from offcert.formulations.stores import compiled, place_of

FOUND, REFUTED, FULL = range(3)


@compiled
def run(
    side: Side, question: Question, labels: Labels, moved: int, free: int, idle: int, k: int
) -> tuple[int, int]:
    """Run what can be run from operation `k` on; return the idle time and how many have run.

    What has returned stands in ``labels.now`` and its list.
    """
    waited = True
    while k < side.need.size:
        if not fits(side, question, labels, moved, k) or is_due(side, question, labels, k):
            break
        out = question.out[k] - gone(side.size, side.out, k, question, labels)
        if question.asked[LEAST] - moved > out:
            break
        if waited:
            idle = max(idle, free - side.prefix[k])
            waited = False
        k += 1
    return idle, k


@compiled
def _enter(
    side: Side,
    question: Question,
    labels: Labels,
    parent: int,
    action: int,
    began: int,
    kept: int,
    moved: int,
    spent: int,
    free: int,
) -> None:
    """Store the label that a transfer leads to, unless it is hopeless or dominated.

    ``labels.now`` holds what has returned then.
    """
    touch(labels)
    idle, k = run(side, question, labels, moved, free, labels.idle[parent], kept)
    left = 1 if action < 0 else labels.left[parent]
    length, link = bounds(side, question, labels, moved, spent, free, idle, k, left)
    length = max(length, labels.length[parent])
    link = max(link, labels.link[parent])
    if length > question.asked[LIMIT]:
        return
    place = place_of(labels.table, labels.returned, labels.now)
    other, last = labels.table[place], NONE
    while other >= 0:
        if labels.free[other] <= free and labels.idle[other] <= idle and labels.run[other] >= k:
            return
        after = labels.following[other]
        if free <= labels.free[other] and idle <= labels.idle[other] and k >= labels.run[other]:
            labels.alive[other] = 0
            if last >= 0:
                labels.following[last] = after
        else:
            last = other
        other = after
    label = _store(labels, place, moved, spent, free, idle, k)
    labels.progress[label] = labels.progress[parent] + _urgency(side, question, labels, action)
    labels.length[label], labels.link[label], labels.left[label] = length, link, left
    labels.before[label], labels.action[label] = parent, action
    labels.began[label], labels.kept[label] = began, kept
    wait(labels, label)


@compiled
def _urgency(side: Side, question: Question, labels: Labels, action: int) -> int:
    """Return how urgent the last return was, or minus that of a departure."""
    c = abs(action) - 1
    rank = question.high[c] - labels.now[c] - (action < 0)
    urgency = side.urgent[c, min(max(rank, 0), side.urgent.shape[1] - 1)]
    return urgency if action > 0 else -urgency


@compiled
def _store(labels: Labels, place: int, moved: int, spent: int, free: int, idle: int, k: int) -> int:
    label = labels.counters[STORED]
    labels.counters[STORED] += 1
    for c in range(labels.now.size):
        labels.returned[label, c] = labels.now[c]
    labels.moved[label], labels.spent[label] = moved, spent
    labels.free[label], labels.idle[label], labels.run[label] = free, idle, k
    labels.alive[label], labels.bucket[label] = 1, place
    labels.following[label] = labels.table[place]
    labels.table[place] = label
    return int(label)


@compiled
def _start(side: Side, question: Question, labels: Labels) -> None:
    """Enter the label of nothing returned.

    If a transfer away is under way at the cut, its tensor counts as out at once.
    """
    asked = question.asked
    for c in range(labels.now.size):
        labels.now[c] = 0
    labels.counters[TOUCHED] = 0
    leaving, moved, spent = asked[LEAVING], 0, 0
    if leaving >= 0:
        labels.now[leaving] = -1
        touch(labels)
        moved, spent = -side.size[leaving], -side.back[leaving]
    idle, k = run(side, question, labels, moved, 0, 0, 0)
    free = asked[BEGIN]
    length, link = bounds(side, question, labels, moved, spent, free, idle, k, 0)
    if length > asked[LIMIT]:
        return
    label = _store(
        labels, place_of(labels.table, labels.returned, labels.now), moved, spent, free, idle, k
    )
    labels.length[label], labels.link[label], labels.progress[label] = length, link, 0
    labels.left[label] = 0
    labels.before[label], labels.action[label] = NONE, 0
    labels.began[label], labels.kept[label] = 0, k
    wait(labels, label)


@compiled
def _return(side: Side, question: Question, labels: Labels, label: int, c: int) -> None:
    """Enter what follows if a tensor of class `c` returns."""
    now, asked = labels.now, question.asked
    moved = labels.moved[label] + side.size[c]
    if now[c] >= question.high[c] or moved > asked[MOST]:
        return
    idle, k = labels.idle[label], labels.run[label]
    spent, begin = labels.spent[label] + side.back[c], labels.free[label]
    now[c] += 1
    touch(labels)
    # A beginning after that is too late.
    latest = asked[LIMIT] - side.back[c] + spent - asked[TICKS]
    operation = _first_after(side, idle, begin, k)
    while operation < k and begin <= latest:
        if not fits(side, question, labels, moved, operation):
            end = idle + side.prefix[operation + 1]
            free = begin + side.back[c]
            _enter(side, question, labels, label, c + 1, begin, operation, moved, spent, free)
            begin = end
        operation += 1
    if begin <= latest:
        free = begin + side.back[c]
        _enter(side, question, labels, label, c + 1, begin, k, moved, spent, free)
    now[c] -= 1


@compiled
def _first_after(side: Side, idle: int, time: int, k: int) -> int:
    """Return the first of `k` operations that ends after a time."""
    low, high = 0, k
    while low < high:
        middle = (low + high) // 2
        if idle + side.prefix[middle + 1] > time:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def _leave(side: Side, question: Question, labels: Labels, label: int, c: int) -> None:
    """Enter what follows if a tensor of class `c` leaves."""
    now, low = labels.now, question.low
    if low[c] - now[c] >= side.here[c]:
        return
    moved, spent = labels.moved[label] - side.size[c], labels.spent[label] - side.back[c]
    begin = labels.free[label]
    free = begin + side.away[c]
    if free - spent + question.asked[TICKS] > question.asked[LIMIT]:
        return
    now[c] -= 1
    kept = 0
    while kept < labels.run[label] and low[c] - now[c] <= side.out[c, kept]:
        kept += 1
    _enter(side, question, labels, label, -c - 1, begin, kept, moved, spent, free)
    now[c] += 1


@compiled
def search(side: Side, question: Question, labels: Labels) -> tuple[int, int]:
    """Search a side; the store is empty.

    Parameters
    ----------
    side : Side
        Of a pivot.
    question : Question
        What is asked of it.
    labels : Labels
        The store.

    Returns
    -------
    status : int
        ``FOUND``; ``REFUTED`` if no side ends within the limit; ``FULL`` if there is no room.
    label : int
        The label off the heap: its ``length`` bounds the end of the side unless it is refuted.
    """
    prepare(side, question)
    _start(side, question, labels)
    classes = question.low.size
    while labels.counters[WAITING] > 0:
        label = take(labels)
        if labels.alive[label] == 0:
            continue
        done = question.asked[TO_END] == 0 or labels.run[label] == side.need.size
        if labels.moved[label] >= question.asked[WINDOW] and done:
            return FOUND, label
        stored, room = labels.counters[STORED], classes * (labels.run[label] + 3)
        if stored >= question.asked[ROOM] or stored + room > labels.free.size:
            return FULL, label
        for c in range(classes):
            labels.now[c] = labels.returned[label, c]
        for c in range(classes):
            _return(side, question, labels, label, c)
            _leave(side, question, labels, label, c)
    return REFUTED, NONE


@compiled
def least_link(labels: Labels, label: int) -> int:
    """Return the least link bound of a label and of all that are still waiting."""
    least = labels.link[label]
    for place in range(labels.counters[WAITING]):
        waiting = labels.heap[place]
        if labels.alive[waiting] == 1:
            least = min(least, labels.link[waiting])
    return int(least)
