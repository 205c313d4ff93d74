"""The steps of annealing over claim sequences: from one list of moves to a slightly other one.

Everything is compiled. A list has room for all gaps; its first ``count`` entries are moves, ordered
by slot. A step changes them in place and returns the new count, or -1 if nothing sensible came out;
the arrays are garbage then.

Limits of slots restrict the plans. Single steps rarely lead from "a large tensor leaves first" to
"it leaves after the turn", because every other transfer has to move too; a search that is kept away
from the one finds the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcert.core.compiled import BoolArray, IntArray, inlined, inner


class MoveList(NamedTuple):
    """A list of moves, which steps change in place."""

    prefetch: BoolArray  # Whether each brings its tensor back.
    gap: IntArray
    before: IntArray  # The slot: the operation before which it stands.

    def copy(self) -> MoveList:
        """Return a copy."""
        return MoveList(self.prefetch.copy(), self.gap.copy(), self.before.copy())


class Facts(NamedTuple):
    """The numbers that steps need to know of each gap."""

    tensor: IntArray
    writer: IntArray  # The operation that writes the tensor.
    # The operations that open and close the gap.
    opened: IntArray
    closed: IntArray
    # (4, gaps). The least and the largest slot of its offload, then those of its prefetch.
    limits: IntArray


# Shares of the annealing steps that try each kind of move; the other steps move one transfer.
# Arbitrary.
_EXCHANGE = 0.1
_DISPLACE = 0.15
_TOGGLE = 0.15
_SUBSTITUTE = 0.1
_SWAP = 0.2


@inlined
def neighbour(moves: MoveList, count: int, facts: Facts) -> int:
    """Change the moves at random; return their new number, or -1 if nothing sensible came out."""
    count = _step(moves, count, facts)
    for index in range(count):
        row = 2 if moves.prefetch[index] else 0
        low, high = facts.limits[row : row + 2, moves.gap[index]]
        if not low <= moves.before[index] <= high:
            return -1
    return count


@inlined
def copy_moves(to: MoveList, of: MoveList, count: int) -> None:
    """Make the first moves of a sequence those of another.

    Item by item: for slices Numba would compile a second's worth of checks and their messages.
    """
    for index in range(count):
        to.prefetch[index] = of.prefetch[index]
        to.gap[index] = of.gap[index]
        to.before[index] = of.before[index]


@inlined
def _step(moves: MoveList, count: int, facts: Facts) -> int:
    prefetch, gap, _ = moves
    kind = np.random.random()
    chosen = np.random.randint(len(facts.tensor))
    if kind < _TOGGLE or count == 0:
        return _toggle(moves, count, facts, chosen)
    kind -= _TOGGLE
    index = np.random.randint(count)
    if kind < _EXCHANGE:
        return _exchange(moves, count, facts, index, np.random.randint(count))
    kind -= _EXCHANGE
    if kind < _DISPLACE:
        return _displace(moves, count, facts, index, chosen)
    kind -= _DISPLACE
    if kind < _SUBSTITUTE:
        count = _substitute(moves, count, facts, index, chosen)
        if count < 0 or np.random.random() < 0.5:
            return count
        # One for two, or two for one: sums of sizes that no exchange of equals reaches.
        chosen = np.random.randint(len(facts.tensor))
        return _toggle(moves, count, facts, chosen)
    kind -= _SUBSTITUTE
    if kind < _SWAP:
        if index + 1 == count or gap[index] == gap[index + 1]:
            return -1
        # Neighbours change places; each keeps the slot of its new place.
        prefetch[index], prefetch[index + 1] = prefetch[index + 1], prefetch[index]
        gap[index], gap[index + 1] = gap[index + 1], gap[index]
        return count
    return _shift(moves, count, facts, index)


@inlined
def _slots(facts: Facts, is_prefetch: bool, chosen: int) -> tuple[int, int]:
    """Return the least and the largest slot that a transfer may have."""
    writer, opened, closed, limits = facts[1:]
    if is_prefetch:
        return max(opened[chosen] + 1, limits[2, chosen]), min(closed[chosen], limits[3, chosen])
    return max(writer[chosen] + 1, limits[0, chosen]), min(closed[chosen], limits[1, chosen])


@inlined
def _shift(moves: MoveList, count: int, facts: Facts, index: int) -> int:
    """Take one move to another slot, most often one nearby."""
    is_prefetch, chosen, slot = moves.prefetch[index], moves.gap[index], moves.before[index]
    first, last = _slots(facts, is_prefetch, chosen)
    if first > last:
        return -1
    kind = np.random.random()
    if kind < 0.9:
        reach = 3 if kind < 0.6 else 12
        slot = max(first, min(last, slot + np.random.randint(-reach, reach + 1)))
    else:
        # Anywhere: the link may be idle far away, around the turn for instance.
        slot = np.random.randint(first, last + 1)
    _remove(moves, index, count)
    return _place(moves, count - 1, is_prefetch, chosen, slot)


@inlined
def _toggle(moves: MoveList, count: int, facts: Facts, chosen: int) -> int:
    """Evict a gap that is kept, or keep one that is evicted; return the number of moves.

    The offload always names the first evicted gap of its tensor, and goes with the last one.
    """
    prefetch, gap, _ = moves
    tensor, opened = facts.tensor, facts.opened
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
            _remove(moves, fetch, count)
            return count - 1
        return _remove_both(moves, offload, fetch, count)
    earliest, latest = _slots(facts, False, chosen)
    earliest = max(earliest, opened[chosen] + 1)
    soonest, last = _slots(facts, True, chosen)
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
        count = _place(moves, count, False, chosen, leave)
    return _place(moves, count, True, chosen, back)


@inlined
def _substitute(moves: MoveList, count: int, facts: Facts, index: int, chosen: int) -> int:
    """Keep the tensor of move `index` and evict gap `chosen` at its places instead.

    Two toggles do the same, but through a plan that moves one tensor too few or too many.
    """
    prefetch, gap, before = moves
    tensor, writer, opened, closed, _ = facts
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
    count = _remove_both(moves, offload, fetch, count)
    count = _place(moves, count, False, chosen, leave)
    return _place(moves, count, True, chosen, back)


@inlined
def _exchange(moves: MoveList, count: int, facts: Facts, one: int, two: int) -> int:
    """Exchange the places of two offloads, or of two prefetches, however far apart."""
    prefetch, gap, before = moves
    if prefetch[one] != prefetch[two] or one == two:
        return -1
    _, writer, opened, closed, _ = facts
    for place, chosen in ((one, gap[two]), (two, gap[one])):
        first = opened[chosen] if prefetch[place] else writer[chosen]
        if not first < before[place] <= closed[chosen]:
            return -1
    gap[one], gap[two] = gap[two], gap[one]
    return count


@inlined
def _displace(moves: MoveList, count: int, facts: Facts, index: int, chosen: int) -> int:
    """Give the place of one transfer to a tensor that is kept, and keep both evicted.

    An offload that is displaced happens later, a prefetch earlier, at any slot that is left; the
    newcomer's other transfer stands anywhere too. So the two ends of a schedule may move different
    tensors, and the link makes up for it in between.
    """
    prefetch, gap, before = moves
    tensor, writer, opened, closed, _ = facts
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
        first, last = _slots(facts, False, chosen)
        last = min(last, slot)
    else:
        low, high = slot, before[partner]
        first, last = _slots(facts, True, chosen)
        first = max(first, slot)
    if low > high or first > last:
        return -1
    gap[index] = chosen
    slot = np.random.randint(low, high + 1)
    count = _place(moves, count, is_prefetch, old, slot)
    slot = np.random.randint(first, last + 1)
    return _place(moves, count, not is_prefetch, chosen, slot)


@inlined
def _remove(moves: MoveList, index: int, count: int) -> None:
    prefetch, gap, before = moves
    for place in range(index, count - 1):
        prefetch[place] = prefetch[place + 1]
        gap[place] = gap[place + 1]
        before[place] = before[place + 1]


@inlined
def _remove_both(moves: MoveList, one: int, two: int, count: int) -> int:
    """Remove two moves in either order of the list; return how many are left.

    On a duplex link an offload may stand behind its prefetch.
    """
    _remove(moves, max(one, two), count)
    _remove(moves, min(one, two), count - 1)
    return count - 2


@inner
def _place(moves: MoveList, count: int, is_prefetch: bool, chosen: int, slot: int) -> int:
    """Insert a move at a random place among those of its slot, offload before prefetch."""
    prefetch, gap, before = moves
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
