"""Simulated annealing over claim sequences: which gaps are evicted, and the order of everything.

A solution is a list of moves (see `Plan`), each with the operation before which it stands, ordered
by that operation. Every plan can be written so, interleaved ones included. A step takes one move to
another place, exchanges two neighbours, or evicts or keeps one gap; the simulator values it.
"""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import IntArray, compiled
from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.heuristics.orders.annealing_changes import Facts, MoveList, copy_moves, neighbour
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.simulate import Simulator, moves_to_arrays, run_claims


def no_limits(trace: Trace) -> IntArray:
    """Return limits of slots, as `Facts` has them, that allow everything."""
    limits = np.zeros((4, len(trace.gaps)), dtype=np.int64)
    limits[1::2] = len(trace)
    return limits


class Annealer:
    """Improves an executable plan in batches; the caller can look at the clock in between."""

    def __init__(self, simulator: Simulator, plan: Plan, seed: int) -> None:
        self.simulator = simulator
        self._random = np.random.default_rng(seed)
        trace = simulator.trace
        room = 2 * len(trace.gaps) + 2
        self._moves = MoveList(
            np.zeros(room, np.bool_), np.zeros(room, np.int64), np.zeros(room, np.int64)
        )
        self.limits = no_limits(trace)
        opened, tensor, writer = simulator.tables[3:6]
        closed = np.array([gap.after for gap in trace.gaps], np.int64)
        self._facts = Facts(tensor, writer, opened, closed, self.limits)
        self.restart(plan)
        self.best = plan
        self.makespan = self._value

    def restart(self, plan: Plan) -> None:
        """Continue from a plan, or raise a `PlanError` and stay if it is not executable."""
        moves = moves_to_arrays(_in_claim_order(plan))
        value = self.simulator.evaluate(*moves)
        if value < 0:
            raise PlanError("annealing needs an executable plan to start from")
        self._count, self._value = len(plan.moves), value
        for array, given in zip(self._moves, moves, strict=True):
            array[: self._count] = given

    @property
    def current(self) -> int:
        """Makespan of the plan from which the next run continues."""
        return self._value

    @property
    def plan(self) -> Plan:
        """The plan from which the next run continues."""
        return _plan(self._moves, self._count)

    def run(self, steps: int, hot: float, cold: float) -> bool:
        """Make `steps` steps, cooling from `hot` to `cold` ticks; return whether that helped."""
        simulator = self.simulator
        best = self._moves.copy()
        self._count, self._value, best_count, best_value = _anneal(
            simulator.tables,
            simulator.problem.platform.duplex,
            self._moves,
            self._count,
            self._value,
            self.makespan,
            best,
            self._facts,
            simulator.scratch,
            steps,
            hot,
            cold,
            int(self._random.integers(2**31)),
        )
        if best_value >= self.makespan:
            return False
        self.makespan = int(best_value)
        self.best = _plan(best, int(best_count))
        return True


def _plan(moves: MoveList, count: int) -> Plan:
    rows = zip(*(array[:count].tolist() for array in moves), strict=True)
    return Plan(
        Move(Kind.PREFETCH if prefetch else Kind.OFFLOAD, gap, before)
        for prefetch, gap, before in rows
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
    moves: MoveList,
    count: int,
    value: int,
    best_value: int,
    best: MoveList,
    facts: Facts,
    scratch: tuple[IntArray, ...],
    steps: int,
    hot: float,
    cold: float,
    seed: int,
) -> tuple[int, int, int, int]:
    """Anneal in place; return the number of moves and value, current and best."""
    np.random.seed(seed)
    new = MoveList(moves.prefetch.copy(), moves.gap.copy(), moves.before.copy())
    move_start = np.empty(len(moves.gap), dtype=np.int64)
    best_count = count
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        temperature *= cooling
        copy_moves(new, moves, count)
        new_count = neighbour(new, count, facts)
        if new_count < 0:
            continue
        new_value = run_claims(
            tables,
            duplex,
            new.prefetch[:new_count],
            new.gap[:new_count],
            new.before[:new_count],
            move_start,
            *scratch,
        )
        if new_value < 0:
            continue
        if new_value > value and np.random.random() >= np.exp((value - new_value) / temperature):
            continue
        copy_moves(moves, new, new_count)
        count, value = new_count, new_value
        if value < best_value:
            best_value, best_count = value, count
            copy_moves(best, moves, count)
    return count, value, best_count, best_value
