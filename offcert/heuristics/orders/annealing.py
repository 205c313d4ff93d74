"""Simulated annealing over claim sequences: which gaps are evicted, and the order of everything.

A solution is a list of moves (see `Plan`), each with the operation before which it stands, ordered
by that operation. Every plan can be written so, interleaved ones included. A step takes one move to
another place, exchanges two neighbours, or evicts or keeps one gap; the simulator values it.
"""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import BoolArray, IntArray, compiled
from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.heuristics.orders.annealing_changes import copy_moves, neighbour
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.simulate import Simulator, moves_to_arrays, run_claims


class Annealer:
    """Improves an executable plan in batches; the caller can look at the clock in between."""

    def __init__(self, simulator: Simulator, plan: Plan, seed: int) -> None:
        self.simulator = simulator
        self._random = np.random.default_rng(seed)
        gaps = len(simulator.gap_tensor)
        self._prefetch = np.zeros(2 * gaps + 2, dtype=np.bool_)
        self._gap = np.zeros(2 * gaps + 2, dtype=np.int64)
        self._before = np.zeros(2 * gaps + 2, dtype=np.int64)
        self.limits = np.zeros((4, gaps), dtype=np.int64)
        self.limits[1::2] = len(simulator.trace)
        self.restart(plan)
        self.best = plan
        self.makespan = self._value

    def restart(self, plan: Plan) -> None:
        """Continue from a plan, or raise a `PlanError` and stay if it is not executable."""
        moves = _in_claim_order(plan)
        prefetch, gap, before = moves_to_arrays(moves)
        value = self.simulator.evaluate(prefetch, gap, before)
        if value < 0:
            raise PlanError("annealing needs an executable plan to start from")
        self._count, self._value = len(moves), value
        self._prefetch[: self._count] = prefetch
        self._gap[: self._count] = gap
        self._before[: self._count] = before

    @property
    def current(self) -> int:
        """Makespan of the plan from which the next run continues."""
        return self._value

    @property
    def plan(self) -> Plan:
        """The plan from which the next run continues."""
        return _plan(self._prefetch, self._gap, self._before, self._count)

    def run(self, steps: int, hot: float, cold: float) -> bool:
        """Make `steps` steps, cooling from `hot` to `cold` ticks; return whether that helped."""
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
            self.limits,
            simulator.scratch,
            steps,
            hot,
            cold,
            int(self._random.integers(2**31)),
        )
        if best_value >= self.makespan:
            return False
        self.makespan = int(best_value)
        self.best = _plan(*best, int(best_count))
        return True


def _plan(prefetch: BoolArray, gap: IntArray, before: IntArray, count: int) -> Plan:
    return Plan(
        Move(
            Kind.PREFETCH if prefetch[index] else Kind.OFFLOAD, int(gap[index]), int(before[index])
        )
        for index in range(count)
    )


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


@compiled
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
    limits: IntArray,
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
    facts = (tensor, writer, opened, closed)
    new_prefetch, new_gap, new_before = prefetch.copy(), gap.copy(), before.copy()
    move_start = np.empty(len(gap), dtype=np.int64)
    best_count = count
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        temperature *= cooling
        copy_moves((new_prefetch, new_gap, new_before), (prefetch, gap, before), count)
        new_count = neighbour(new_prefetch, new_gap, new_before, count, facts, limits)
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
        copy_moves((prefetch, gap, before), (new_prefetch, new_gap, new_before), new_count)
        count, value = new_count, new_value
        if value < best_value:
            best_value, best_count = value, count
            copy_moves(best, (prefetch, gap, before), count)
    return count, value, best_count, best_value
