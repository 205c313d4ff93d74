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

from typing import NamedTuple

from offcert.formulations.outward.labels import (
    NONE,
    STORED,
    TOUCHED,
    WAITING,
    Labels,
    place_of,
    pop,
    push,
)
from offcert.formulations.outward.model import NOTHING, Ints, Side
from offcert.formulations.pivot.pool import compiled

FOUND, REFUTED, FULL = range(3)
# Places of `Question.asked`.
LEAST, MOST, BEGIN, LEAVING, TICKS, LIMIT, WINDOW, TWICE, ROOM = range(9)
# Larger numbers are not multiplied any more.
SCALED = 2**60


class Question(NamedTuple):
    """What is asked about a side, and what follows from it while nothing has returned.

    ``low`` and ``high`` (C) are the least and most tensors of each class in `O`. ``asked`` are its
    least and most bytes, when the link is free at first, the class that is leaving then (or
    `NONE`), the least ticks in which all of it returns, the latest end that is of interest, how
    many bytes are far enough, the least link time of a departure and a return, and how many labels
    may be stored.

    ``absent`` (K) are the bytes that can be absent during an operation, ``out`` (K) those that may
    be out when it starts, ``sure`` (K) how many classes have some that must not be; ``ticks`` (E)
    the time in which what may be out when something is due returns; ``spare`` (K+1) the least that
    any operation from one on has more than it needs; ``rest`` (K) the least time from the start of
    an operation to the end of the side, if nothing leaves.
    """

    low: Ints
    high: Ints
    asked: Ints
    absent: Ints
    out: Ints
    sure: Ints
    ticks: Ints
    spare: Ints
    rest: Ints
    used: Ints


@compiled
def prepare(side: Side, question: Question) -> None:
    """Fill in what follows from a question."""
    high, last = question.high, side.need.size
    for k in range(last):
        absent, out, sure = 0, 0, 0
        for c in range(high.size):
            absent += side.size[c] * min(high[c], side.absent[c, k])
            out += side.size[c] * min(high[c], side.out[c, k])
            sure += question.low[c] > side.out[c, k]
        question.absent[k], question.out[k], question.sure[k] = absent, out, sure
    for e in range(side.due.size):
        ticks = 0
        for c in range(high.size):
            ticks += side.back[c] * min(high[c], side.out[c, side.due[e]])
        question.ticks[e] = ticks
    question.spare[last] = -NOTHING
    for k in range(last - 1, -1, -1):
        question.spare[k] = question.spare[k + 1]
        if side.need[k] > 0:
            question.spare[k] = min(question.spare[k], question.absent[k] - side.need[k])
    _fill_rest(side, question)


@compiled
def _fill_rest(side: Side, question: Question) -> None:
    """Find the least time from the start of each operation to the end of the side.

    Seen from that end, what an operation needs must have been moved before it, bit by bit and each
    tensor only once it is there. Times are counted in parts of a tick that make all of them whole.
    """
    last, scale, a_byte = side.need.size, side.rates[0], side.rates[1]
    total = side.prefix[last]
    bytes_out = 0
    for c in range(question.high.size):
        bytes_out += side.size[c] * question.high[c]
    exact = (total + 1) < SCALED // scale and bytes_out < SCALED // max(a_byte, 1)
    since = 0
    for k in range(last - 1, -1, -1):
        duration = side.prefix[k + 1] - side.prefix[k]
        if not exact:
            question.rest[k] = total - side.prefix[k]
            continue
        if side.need[k] > 0:
            since = max(since, _time_to_move(side, question, k, scale, a_byte))
        since += duration * scale
        question.rest[k] = -(-since // scale)


@compiled
def _time_to_move(side: Side, question: Question, k: int, scale: int, a_byte: int) -> int:
    """Return when, from the far end, a link can have moved what operation `k` needs."""
    used, missing, free = question.used, side.need[k], 0
    for c in range(used.size):
        used[c] = 0
    for i in range(side.item_class.size):
        c, due = side.item_class[i], side.item_due[i]
        if side.item_closes[i] <= k or used[c] >= question.high[c]:
            continue
        used[c] += 1
        # What is there from the beginning is due after the last operation.
        there = question.rest[due] * scale if due < side.need.size else 0
        part = min(missing, side.size[c])
        free = max(free, there) + part * a_byte
        missing -= part
        if missing == 0:
            break
    return free


@compiled
def touch(labels: Labels) -> None:
    """List the classes of which something has returned or left."""
    count = 0
    for c in range(labels.now.size):
        if labels.now[c] != 0:
            labels.touched[count] = c
            count += 1
    labels.counters[TOUCHED] = count


@compiled
def _ticks(amount: int, numerator: int, denominator: int) -> int:
    whole = amount // numerator
    rest = amount - whole * numerator
    return whole * denominator + (rest * denominator + numerator - 1) // numerator


@compiled
def _absent(side: Side, question: Question, labels: Labels, k: int) -> int:
    """Return the bytes that can be absent while operation `k` runs."""
    total = question.absent[k]
    for i in range(labels.counters[TOUCHED]):
        c = labels.touched[i]
        high, most = question.high[c], side.absent[c, k]
        total -= side.size[c] * (min(high, most) - min(high - labels.now[c], most))
    return int(total)


@compiled
def _out(side: Side, question: Question, labels: Labels, k: int) -> int:
    """Return the bytes that may be out when operation `k` starts."""
    total = question.out[k]
    for i in range(labels.counters[TOUCHED]):
        c = labels.touched[i]
        high, most = question.high[c], side.out[c, k]
        total -= side.size[c] * (min(high, most) - min(high - labels.now[c], most))
    return int(total)


@compiled
def _is_due(side: Side, question: Question, labels: Labels, k: int) -> bool:
    """Whether something is out that must be back before operation `k`."""
    if question.sure[k] > 0:
        for c in range(labels.now.size):
            if question.low[c] - labels.now[c] > side.out[c, k]:
                return True
        return False
    for i in range(labels.counters[TOUCHED]):
        c = labels.touched[i]
        if question.low[c] - labels.now[c] > side.out[c, k]:
            return True
    return False


@compiled
def run(
    side: Side, question: Question, labels: Labels, moved: int, free: int, idle: int, k: int
) -> tuple[int, int]:
    """Run what can be run from operation `k` on; return the idle time and how many have run.

    What has returned stands in ``labels.now`` and its list.
    """
    last, asked = side.need.size, question.asked
    waited = True
    while k < last:
        need = side.need[k]
        if need > 0 and (
            need > asked[MOST] - moved or need > _absent(side, question, labels, k)
        ):
            break
        if _is_due(side, question, labels, k):
            break
        if asked[LEAST] - moved > _out(side, question, labels, k):
            break
        if waited:
            idle = max(idle, free - side.prefix[k])
            waited = False
        k += 1
    return idle, k


@compiled
def _lacking(side: Side, question: Question, labels: Labels, moved: int, k: int) -> int:
    """Return the bytes that departures must free before operation `k` can run."""
    if k == side.need.size or side.need[k] <= 0:
        return 0
    absent = question.asked[MOST] - moved
    for c in range(labels.now.size):
        surely = question.low[c] - labels.now[c] - side.out[c, k]
        if surely > 0:
            absent -= side.size[c] * surely
    return int(max(0, side.need[k] - min(absent, _absent(side, question, labels, k))))


@compiled
def _lacking_later(
    side: Side, question: Question, labels: Labels, moved: int, k: int, least: int
) -> int:
    """Return the most bytes that departures must free before any operation after `k` can run."""
    lacking = max(least, side.later_need[k] - (question.asked[MOST] - moved))
    if question.spare[k] + lacking < moved:
        for operation in range(k + 1, side.need.size):
            need = side.need[operation]
            if need > lacking and question.absent[operation] - moved < need - lacking:
                lacking = max(lacking, need - _absent(side, question, labels, operation))
    return int(lacking)


@compiled
def _out_ticks(side: Side, question: Question, labels: Labels, e: int) -> int:
    """Return the time in which what may be out when something is due returns."""
    total, operation = question.ticks[e], side.due[e]
    for i in range(labels.counters[TOUCHED]):
        c = labels.touched[i]
        high, most = question.high[c], side.out[c, operation]
        total -= side.back[c] * (min(high, most) - min(high - labels.now[c], most))
    return int(total)


@compiled
def _bounds(
    side: Side,
    question: Question,
    labels: Labels,
    moved: int,
    spent: int,
    free: int,
    idle: int,
    k: int,
    left: int,
) -> tuple[int, int]:
    """Return bounds on the end of the side: all that is known, and what the link says."""
    asked, rates, last = question.asked, side.rates, side.need.size
    total = side.prefix[last]
    link = free - spent + asked[TICKS]
    lacking, departing, both = _lacking(side, question, labels, moved, k), 0, 0
    if lacking > 0:
        departing = _ticks(lacking, rates[2], rates[3])
    later = _lacking_later(side, question, labels, moved, k, lacking)
    if later > 0:
        both = _ticks(later, rates[0], rates[1]) + _ticks(later, rates[2], rates[3])
        both = max(both, asked[TWICE])
    longest, length = link + both, idle + total
    if k < last:
        length = max(length, free + departing + total - side.prefix[k])
    # What holds only if nothing leaves any more.
    stays, stays_link = 0, 0
    if k > 0:
        stays = idle + side.prefix[k - 1] + question.rest[k - 1]
    if k < last:
        stays = max(stays, free + question.rest[k])
    for e in range(side.due.size):
        operation = side.due[e]
        if operation >= k:
            returning = link - _out_ticks(side, question, labels, e)
            longest = max(longest, returning + departing + total - side.prefix[operation])
            stays_link = max(stays_link, returning + question.rest[operation])
    # Once something has left, operations may have run sooner than their idle time says.
    if left == 0 and not _more_out(labels):
        leaves = link + asked[TWICE]
        longest = max(longest, min(stays_link, leaves))
        length = max(length, min(stays, leaves))
    return max(length, longest), longest


@compiled
def _more_out(labels: Labels) -> bool:
    """Whether more of some class may be out than at the cut."""
    for i in range(labels.counters[TOUCHED]):  # noqa: SIM110
        if labels.now[labels.touched[i]] < 0:
            return True
    return False


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
    length, link = _bounds(side, question, labels, moved, spent, free, idle, k, left)
    length = max(length, labels.length[parent])
    link = max(link, labels.link[parent])
    if length > question.asked[LIMIT]:
        return
    place = place_of(labels, labels.now)
    other = labels.table[place]
    while other >= 0:
        if labels.free[other] <= free and labels.idle[other] <= idle and labels.run[other] >= k:
            return
        if free <= labels.free[other] and idle <= labels.idle[other] and k >= labels.run[other]:
            labels.alive[other] = 0
        other = labels.following[other]
    label = _store(labels, place, moved, spent, free, idle, k)
    labels.progress[label] = labels.progress[parent] + _urgency(side, question, labels, action)
    labels.length[label], labels.link[label], labels.left[label] = length, link, left
    labels.before[label], labels.action[label] = parent, action
    labels.began[label], labels.kept[label] = began, kept
    push(labels, label)


@compiled
def _urgency(side: Side, question: Question, labels: Labels, action: int) -> int:
    """Return how urgent the last return was, or minus that of a departure."""
    c = abs(action) - 1
    rank = question.high[c] - labels.now[c] - (action < 0)
    urgency = side.urgent[c, min(max(rank, 0), side.urgent.shape[1] - 1)]
    return urgency if action > 0 else -urgency


@compiled
def _store(
    labels: Labels, place: int, moved: int, spent: int, free: int, idle: int, k: int
) -> int:
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
    length, link = _bounds(side, question, labels, moved, spent, free, idle, k, 0)
    if length > asked[LIMIT]:
        return
    label = _store(labels, place_of(labels, labels.now), moved, spent, free, idle, k)
    labels.length[label], labels.link[label], labels.progress[label] = length, link, 0
    labels.left[label] = 0
    labels.before[label], labels.action[label] = NONE, 0
    labels.began[label], labels.kept[label] = 0, k
    push(labels, label)


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
        need = side.need[operation]
        if need > 0 and (
            need > asked[MOST] - moved or need > _absent(side, question, labels, operation)
        ):
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
        label = pop(labels)
        if labels.alive[label] == 0:
            continue
        if labels.moved[label] >= question.asked[WINDOW]:
            return FOUND, label
        room = classes * (labels.run[label] + 3)
        if labels.counters[STORED] + room > min(labels.free.size, question.asked[ROOM]):
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
