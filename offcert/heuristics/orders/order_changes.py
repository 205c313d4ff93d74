"""The compiled annealing of ``order_search``: moves between sets and orders, and exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import BoolArray, IntArray, compiled, inlined
from offcert.heuristics.orders.ordered_kernel import SIZE, evaluate_ordered

# Tensors on one side of an exchange and on the other. Arbitrary.
FEW, MANY = 2, 3
# Combinations of tensors that are formed, and exchanges that are kept, at most. Arbitrary.
_MOST_COMBINATIONS = 20_000
_MOST_EXCHANGES = 100_000
# Sums that differ by more than the largest size over this are not exchanged. Arbitrary.
_COARSEST = 8
# Tensors smaller than the largest size over this are left out: they hardly change a sum. Arbitrary.
_FINEST = 2_000


@dataclass(frozen=True)
class Exchanges:
    """Exchanges of tensors between up to ``FEW + MANY`` classes, those of least change first.

    A row has the classes whose counts change, -1 in unused places, and by how much; with all signs
    reversed it is an exchange too.
    """

    classes: IntArray
    changes: IntArray
    differences: IntArray  # Bytes by which each changes the sum, unsigned; increasing.


def exchanges(sizes: Sequence[int], amounts: Sequence[int]) -> Exchanges:
    """Return exchanges between classes of equal tensors."""
    usable = [c for c, size in enumerate(sizes) if size * _FINEST > max(sizes)]
    few = _combinations(usable, sizes, amounts, FEW)
    many = _combinations(usable, sizes, amounts, MANY)
    sums = np.array([total for total, _ in many], dtype=np.int64)
    own = np.array([total for total, _ in few], dtype=np.int64)
    tolerance = max(sizes, default=0) // _COARSEST
    while tolerance > 0 and _pairs(own, sums, tolerance) > _MOST_EXCHANGES:
        tolerance //= 2
    found = []
    for total, taken in few:
        low, high = np.searchsorted(sums, [total - tolerance, total + tolerance + 1])
        for other, given in many[low:high][:_MOST_EXCHANGES]:
            if not set(taken) & set(given) and (taken or given):
                found.append((abs(total - other), taken, given))
    found.sort()
    return _table(found[:_MOST_EXCHANGES])


def _combinations(
    usable: Sequence[int], sizes: Sequence[int], amounts: Sequence[int], most: int
) -> list[tuple[int, tuple[int, ...]]]:
    """Return the combinations of up to `most` tensors, as sorted pairs of a sum and classes.

    Where there are too many, only those of fewer tensors.
    """
    found: list[tuple[int, tuple[int, ...]]] = []
    numbers = _numbers([amounts[c] for c in usable], most)
    for count in range(most + 1):
        if count > 1 and len(found) + numbers[count] > _MOST_COMBINATIONS:
            break
        found += (
            (sum(sizes[c] for c in chosen), chosen)
            for chosen in combinations_with_replacement(usable, count)
            if all(chosen.count(c) <= amounts[c] for c in chosen)
        )
    return sorted(found)


def _numbers(amounts: Sequence[int], most: int) -> list[int]:
    """Return how many combinations of 0, 1, …, `most` tensors the amounts of each class allow."""
    numbers = [1] + [0] * most
    for amount in amounts:
        numbers = [sum(numbers[max(0, k - amount) : k + 1]) for k in range(most + 1)]
    return numbers


def _pairs(own: IntArray, sums: IntArray, tolerance: int) -> int:
    low = np.searchsorted(sums, own - tolerance)
    high = np.searchsorted(sums, own + tolerance + 1)
    return int((high - low).sum())


def _table(found: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> Exchanges:
    classes = np.full((len(found), FEW + MANY), -1, dtype=np.int64)
    changes = np.zeros((len(found), FEW + MANY), dtype=np.int64)
    for row, (_, taken, given) in enumerate(found):
        for side, sign in ((taken, -1), (given, 1)):
            for c in dict.fromkeys(side):
                place = int((classes[row] >= 0).sum())
                classes[row, place] = c
                changes[row, place] = sign * side.count(c)
    differences = np.array([difference for difference, _, _ in found], dtype=np.int64)
    return Exchanges(classes, changes, differences)


# Shares of the steps that try each kind of move; the others change an order. Arbitrary.
_COUNTS, _EXCHANGE, _SWAP = 0.15, 0.3, 0.1
# Share of the steps that change whether a tensor leaves again, where some may. Arbitrary.
_AGAIN = 0.1
# Exchanges whose sums differ by less than the largest size over this are always tried. Arbitrary.
_CLOSE = 400


class Classes(NamedTuple):
    """Gaps by class of equal sizes, outermost first, and exchanges between the classes.

    ``members[first[c]:first[c + 1]]`` are those of class ``c``. ``again`` are the gaps in which a
    tensor that has left may leave again. ``followed`` names, for each gap, the gap whose eviction
    it needs: an earlier one of its tensor for those, itself for all others. The rest is
    `Exchanges`.
    """

    members: IntArray
    first: IntArray
    classes: IntArray
    changes: IntArray
    differences: IntArray
    again: IntArray
    followed: IntArray


class OrderState(NamedTuple):
    """All gaps in the orders in which they would leave and come back, and which of them do."""

    offloads: IntArray
    prefetches: IntArray
    chosen: BoolArray

    def copy(self) -> OrderState:
        """Return a copy."""
        return OrderState(self.offloads.copy(), self.prefetches.copy(), self.chosen.copy())


@inlined
def _assign(state: OrderState, other: OrderState, sets_only: bool) -> None:
    if not sets_only:
        for place in range(other.offloads.size):
            state.offloads[place] = other.offloads[place]
            state.prefetches[place] = other.prefetches[place]
    for gap in range(other.chosen.size):
        state.chosen[gap] = other.chosen[gap]


@inlined
def _select(order: IntArray, chosen: BoolArray, followed: IntArray, selected: IntArray) -> int:
    count = 0
    for gap in order:
        if chosen[gap] and chosen[followed[gap]]:
            selected[count] = gap
            count += 1
    return count


@inlined
def _change_count(classes: Classes, chosen: BoolArray, c: int, change: int) -> bool:
    """Evict more of a class, the outermost first, or fewer; return whether that is possible."""
    low, high = classes.first[c], classes.first[c + 1]
    for _ in range(abs(change)):
        place = low if change > 0 else high - 1
        while low <= place < high and chosen[classes.members[place]] == (change > 0):
            place += 1 if change > 0 else -1
        if not low <= place < high:
            return False
        chosen[classes.members[place]] = change > 0
    return True


@inlined
def _change_counts(classes: Classes, chosen: BoolArray) -> bool:
    """Change up to four counts by one or two."""
    for _ in range(np.random.randint(1, 5)):
        c = np.random.randint(classes.first.size - 1)
        most = 2 if classes.first[c + 1] - classes.first[c] > 2 else 1
        change = np.random.randint(1, most + 1)
        _change_count(classes, chosen, c, change if np.random.random() < 0.5 else -change)
    return True


@inlined
def _exchange(classes: Classes, chosen: BoolArray, tolerance: float) -> bool:
    """Make one of the exchanges whose sums differ by at most `tolerance`."""
    rows = np.searchsorted(classes.differences, tolerance)
    if rows == 0:
        return False
    row = np.random.randint(rows)
    sign = 1 if np.random.random() < 0.5 else -1
    for place in range(classes.classes.shape[1]):
        c = classes.classes[row, place]
        if c < 0:
            break
        if not _change_count(classes, chosen, c, sign * classes.changes[row, place]):
            return False
    return True


@inlined
def _reorder(order: IntArray, chosen: BoolArray) -> bool:
    """Take a gap that is evicted to another place, or exchange it with another gap."""
    count = order.size
    place = np.random.randint(count)
    for _ in range(8):
        if chosen[order[place]]:
            break
        place = np.random.randint(count)
    to = np.random.randint(count)
    if np.random.random() < 0.6:
        to = place + np.random.randint(-6, 7)
    if not 0 <= to < count or to == place:
        return False
    gap = order[place]
    if np.random.random() < 0.25:
        order[place], order[to] = order[to], gap
        return True
    step = 1 if to > place else -1
    while place != to:
        order[place] = order[place + step]
        place += step
    order[to] = gap
    return True


@inlined
def _move(classes: Classes, state: OrderState, tolerance: float, sets_only: bool) -> bool:
    """Change the state at random; return whether it may be worth a value."""
    if sets_only:
        return _change_counts(classes, state.chosen)
    if classes.again.size and np.random.random() < _AGAIN:
        gap = np.random.choice(classes.again)
        state.chosen[gap] = not state.chosen[gap]
        return True
    kind = np.random.random()
    if kind < _COUNTS:
        return _change_counts(classes, state.chosen)
    kind -= _COUNTS
    if kind < _EXCHANGE:
        return _exchange(classes, state.chosen, tolerance)
    kind -= _EXCHANGE
    if kind < _SWAP:
        one, two = np.random.choice(classes.members), np.random.choice(classes.members)
        if state.chosen[one] == state.chosen[two]:
            return False
        state.chosen[one], state.chosen[two] = state.chosen[two], state.chosen[one]
        return True
    order = state.offloads if np.random.random() < 0.4 else state.prefetches
    return _reorder(order, state.chosen)


@compiled
def anneal(
    keys: IntArray,
    gaps: IntArray,
    settings: IntArray,
    classes: Classes,
    state: OrderState,
    value: int,
    best: OrderState,
    best_value: int,
    scratch: IntArray,
    run: tuple[int, int, bool],
    temperatures: tuple[float, float, float],
) -> tuple[int, int]:
    """Anneal `state` in place and keep the best in `best`; return both makespans.

    A run is a number of steps, a seed, and whether only the numbers of tensors of each size change;
    temperatures are the first and the last, in ticks, and the bytes that a tick moves.
    """
    steps, seed, sets_only = run
    hot, cold, rate = temperatures
    np.random.seed(seed)
    new = OrderState(state.offloads.copy(), state.prefetches.copy(), state.chosen.copy())
    leaving, returning = np.empty_like(new.offloads), np.empty_like(new.prefetches)
    close = gaps[:, SIZE].max() / _CLOSE
    temperature = hot
    cooling = (cold / hot) ** (1.0 / steps)
    for _ in range(steps):
        temperature *= cooling
        _assign(new, state, sets_only)
        # Where a worse makespan is likely to be kept, sums may differ by as much.
        if not _move(classes, new, max(close, 2.0 * temperature * rate), sets_only):
            continue
        count = _select(new.offloads, new.chosen, classes.followed, leaving)
        _select(new.prefetches, new.chosen, classes.followed, returning)
        found = evaluate_ordered(keys, gaps, settings, leaving[:count], returning[:count], scratch)
        if found < 0:
            continue
        if found > value and np.random.random() >= np.exp((value - found) / temperature):
            continue
        _assign(state, new, sets_only)
        value = found
        if value < best_value:
            best_value = value
            _assign(best, state, sets_only)
    return value, best_value
