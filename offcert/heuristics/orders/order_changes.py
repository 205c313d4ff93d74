"""The compiled annealing of ``order_search``: moves between sets and orders."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcert.core.compiled import BoolArray, IntArray, compiled, inlined
from offcert.heuristics.orders.ordered_kernel import SIZE, evaluate_ordered

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
def _assign(state: OrderState, other: OrderState) -> None:
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
def _move(classes: Classes, state: OrderState, tolerance: float) -> bool:
    """Change the state at random; return whether it may be worth a value."""
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
    run: tuple[int, int],
    temperatures: tuple[float, float, float],
) -> tuple[int, int]:
    """Anneal `state` in place and keep the best in `best`; return both makespans.

    A run is a number of steps and a seed; temperatures are the first and the last, in ticks, and
    the bytes that a tick moves.
    """
    steps, seed = run
    hot, cold, rate = temperatures
    np.random.seed(seed)
    new = OrderState(state.offloads.copy(), state.prefetches.copy(), state.chosen.copy())
    leaving, returning = np.empty_like(new.offloads), np.empty_like(new.prefetches)
    close = gaps[:, SIZE].max() / _CLOSE
    temperature = hot
    cooling = (cold / hot) ** (1.0 / steps)
    for _ in range(steps):
        temperature *= cooling
        _assign(new, state)
        # Where a worse makespan is likely to be kept, sums may differ by as much.
        if not _move(classes, new, max(close, 2.0 * temperature * rate)):
            continue
        count = _select(new.offloads, new.chosen, classes.followed, leaving)
        _select(new.prefetches, new.chosen, classes.followed, returning)
        found = evaluate_ordered(keys, gaps, settings, leaving[:count], returning[:count], scratch)
        if found < 0:
            continue
        if found > value and np.random.random() >= np.exp((value - found) / temperature):
            continue
        _assign(state, new)
        value = found
        if value < best_value:
            best_value = value
            _assign(best, state)
    return value, best_value
