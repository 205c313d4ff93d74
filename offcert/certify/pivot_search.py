"""The search behind `pivot_check`: one side of a cut, label by label.

It is compiled, because a network needs a million labels, but written for reading: lists of labels
by what is out, a queue ordered by when the link is free, and no bound but those that `know` gives.
It shares nothing with the program whose result it confirms.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from offcert.certify.pivot_tables import (
    COLUMNS,
    FREE,
    LAST_BACK,
    NONE,
    OUT,
    RETURNED,
    RUN,
    WAITED,
    IntArray,
    Tables,
    know,
)
from offcert.core.compiled import compiled, inlined


@compiled
def search(
    tables: Tables, limit: int, whole_limit: int, max_labels: int, max_numbers: int
) -> tuple[bool, IntArray, IntArray, IntArray]:
    """Return every complete label that ends by `limit`.

    Returns
    -------
    finished : bool
        False if more than `max_labels` would have been expanded or more than `max_numbers`
        combinations of tensors been told apart.
    labels : int64 array, one row a label
        Complete ones: when the link is free, ticks waited, and the classes that may not leave any
        more; the last column numbers what is out, as `outs` does.
    straddles : int64 array, one row a return across the cut
        End of the side, begin of the transfer, its class, the classes that may not leave any more,
        and what is out after it.
    outs : int64 array, shape (numbers, C)
        How many of each class are out.
    """
    classes, count = len(tables.sizes), len(tables.clock) - 1
    numbers = {0: 0}
    outs = np.zeros((64, classes), dtype=np.int64)
    known = np.zeros((64, 3, count + 1), dtype=np.int64)
    first = np.full(64, NONE, dtype=np.int64)
    labels = np.zeros((1024, COLUMNS), dtype=np.int64)
    following = np.full(1024, NONE, dtype=np.int64)
    alive = np.zeros(1024, dtype=np.bool_)
    know(tables, outs[0], known[0])
    # A class can leave once and come back at as many times as there are operations.
    proposals = np.zeros((classes * (count + 2) + 1, COLUMNS), dtype=np.int64)
    proposals[0, LAST_BACK] = NONE
    complete = np.zeros((64, 4), dtype=np.int64)
    straddles = np.zeros((64, 5), dtype=np.int64)
    stored = expanded = completed = straddling = 0
    proposed = 1
    heap = [(0, NONE)]
    heappop(heap)
    while True:
        # 1. Keep what is proposed, unless it is late or covered.
        for index in range(proposed):
            proposal = proposals[index]
            code = proposal[OUT]
            if code not in numbers:
                outs, known, first = _with_room(len(numbers), outs, known, first)
                _tell_apart(tables, code, numbers, outs, known)
            number = numbers[code]
            _advance(tables, outs[number], known[number], proposal)
            if not _in_time(tables, known[number], proposal, limit, whole_limit):
                continue
            if _covered(labels, following, alive, first, number, proposal):
                continue
            if stored == len(labels):
                labels = _grown(labels)
                following = np.concatenate((following, following))
                alive = np.concatenate((alive, np.zeros(len(alive), dtype=np.bool_)))
            labels[stored] = proposal
            labels[stored, OUT] = number
            following[stored] = first[number]
            first[number] = stored
            alive[stored] = True
            heappush(heap, (proposal[FREE], stored))
            stored += 1
        if len(heap) == 0:
            break
        # 2. Expand the label whose link is free first.
        chosen = heappop(heap)[1]
        proposed = 0
        if not alive[chosen]:
            continue
        expanded += 1
        if expanded > max_labels or len(numbers) > max_numbers:
            return False, complete[:0], straddles[:0], outs[:0]
        label = labels[chosen]
        number = label[OUT]
        out = outs[number]
        if label[RUN] == count and _complete(tables, out, known[number], NONE):
            if completed == len(complete):
                complete = _grown(complete)
            complete[completed] = (label[FREE], label[WAITED], label[RETURNED], number)
            completed += 1
        code = (out * tables.radix).sum()
        proposed = _send(tables, out, label, code, proposals, proposed)
        for c in range(classes):
            if out[c] == 0 or tables.opens[c, out[c] - 1] >= label[RUN]:
                continue
            begin, proposed = _fetch(
                tables, out, known[number], label, code, c, proposals, proposed
            )
            if (
                label[RUN] == count
                and out[c] <= tables.across[c]
                and _complete(tables, out, known[number], c)
            ):
                if straddling == len(straddles):
                    straddles = _grown(straddles)
                end = max(label[WAITED] + tables.clock[count], begin)
                returned = label[RETURNED] | tables.once[c]
                straddles[straddling] = (end, begin, c, returned, code - tables.radix[c])
                straddling += 1
    for straddle in straddles[:straddling]:
        if straddle[4] not in numbers:
            outs, known, first = _with_room(len(numbers), outs, known, first)
            _tell_apart(tables, straddle[4], numbers, outs, known)
        straddle[4] = numbers[straddle[4]]
    return True, complete[:completed], straddles[:straddling], outs[: len(numbers)]


@compiled
def _grown(array: IntArray) -> IntArray:
    larger = np.empty((2 * len(array), *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def _with_room(
    used: int, outs: IntArray, known: IntArray, first: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the tables of what is out with room for one row more."""
    if used == len(outs):
        outs, known = _grown(outs), _grown(known)
        first = np.concatenate((first, np.full(len(first), NONE, dtype=np.int64)))
    return outs, known, first


@compiled
def _tell_apart(
    tables: Tables, code: int, numbers: dict[int, int], outs: IntArray, known: IntArray
) -> None:
    """Give what is out a number, and write down what is known of it."""
    number = len(numbers)
    numbers[code] = number
    rest = code
    for c in range(len(tables.sizes) - 1, -1, -1):
        outs[number, c] = rest // tables.radix[c]
        rest -= outs[number, c] * tables.radix[c]
    know(tables, outs[number], known[number])


@inlined
def _advance(tables: Tables, out: IntArray, known: IntArray, label: IntArray) -> None:
    """Run what can run."""
    count = len(tables.clock) - 1
    begun = run = label[RUN]
    while run < count and known[0, run] >= tables.need[run]:
        blocked = False
        for c in range(len(out)):
            if out[c] > 0 and tables.due[c, out[c] - 1] <= run:
                blocked = True
                break
        if blocked:
            break
        if run == begun:
            label[WAITED] = max(label[WAITED], label[FREE] - tables.clock[run])
        run += 1
    label[RUN] = run


@inlined
def _in_time(
    tables: Tables, known: IntArray, label: IntArray, limit: int, whole_limit: int
) -> bool:
    run = label[RUN]
    if max(label[WAITED] + tables.head[run], label[FREE] + known[1, run]) > limit:
        return False
    return label[FREE] + known[2, run] <= whole_limit


@inlined
def _covers(one: IntArray, two: IntArray) -> bool:
    """Whether label `one` is at least as good as `two` in everything."""
    return (
        one[FREE] <= two[FREE]
        and one[WAITED] <= two[WAITED]
        and one[RUN] >= two[RUN]
        and one[RETURNED] & ~two[RETURNED] == 0
    )


@inlined
def _covered(
    labels: IntArray,
    following: IntArray,
    alive: NDArray[np.bool_],
    first: IntArray,
    number: int,
    proposal: IntArray,
) -> bool:
    """Whether a label with the same tensors out covers the proposal; drop those that it covers."""
    index = first[number]
    while index != NONE:
        if _covers(labels[index], proposal):
            return True
        index = following[index]
    previous = NONE
    index = first[number]
    while index != NONE:
        after = following[index]
        if _covers(proposal, labels[index]):
            alive[index] = False
            if previous == NONE:
                first[number] = after
            else:
                following[previous] = after
        else:
            previous = index
        index = after
    return False


@inlined
def _complete(tables: Tables, out: IntArray, known: IntArray, back: int) -> bool:
    """Whether what is out, but for the last tensor of class `back`, is right for the cut."""
    count = len(tables.clock) - 1
    absent = known[0, count]
    for c in range(len(out)):
        fewer = 1 if c == back else 0
        if out[c] - fewer > tables.across[c]:
            return False
        if fewer and out[c] <= tables.spans[c, count]:
            absent -= tables.sizes[c]
    return bool(absent >= tables.need[count])


@inlined
def _propose(
    proposals: IntArray,
    proposed: int,
    free: int,
    label: IntArray,
    run: int,
    returned: int,
    last_back: int,
    code: int,
) -> int:
    proposals[proposed, FREE] = free
    proposals[proposed, WAITED] = label[WAITED]
    proposals[proposed, RUN] = run
    proposals[proposed, RETURNED] = returned
    proposals[proposed, LAST_BACK] = last_back
    proposals[proposed, OUT] = code
    return proposed + 1


@inlined
def _send(
    tables: Tables,
    out: IntArray,
    label: IntArray,
    code: int,
    proposals: IntArray,
    proposed: int,
) -> int:
    """Move the next tensor of each class out."""
    since = -1
    last = label[LAST_BACK]
    if last >= 0 and out[last] < tables.across[last]:
        # What could have left before that return would have been better off doing so.
        since = label[FREE] - tables.back_times[last]
    for c in range(len(out)):
        m = out[c]
        if m >= tables.here[c] or label[RETURNED] & tables.once[c]:
            continue
        if tables.ready[c, m] >= label[RUN]:
            continue
        ready = label[WAITED] + tables.clock[tables.ready[c, m] + 1]
        free = max(label[FREE], ready) + tables.out_times[c]
        closes = tables.closes[c, m]
        late = closes <= label[RUN] and free >= label[WAITED] + tables.clock[closes]
        if ready <= since or late:
            continue
        run = min(label[RUN], tables.due[c, m])
        proposed = _propose(
            proposals, proposed, free, label, run, label[RETURNED], NONE, code + tables.radix[c]
        )
    return proposed


@inlined
def _fetch(
    tables: Tables,
    out: IntArray,
    known: IntArray,
    label: IntArray,
    code: int,
    c: int,
    proposals: IntArray,
    proposed: int,
) -> tuple[int, int]:
    """Move the last tensor of class `c` back; return when, at the latest, and the proposals."""
    rank = out[c] - 1
    less = code - tables.radix[c]
    returned = label[RETURNED] | tables.once[c]
    opens, closes = tables.opens[c, rank], tables.closes[c, rank]
    begin = max(label[FREE], label[WAITED] + tables.clock[opens + 1])
    for j in range(opens + 1, min(label[RUN], closes)):
        end = label[WAITED] + tables.clock[j + 1]
        if known[0, j] - tables.sizes[c] < tables.need[j] and end > begin:
            # Either this operation is taken back, or the tensor waits for its end.
            if _idle_fits(tables, out, label, c, begin, j):
                proposed = _propose(
                    proposals, proposed, begin + tables.back_times[c], label, j, returned, c, less
                )
            begin = end
    if _idle_fits(tables, out, label, c, begin, label[RUN]):
        proposed = _propose(
            proposals, proposed, begin + tables.back_times[c], label, label[RUN], returned, c, less
        )
    return begin, proposed


@inlined
def _idle_fits(
    tables: Tables, out: IntArray, label: IntArray, back: int, begin: int, run: int
) -> bool:
    """Whether memory holds a tensor that returns while the device waits to run operation `run`."""
    if begin < label[WAITED] + tables.clock[run]:
        return True
    absent = 0
    for c in range(len(out)):
        members = out[c] - 1 if c == back else out[c]
        for rank in range(members):
            if tables.opens[c, rank] < run <= tables.closes[c, rank]:
                absent += tables.sizes[c]
    return bool(absent >= tables.idle_need[run])
