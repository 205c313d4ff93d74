"""The steps of annealing over claim sequences: from one list of moves to a slightly other one.

Everything is compiled. A list is three arrays, ``prefetch``, ``gap`` and ``before``, with room for
all gaps, of which the first ``count`` entries are moves, ordered by ``before`` (the *slot*). A step
changes them in place and returns the new count, or -1 if nothing sensible came out; the arrays are
garbage then. What the steps need to know of the problem stands in ``facts``: for each gap its
tensor, the writer of the tensor, and the operations that open and close the gap.

``limits`` restricts the plans: for each gap the least and the largest slot of its offload, then
those of its prefetch. Single steps rarely lead from "a large tensor leaves first" to "it leaves
after the turn", because every other transfer has to move too; a search that is kept away from the
one finds the other.
"""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import BoolArray, IntArray, inlined, inner

Facts = tuple[IntArray, IntArray, IntArray, IntArray]

# Shares of the annealing steps that try each kind of move; the other steps move one transfer.
# Arbitrary.
_EXCHANGE = 0.1
_DISPLACE = 0.15
_TOGGLE = 0.15
_SUBSTITUTE = 0.1
_SWAP = 0.2


@inlined
def neighbour(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    facts: Facts,
    limits: IntArray,
) -> int:
    """Change the moves at random; return their new number, or -1 if nothing sensible came out."""
    count = _step(prefetch, gap, before, count, facts, limits)
    for index in range(count):
        row = 2 if prefetch[index] else 0
        if not limits[row, gap[index]] <= before[index] <= limits[row + 1, gap[index]]:
            return -1
    return count


@inlined
def copy_moves(
    to: tuple[BoolArray, IntArray, IntArray], of: tuple[BoolArray, IntArray, IntArray], count: int
) -> None:
    """Make the first moves of a sequence those of another.

    Item by item: for slices Numba would compile a second's worth of checks and their messages.
    """
    for index in range(count):
        to[0][index] = of[0][index]
        to[1][index] = of[1][index]
        to[2][index] = of[2][index]


@inlined
def _step(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    facts: Facts,
    limits: IntArray,
) -> int:
    kind = np.random.random()
    chosen = np.random.randint(len(facts[0]))
    if kind < _TOGGLE or count == 0:
        return _toggle(prefetch, gap, before, count, facts, limits, chosen)
    kind -= _TOGGLE
    index = np.random.randint(count)
    if kind < _EXCHANGE:
        return _exchange(prefetch, gap, before, count, facts, index, np.random.randint(count))
    kind -= _EXCHANGE
    if kind < _DISPLACE:
        return _displace(prefetch, gap, before, count, facts, limits, index, chosen)
    kind -= _DISPLACE
    if kind < _SUBSTITUTE:
        count = _substitute(prefetch, gap, before, count, facts, index, chosen)
        if count < 0 or np.random.random() < 0.5:
            return count
        # One for two, or two for one: sums of sizes that no exchange of equals reaches.
        chosen = np.random.randint(len(facts[0]))
        return _toggle(prefetch, gap, before, count, facts, limits, chosen)
    kind -= _SUBSTITUTE
    if kind < _SWAP:
        if index + 1 == count or gap[index] == gap[index + 1]:
            return -1
        # Neighbours change places; each keeps the slot of its new place.
        prefetch[index], prefetch[index + 1] = prefetch[index + 1], prefetch[index]
        gap[index], gap[index + 1] = gap[index + 1], gap[index]
        return count
    return _shift(prefetch, gap, before, count, facts, limits, index)


@inlined
def _slots(facts: Facts, limits: IntArray, is_prefetch: bool, chosen: int) -> tuple[int, int]:
    """Return the least and the largest slot that a transfer may have."""
    writer, opened, closed = facts[1:]
    if is_prefetch:
        return max(opened[chosen] + 1, limits[2, chosen]), min(closed[chosen], limits[3, chosen])
    return max(writer[chosen] + 1, limits[0, chosen]), min(closed[chosen], limits[1, chosen])


@inlined
def _shift(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    facts: Facts,
    limits: IntArray,
    index: int,
) -> int:
    """Take one move to another slot, most often one nearby."""
    is_prefetch, chosen, slot = prefetch[index], gap[index], before[index]
    first, last = _slots(facts, limits, is_prefetch, chosen)
    if first > last:
        return -1
    kind = np.random.random()
    if kind < 0.9:
        reach = 3 if kind < 0.6 else 12
        slot = max(first, min(last, slot + np.random.randint(-reach, reach + 1)))
    else:
        # Anywhere: the link may be idle far away, around the turn for instance.
        slot = np.random.randint(first, last + 1)
    _remove(prefetch, gap, before, index, count)
    return _place(prefetch, gap, before, count - 1, is_prefetch, chosen, slot)


@inlined
def _toggle(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    facts: Facts,
    limits: IntArray,
    chosen: int,
) -> int:
    """Evict a gap that is kept, or keep one that is evicted; return the number of moves.

    The offload always names the first evicted gap of its tensor, and goes with the last one.
    """
    tensor, _, opened, _ = facts
    offload = fetch = -1
    first = len(tensor)
    for index in range(count):
        if tensor[gap[index]] == tensor[chosen]:
            if not prefetch[index]:
                offload = index
            elif gap[index] == chosen:
                fetch = index
            else:
                first = min(first, gap[index])
    if fetch >= 0:
        if first < len(tensor):
            gap[offload] = first
            _remove(prefetch, gap, before, fetch, count)
            return count - 1
        return _remove_both(prefetch, gap, before, offload, fetch, count)
    earliest, latest = _slots(facts, limits, False, chosen)
    earliest = max(earliest, opened[chosen] + 1)
    soonest, last = _slots(facts, limits, True, chosen)
    latest = min(latest, last)
    if earliest > latest:
        return -1
    leave = min(latest, earliest + np.random.randint(3))
    if np.random.random() < 0.2:
        leave = np.random.randint(earliest, latest + 1)
    soonest = max(soonest, leave)
    if soonest > last:
        return -1
    back = max(soonest, last - np.random.randint(3))
    if np.random.random() < 0.2:
        # Away for a short while only: the link need not be busy when all others return.
        back = np.random.randint(soonest, last + 1)
    if offload >= 0:
        gap[offload] = min(chosen, first)
    else:
        count = _place(prefetch, gap, before, count, False, chosen, leave)
    return _place(prefetch, gap, before, count, True, chosen, back)


@inlined
def _substitute(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    facts: Facts,
    index: int,
    chosen: int,
) -> int:
    """Keep the tensor of move `index` and evict gap `chosen` at its places instead.

    Two toggles do the same, but through a plan that moves one tensor too few or too many.
    """
    tensor, writer, opened, closed = facts
    offload = fetch = -1
    for place in range(count):
        if tensor[gap[place]] == tensor[chosen]:
            return -1
        if tensor[gap[place]] == tensor[gap[index]]:
            if not prefetch[place]:
                offload = place
            elif fetch >= 0:
                return -1
            else:
                fetch = place
    leave = max(writer[chosen] + 1, min(closed[chosen], before[offload]))
    back = max(opened[chosen] + 1, min(closed[chosen], before[fetch]))
    if back < leave:
        return -1
    count = _remove_both(prefetch, gap, before, offload, fetch, count)
    count = _place(prefetch, gap, before, count, False, chosen, leave)
    return _place(prefetch, gap, before, count, True, chosen, back)


@inlined
def _exchange(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    facts: Facts,
    one: int,
    two: int,
) -> int:
    """Exchange the places of two offloads, or of two prefetches, however far apart."""
    if prefetch[one] != prefetch[two] or one == two:
        return -1
    _, writer, opened, closed = facts
    for place, chosen in ((one, gap[two]), (two, gap[one])):
        first = opened[chosen] if prefetch[place] else writer[chosen]
        if not first < before[place] <= closed[chosen]:
            return -1
    gap[one], gap[two] = gap[two], gap[one]
    return count


@inlined
def _displace(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    facts: Facts,
    limits: IntArray,
    index: int,
    chosen: int,
) -> int:
    """Give the place of one transfer to a tensor that is kept, and keep both evicted.

    An offload that is displaced happens later, a prefetch earlier, at any slot that is left; the
    newcomer's other transfer stands anywhere too. So the two ends of a schedule may move different
    tensors, and the link makes up for it in between.
    """
    tensor, writer, opened, closed = facts
    is_prefetch, old, slot = prefetch[index], gap[index], before[index]
    partner = -1
    for place in range(count):
        if tensor[gap[place]] == tensor[chosen]:
            return -1
        if gap[place] == old and prefetch[place] != is_prefetch:
            partner = place
    if partner < 0 or not (opened if is_prefetch else writer)[chosen] < slot <= closed[chosen]:
        return -1
    if is_prefetch:
        low, high = max(before[partner], opened[old] + 1), slot
        first, last = _slots(facts, limits, False, chosen)
        last = min(last, slot)
    else:
        low, high = slot, before[partner]
        first, last = _slots(facts, limits, True, chosen)
        first = max(first, slot)
    if low > high or first > last:
        return -1
    gap[index] = chosen
    slot = np.random.randint(low, high + 1)
    count = _place(prefetch, gap, before, count, is_prefetch, old, slot)
    slot = np.random.randint(first, last + 1)
    return _place(prefetch, gap, before, count, not is_prefetch, chosen, slot)


@inlined
def _remove(prefetch: BoolArray, gap: IntArray, before: IntArray, index: int, count: int) -> None:
    for place in range(index, count - 1):
        prefetch[place] = prefetch[place + 1]
        gap[place] = gap[place + 1]
        before[place] = before[place + 1]


@inlined
def _remove_both(
    prefetch: BoolArray, gap: IntArray, before: IntArray, one: int, two: int, count: int
) -> int:
    """Remove two moves in either order of the list; return how many are left.

    On a duplex link an offload may stand behind its prefetch.
    """
    _remove(prefetch, gap, before, max(one, two), count)
    _remove(prefetch, gap, before, min(one, two), count - 1)
    return count - 2


@inner
def _place(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    is_prefetch: bool,
    chosen: int,
    slot: int,
) -> int:
    """Insert a move at a random place among those of its slot, offload before prefetch."""
    first = 0
    while first < count and before[first] < slot:
        first += 1
    last = first
    while last < count and before[last] == slot:
        last += 1
    low, high = first, last
    for place in range(count):
        if gap[place] == chosen:
            if is_prefetch and not prefetch[place]:
                low = max(low, place + 1)
            elif not is_prefetch and prefetch[place]:
                high = min(high, place)
    if low > last or high < first:
        # The partner stands on the wrong side: squeeze in beside it.
        position = low if is_prefetch else high
    else:
        position = low + np.random.randint(high - low + 1) if high >= low else low
    if position < first:
        slot = before[position]
    elif position > last:
        slot = before[position - 1]
    for place in range(count, position, -1):
        prefetch[place] = prefetch[place - 1]
        gap[place] = gap[place - 1]
        before[place] = before[place - 1]
    prefetch[position] = is_prefetch
    gap[position] = chosen
    before[position] = slot
    return count + 1
