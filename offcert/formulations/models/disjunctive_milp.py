"""Atomic transfers, exact and without a grid: start times, order binaries and big-M rows.

The disjunctive model of scheduling: continuous starts, a binary for every pair of transfers that
share the link, and binaries for the order of whatever takes memory. Solved by any solver that PuLP
knows, or by the HiGHS in SciPy. Its relaxation is weak, so it is a cross-check for small problems.

Memory
------
Only two kinds of event take memory, the starts of operations and of prefetches, so it is enough
that the memory suffices right after each of them ("claims").

- *Operation o.* ``n[g, o]`` says that gap g's prefetch starts no earlier than o does; ``u[g, o]``
  that in addition its tensor has left by then. The sizes with ``u = 1`` reach what o requires.
- *Prefetch of g.* ``f[g, o]`` says that it starts no earlier than o ends, so ``n - f`` marks the
  operation that it starts in and ``f[g, o] - n[g, o + 1]`` the idle time that it starts in: at most
  one of them is 1, and none is negative, as ``n[g, o'] ≤ f[g, o]`` is asked for all o' after o.
  ``w[h, g]`` says that another gap h is evicted, released by then, and fetched later. The sizes
  with ``w = 1`` reach what that operation or idle time requires. Gaps that lie elsewhere do not
  disturb: one with ``w = 1`` has been opened and cannot have been closed.

If a prefetch starts with an operation, ``n`` may be 0 or 1. At 0 the operation counts it as
present. At 1 it claims its memory second, in the operation that has just begun; if that one lasts
no time, after it (then ``f = n``): just as the definition of the problem says. So starts may tie in
the model if they may in a schedule, and continuous times lose nothing.

Big M
-----
A row ``first ≤ second + M · (unless)`` has M = (latest first) - (earliest second) over the bounds
of its variables, whatever else holds. That is the least valid value row by row; without windows it
is the upper bound plus the transfer's length. Smaller ones once cut off feasible schedules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from offcert.core.platform import Kind
from offcert.formulations.common.linear_model import (
    ONE,
    ROUNDING,
    LinearModel,
    Terms,
    scaled,
    value_of,
)
from offcert.formulations.common.linear_solvers import DEFAULT, require_solver, run_model
from offcert.formulations.common.outcome import ModelOutcome, ModelRun, first_evicted
from offcert.formulations.common.time_grid import StartWindow, TimeGrid, build_grid
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Part of the horizon that is taken off a bound. A binary may be off by 1e-6, which lowers a row
# with a big M by that part; ten times as much comes off, as pruning adds less than that. Derived.
RELATIVE_MARGIN = 1e-5
# Units of the horizon in the model, as solvers' tolerances are absolute. Arbitrary.
_UNITS = 1000.0


def solve(
    problem: Problem,
    *,
    solver: str = DEFAULT,
    time_limit: float = 60.0,
    threads: int = 1,
    upper_bound: int | None = None,
    hint: Schedule | None = None,
    lower_bound: int = 0,
) -> ModelOutcome:
    """Solve a small problem with atomic transfers.

    Parameters
    ----------
    problem : Problem
        A problem with any trace and link; up to about ten gaps.
    solver : str
        A name that PuLP knows, or ``"scipy"``.
    time_limit : float
        Seconds, building the program included.
    threads : int
        Threads of the solver.
    upper_bound : int, optional
        Ticks; longer schedules are of no interest. It tightens every big M.
    hint : Schedule, optional
        A valid schedule; it is returned if nothing better is found.
    lower_bound : int
        Ticks; a bound already proved elsewhere.

    Returns
    -------
    ModelOutcome
        Also when the time runs out, the solver fails or the user interrupts. The model's bound is
        the solver's, less `RELATIVE_MARGIN` times the upper bound, rounded up.

    Raises
    ------
    InputError
        If the solver is unknown or not available.
    """
    require_solver(solver)
    run = ModelRun(problem, upper_bound, hint, lower_bound, solver=solver, time_limit=time_limit)
    if run.feasible:
        with run.kept():
            _search(run, solver, time_limit, threads)
    return run.outcome()


def _search(run: ModelRun, solver: str, time_limit: float, threads: int) -> None:
    """Build the program, run the solver and take over its answer."""
    problem = run.problem
    data = build_grid(problem, 1, run.upper)
    if data is None:
        run.nothing_within()
        return
    model = DisjunctiveModel(data, problem.platform.duplex, run.upper)
    answer = run_model(run, model.model, solver, time_limit, threads)
    margin = RELATIVE_MARGIN * run.upper
    run.statistics["margin"] = margin
    run.take_bound(answer.bound * model.unit + problem.trace.durations[-1], margin)
    if answer.values is not None:
        run.take_plans([model.plan(problem, answer.values)], exact=True)


@dataclass(frozen=True, slots=True)
class _Time:
    """An instant: an expression and the values it can take, in scaled units."""

    terms: Terms
    low: float
    high: float

    def later(self, by: float) -> _Time:
        return _Time([*self.terms, (ONE, by)], self.low + by, self.high + by)


def _not(*literals: Terms) -> Terms:
    """Return an expression that is 0 if all literals are 1, and at least 1 otherwise."""
    return [term for literal in literals for term in ((ONE, 1.0), *scaled(literal, -1.0))]


class DisjunctiveModel:
    """Columns and rows for one problem.

    Parameters
    ----------
    data : TimeGrid
        The problem on a grid of one tick, for its windows and amounts.
    duplex : bool
        Whether the directions of the link are independent.
    upper : int
        Ticks; what times are scaled by.

    Attributes
    ----------
    unit : float
        Ticks in a unit of time of the model. The objective is the start of the last operation.
    """

    def __init__(self, data: TimeGrid, duplex: bool, upper: int) -> None:
        self.data = data
        self.model = LinearModel()
        self.unit = max(1.0, upper / _UNITS)
        last = len(data.operations) - 1
        self.operations = [
            self._start(item, cost=1.0 if o == last else 0.0)
            for o, item in enumerate(data.operations)
        ]
        self.offloads = {t: self._start(item) for t, item in data.offloads.items()}
        self.prefetches = [self._start(gap.prefetch) for gap in data.gaps]
        self.evicted = [self.model.binary() for _ in data.gaps]
        self.moved = {
            gap.tensor: self.evicted[index] if gap.single else []
            for index, gap in enumerate(data.gaps)
        }
        for tensor, literal in self.moved.items():
            self.moved[tensor] = literal or self.model.binary()
        self._orders: dict[tuple[int, int], Terms] = {}
        self._not_before: dict[tuple[int, int], Terms] = {}
        self._add_transfers()
        self._add_link(duplex)
        for o, amount in enumerate(data.required):
            if amount > 0:
                self._add_operation_claim(o, amount)
        for index in range(len(data.gaps)):
            self._add_prefetch_claim(index)

    def _start(self, item: StartWindow, cost: float = 0.0) -> _Time:
        low, high = item.first / self.unit, item.last / self.unit
        return _Time([(self.model.column(low, high, cost=cost), 1.0)], low, high)

    def _length(self, item: StartWindow) -> float:
        return item.length / self.unit

    def _end(self, o: int) -> _Time:
        if o < 0:
            return _Time([], 0.0, 0.0)
        return self.operations[o].later(self._length(self.data.operations[o]))

    def _left(self, tensor: int) -> _Time:
        return self.offloads[tensor].later(self._length(self.data.offloads[tensor]))

    def _precede(self, first: _Time, second: _Time, unless: Terms) -> None:
        """Add ``first ≤ second`` unless the expression `unless` is at least 1."""
        big = first.high - second.low
        if big > 0.0:
            self.model.row([*second.terms, *scaled(first.terms, -1.0), *scaled(unless, big)], 0.0)

    def _add_transfers(self) -> None:
        """Operations in order; a prefetch between its gap's release and the next use."""
        for o in range(1, len(self.operations)):
            self._precede(self._end(o - 1), self.operations[o], [])
        for index, gap in enumerate(self.data.gaps):
            out, returns = self.evicted[index], self.prefetches[index]
            self.model.at_most(out, self.moved[gap.tensor])
            leaves = self.offloads[gap.tensor]
            self._precede(self._end(gap.writer), leaves, _not(self.moved[gap.tensor]))
            self._precede(self._left(gap.tensor), returns, _not(out))
            self._precede(self._end(gap.before), returns, _not(out))
            back = returns.later(self._length(gap.prefetch))
            self._precede(back, self.operations[gap.after], _not(out))

    def _add_link(self, duplex: bool) -> None:
        """Of two transfers on a link one ends before the other starts."""
        gaps = self.data.gaps
        tensors = list(self.offloads)
        for a, first in enumerate(tensors):
            for second in tensors[a + 1 :]:
                self._add_pair(
                    self.offloads[first], self.data.offloads[first], self.moved[first],
                    self.offloads[second], self.data.offloads[second], self.moved[second],
                )  # fmt: skip
        for a, one in enumerate(gaps):
            for b in range(a + 1, len(gaps)):
                if gaps[b].tensor != one.tensor:
                    self._orders[a, b] = self._add_pair(
                        self.prefetches[a], one.prefetch, self.evicted[a],
                        self.prefetches[b], gaps[b].prefetch, self.evicted[b],
                    )  # fmt: skip
            for tensor in tensors:
                if not duplex and tensor != one.tensor:
                    self._add_pair(
                        self.prefetches[a], one.prefetch, self.evicted[a],
                        self.offloads[tensor], self.data.offloads[tensor], self.moved[tensor],
                    )  # fmt: skip

    def _add_pair(
        self,
        first: _Time,
        item: StartWindow,
        on: Terms,
        second: _Time,
        other: StartWindow,
        also: Terms,
    ) -> Terms:
        """Return a binary: the first of two transfers comes first, if both happen."""
        literal = self.model.binary()
        self._precede(first.later(self._length(item)), second, _not(literal, on, also))
        self._precede(second.later(self._length(other)), first, [*literal, *_not(on, also)])
        return literal

    def _fetched_before(self, one: int, other: int) -> Terms:
        """Return whether one gap's prefetch comes before another's, if both happen."""
        if one < other:
            return self._orders[one, other]
        return _not(self._orders[other, one])

    # Memory

    def _starts_no_earlier(self, index: int, o: int) -> Terms:
        """Return ``n[g, o]`` for an operation in the gap; also decides it where it matters."""
        key = (index, o)
        if key not in self._not_before:
            literal = self.model.binary()
            start, returns = self.operations[o], self.prefetches[index]
            self.model.at_most(literal, self.evicted[index])
            self._precede(start, returns, _not(literal))
            self._precede(returns, start, [*literal, *_not(self.evicted[index])])
            self._not_before[key] = literal
        return self._not_before[key]

    def _starts_after(self, index: int, o: int) -> Terms:
        """Return ``f[g, o]`` for an operation in the gap."""
        started = self._starts_no_earlier(index, o)
        if self.data.operations[o].length == 0:
            return started
        literal = self.model.binary()
        self.model.at_most(literal, started)
        self._precede(self._end(o), self.prefetches[index], _not(literal))
        return literal

    def _add_operation_claim(self, o: int, amount: int) -> None:
        """When an operation starts, enough has left and is fetched no earlier."""
        terms: Terms = []
        for index in self.data.over[o]:
            gap = self.data.gaps[index]
            absent = self.model.binary()
            self.model.at_most(absent, self._starts_no_earlier(index, o))
            self._precede(self._left(gap.tensor), self.operations[o], _not(absent))
            terms += scaled(absent, gap.size / amount)
        self.model.row(terms, 1.0 - ROUNDING)

    def _add_prefetch_claim(self, index: int) -> None:
        """When a prefetch starts, enough else is absent for the operation or idle time it is in."""
        data, gap = self.data, self.data.gaps[index]
        inside = [o for o in range(gap.before + 1, gap.after) if data.required[o] > 0]
        before = {o: self._starts_no_earlier(index, o) for o in inside}
        after = {o: self._starts_after(index, o) for o in inside}
        for o, following in pairwise(inside):
            # Without this, ties would let the positions below cancel each other.
            self.model.at_most(before[following], after[o])
        before[gap.after], after[gap.before] = [], self.evicted[index]
        largest = max(*data.required, *data.idle_required)
        terms: Terms = []
        for o in inside:
            position = [*before[o], *scaled(after[o], -1.0)]
            terms += scaled(position, -data.required[o] / largest)
        for o in range(gap.before + 1, gap.after + 1):
            # Idle time binds only between operations that bind, or at the ends of the gap.
            if data.idle_required[o] > 0:
                position = [*after[o - 1], *scaled(before[o], -1.0)]
                terms += scaled(position, -data.idle_required[o] / largest)
        if terms:
            for other in self._others(index):
                share = data.gaps[other].size / largest
                terms += scaled(self._absent_at_claim(other, index), share)
            self.model.row(terms, -ROUNDING)

    def _others(self, index: int) -> Iterable[int]:
        """Yield the gaps of other tensors whose absence can coincide with a gap's."""
        gap = self.data.gaps[index]
        for other, candidate in enumerate(self.data.gaps):
            meets = candidate.before < gap.after and gap.before < candidate.after
            if candidate.tensor != gap.tensor and meets:
                yield other

    def _absent_at_claim(self, other: int, index: int) -> Terms:
        """Return ``w[h, g]``."""
        gap, claim = self.data.gaps[other], self.prefetches[index]
        absent = self.model.binary()
        self.model.at_most(absent, self.evicted[other])
        self.model.row([*self._fetched_before(index, other), *scaled(absent, -1.0)], 0.0)
        self._precede(self._left(gap.tensor), claim, _not(absent))
        self._precede(self._end(gap.before), claim, _not(absent))
        return absent

    # Solutions

    def plan(self, problem: Problem, values: list[float]) -> Plan:
        """Return the plan that a solution amounts to.

        Transfers are ordered by the middle of their times, as the link keeps them apart; which
        operations a prefetch comes before, binaries say where it matters.
        """

        def ticks(time: _Time) -> float:
            return value_of(time.terms, values) * self.unit

        gaps, trace = self.data.gaps, problem.trace
        evicted = {
            gap.number: index
            for index, gap in enumerate(gaps)
            if value_of(self.evicted[index], values) > 0.5
        }
        queue = [
            (ticks(self.prefetches[index]) + gaps[index].prefetch.length / 2, Kind.PREFETCH, number)
            for number, index in evicted.items()
        ]
        for tensor, number in first_evicted(trace, evicted).items():
            middle = ticks(self.offloads[tensor]) + self.data.offloads[tensor].length / 2
            queue.append((middle, Kind.OFFLOAD, number))
        starts = [ticks(start) for start in self.operations]
        moves, reached = [], 0
        for middle, kind, number in sorted(queue, key=lambda item: item[0]):
            before = trace.gaps[number].after
            if kind is Kind.OFFLOAD:
                before -= 1
            else:
                index = evicted[number]
                begin = middle - gaps[index].prefetch.length / 2
                reached = max(reached, self._position(index, begin, starts, values))
                before = min(before, reached)
            moves.append(Move(kind, number, before))
        return Plan(moves)

    def _position(self, index: int, begin: float, starts: list[float], values: list[float]) -> int:
        """Return the first operation that starts after a prefetch has taken its memory."""
        gap = self.data.gaps[index]
        known = {
            o: value_of(self._not_before[index, o], values) > 0.5
            for o in range(gap.before + 1, gap.after)
            if (index, o) in self._not_before
        }
        # Starts can tie, and floats with them: what a binary says comes first.
        low = max((o + 1 for o, later in known.items() if later), default=gap.before + 1)
        for o in range(low, gap.after):
            if o in known or starts[o] >= begin:
                return o
        return gap.after
