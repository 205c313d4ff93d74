"""Simulated annealing over claim sequences: which gaps are evicted, and the order of everything.

A solution is a list of moves (see `Plan`), each with the operation before which it stands, ordered
by that operation. Every plan can be written so, interleaved ones included. A step takes one move to
another place, exchanges two neighbours, or evicts or keeps one gap; the simulator values it.
"""

from __future__ import annotations

import numba
import numpy as np

from offcert.core.plan import Kind, Move, Plan
from offcert.core.simulate import BoolArray, IntArray, Simulator, moves_to_arrays, run_claims


class Annealer:
    """Improves a plan in batches, so that the caller can look at the clock in between.

    Parameters
    ----------
    simulator : Simulator
        Of the problem.
    plan : Plan
        Where to start; it must be executable.
    seed : int
        Of the random numbers.
    """

    def __init__(self, simulator: Simulator, plan: Plan, seed: int) -> None:
        self.simulator = simulator
        self._random = np.random.default_rng(seed)
        gaps = len(simulator.gap_tensor)
        self._prefetch = np.zeros(2 * gaps + 2, dtype=np.bool_)
        self._gap = np.zeros(2 * gaps + 2, dtype=np.int64)
        self._before = np.zeros(2 * gaps + 2, dtype=np.int64)
        self.restart(plan)
        self.best = plan
        self.makespan = self._value

    def restart(self, plan: Plan) -> None:
        """Continue from `plan`."""
        moves = _in_claim_order(plan)
        prefetch, gap, before = moves_to_arrays(moves)
        self._count = len(moves)
        self._prefetch[: self._count] = prefetch
        self._gap[: self._count] = gap
        self._before[: self._count] = before
        self._value = self.simulator.evaluate(prefetch, gap, before)

    def run(self, steps: int, hot: float, cold: float) -> bool:
        """Make `steps` steps, cooling geometrically from `hot` to `cold` ticks.

        Returns
        -------
        bool
            Whether the best plan improved.
        """
        simulator = self.simulator
        best = (self._prefetch.copy(), self._gap.copy(), self._before.copy())
        self._count, self._value, best_count, best_value = _anneal(
            simulator.tables,
            simulator.problem.platform.duplex,
            self._prefetch,
            self._gap,
            self._before,
            self._count,
            self._value,
            self.makespan,
            best,
            simulator.scratch,
            steps,
            hot,
            cold,
            int(self._random.integers(2**31)),
        )
        if best_value >= self.makespan:
            return False
        self.makespan = int(best_value)
        self.best = Plan(
            Move(
                Kind.PREFETCH if best[0][index] else Kind.OFFLOAD,
                int(best[1][index]),
                int(best[2][index]),
            )
            for index in range(best_count)
        )
        return True


def _in_claim_order(plan: Plan) -> tuple[Move, ...]:
    """Give each move a place that is consistent with the order of the list.

    A prefetch's operation is binding; an offload stands before the next prefetch at the latest.
    """
    moves = list(plan.moves)
    latest = None
    for index in reversed(range(len(moves))):
        move = moves[index]
        if move.kind is Kind.PREFETCH:
            latest = move.before
        elif latest is not None and move.before > latest:
            moves[index] = Move(move.kind, move.gap, latest)
    earliest = 0
    for index, move in enumerate(moves):
        if move.before < earliest:
            moves[index] = Move(move.kind, move.gap, earliest)
        earliest = moves[index].before
    return tuple(moves)


@numba.njit(cache=True)
def _anneal(
    tables: tuple[IntArray, ...],
    duplex: bool,
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    value: int,
    best_value: int,
    best: tuple[BoolArray, IntArray, IntArray],
    scratch: tuple[IntArray, ...],
    steps: int,
    hot: float,
    cold: float,
    seed: int,
) -> tuple[int, int, int, int]:
    """Anneal in place; return the number of moves and value, current and best."""
    np.random.seed(seed)
    operations = len(tables[0])
    opened, tensor, writer = tables[3:6]
    close_first, close_member = tables[11:]
    closed = np.zeros(len(opened), dtype=np.int64)
    for operation in range(operations):
        for place in range(close_first[operation + 1], close_first[operation + 2]):
            closed[close_member[place]] = operation
    new_prefetch, new_gap, new_before = prefetch.copy(), gap.copy(), before.copy()
    move_start = np.empty(len(gap), dtype=np.int64)
    best_count = count
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        temperature *= cooling
        new_prefetch[:count] = prefetch[:count]
        new_gap[:count] = gap[:count]
        new_before[:count] = before[:count]
        new_count = _neighbour(
            new_prefetch, new_gap, new_before, count, tensor, writer, opened, closed
        )
        if new_count < 0:
            continue
        new_value = run_claims(
            tables,
            duplex,
            new_prefetch[:new_count],
            new_gap[:new_count],
            new_before[:new_count],
            move_start,
            scratch[0],
            scratch[1],
            scratch[2],
            scratch[3],
        )
        if new_value < 0:
            continue
        if new_value > value and np.random.random() >= np.exp((value - new_value) / temperature):
            continue
        prefetch[:new_count] = new_prefetch[:new_count]
        gap[:new_count] = new_gap[:new_count]
        before[:new_count] = new_before[:new_count]
        count, value = new_count, new_value
        if value < best_value:
            best_value, best_count = value, count
            best[0][:count] = prefetch[:count]
            best[1][:count] = gap[:count]
            best[2][:count] = before[:count]
    return count, value, best_count, best_value


@numba.njit(cache=True)
def _neighbour(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    tensor: IntArray,
    writer: IntArray,
    opened: IntArray,
    closed: IntArray,
) -> int:
    """Change the moves at random; return their new number, or -1 if nothing sensible came out."""
    kind = np.random.random()
    if kind < 0.2 or count == 0:
        chosen = np.random.randint(len(tensor))
        return _toggle(prefetch, gap, before, count, tensor, opened, closed, chosen)
    index = np.random.randint(count)
    if kind < 0.35:
        chosen = np.random.randint(len(tensor))
        count = _substitute(
            prefetch, gap, before, count, tensor, writer, opened, closed, index, chosen
        )
        if count < 0 or np.random.random() < 0.5:
            return count
        # One for two, or two for one: sums of sizes that no exchange of equals reaches.
        chosen = np.random.randint(len(tensor))
        return _toggle(prefetch, gap, before, count, tensor, opened, closed, chosen)
    if kind < 0.6:
        if index + 1 == count or gap[index] == gap[index + 1]:
            return -1
        # Neighbours change places; each keeps the slot of its new place.
        prefetch[index], prefetch[index + 1] = prefetch[index + 1], prefetch[index]
        gap[index], gap[index + 1] = gap[index + 1], gap[index]
        return count
    is_prefetch, chosen, slot = prefetch[index], gap[index], before[index]
    earliest = opened[chosen] if is_prefetch else writer[chosen]
    if kind < 0.95:
        reach = 3 if kind < 0.83 else 12
        slot += np.random.randint(-reach, reach + 1)
        slot = max(earliest + 1, min(closed[chosen], slot))
    else:
        # Anywhere: the link may be idle far away, around the turn for instance.
        slot = np.random.randint(earliest + 1, closed[chosen] + 1)
    _remove(prefetch, gap, before, index, count)
    return _place(prefetch, gap, before, count - 1, is_prefetch, chosen, slot)


@numba.njit(cache=True)
def _toggle(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    tensor: IntArray,
    opened: IntArray,
    closed: IntArray,
    chosen: int,
) -> int:
    """Evict a gap that is kept, or keep one that is evicted; return the number of moves.

    The offload always names the first evicted gap of its tensor, and goes with the last one.
    """
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
        _remove(prefetch, gap, before, fetch, count)
        _remove(prefetch, gap, before, offload, count - 1)
        return count - 2
    leave = min(closed[chosen], opened[chosen] + 1 + np.random.randint(3))
    if np.random.random() < 0.2:
        leave = np.random.randint(opened[chosen] + 1, closed[chosen] + 1)
    back = max(leave, closed[chosen] - np.random.randint(3))
    if offload >= 0:
        gap[offload] = min(chosen, first)
    else:
        count = _place(prefetch, gap, before, count, False, chosen, leave)
    return _place(prefetch, gap, before, count, True, chosen, back)


@numba.njit(cache=True)
def _substitute(
    prefetch: BoolArray,
    gap: IntArray,
    before: IntArray,
    count: int,
    tensor: IntArray,
    writer: IntArray,
    opened: IntArray,
    closed: IntArray,
    index: int,
    chosen: int,
) -> int:
    """Keep the tensor of move `index` and evict gap `chosen` at its places instead.

    Two toggles do the same, but through a plan that moves one tensor too few or too many.
    """
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
    _remove(prefetch, gap, before, fetch, count)
    _remove(prefetch, gap, before, offload, count - 1)
    count = _place(prefetch, gap, before, count - 2, False, chosen, leave)
    return _place(prefetch, gap, before, count, True, chosen, back)


@numba.njit(cache=True)
def _remove(prefetch: BoolArray, gap: IntArray, before: IntArray, index: int, count: int) -> None:
    for place in range(index, count - 1):
        prefetch[place] = prefetch[place + 1]
        gap[place] = gap[place + 1]
        before[place] = before[place + 1]


@numba.njit(cache=True)
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
