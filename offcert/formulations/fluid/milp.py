"""The fluid relaxation: transfers may pause, and bytes of one tensor stand in for another's.

Problem 2 of the offloading paper, aggregated over tensors (docs/theory/fluid.md): one binary a gap,
amounts a function of time alone. With cumulative amounts as variables it has O(operations + gaps)
rows and nonzeros. Solved as a mixed-integer program by the HiGHS inside SciPy. Without integrality
it is the fractional problem (§4 of the paper).

Why it bounds every schedule with atomic transfers
--------------------------------------------------
Take any such schedule, prefetches before later offloads included. Let ``e_g`` say whether gap g is
evicted and ``f_g`` whether it is and no earlier gap of its tensor is; only such gaps have an
offload. A transfer of c bytes lasts at least ``c/β`` ticks, where β is the rate of its direction;
spread its bytes evenly over it. Let ``X(t)`` and ``Y(t)`` be the bytes that all offloads and all
prefetches have moved by time t.

1. Link: between two times, the growths of X and of Y, each divided by the rate of its direction,
   together (simplex) or each (duplex) come to at most the time between.
2. Availability: an offload starts after its writer has ended, so until the end of operation o, X is
   at most the size of the offloaded tensors written before o.
3. Deadlines: when o starts, the evicted gaps that close at or before o are back, so Y is at least
   their size.
4. Memory: let t lie within operation o. A gap g that spans o and is absent at t opened before o,
   and its prefetch has moved nothing. If ``f_g``, its offload has ended and counts fully in X; if
   it is a later eviction, it counts in ``Z_o``, the size of all later evictions that opened before
   o. Every other gap that opened before o adds at least as much to ``X + Z_o`` as to Y, since a
   prefetch starts after the gap has opened and the offload has ended; and a tensor on its way out
   adds to X only. So the absent bytes, and hence the required ones, are at most ``X(t) + Z_o -
   Y(t)``. Counting what is evicted instead of what has been offloaded by t, they are at most ``P_o
   - Y(t)``, where ``P_o`` is the size of all evicted gaps that opened *before* o: what has been
   transferred is not released while the operation that opens its gap runs.

Transfers that pause, and tensors that move in part, release and take their memory byte by byte: the
argument holds for every byte by itself, and its sum over bytes is the same set of rows. Where they
move in part, ``e_g`` is the share of bytes that are evicted, so there are no binaries.

These rows, stated at the start and at the end of every operation, are all there is: the schedule's
idle times satisfy them, so their minimum is a bound. Nothing above needs one gap a tensor or nested
gaps; only there, however, does dropping integrality give the fractional optimum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import scipy

from offcert.core.platform import Kind
from offcert.formulations.combinatorial.relaxations import infeasibility, required_absent
from offcert.formulations.common.linear_model import LinearAnswer, LinearModel, scaled
from offcert.formulations.common.linear_solvers import SCIPY, solve_linear
from offcert.formulations.common.outcome import SolverOutcome
from offcert.questions.schedule.problem import Problem, Transfers

# HiGHS meets rows and integrality to 1e-6. No unit of time or data is worth more than two of idle
# time, so a bound this fraction of the total work lower is safe; the tests try to refute it.
# Derived.
RELATIVE_MARGIN = 1e-6

# Columns of one operation: idle time before it; X and Y at its start and end; sizes of what is
# available to leave, of what has opened, of what must be back, and of later evictions that opened.
# By definition.
_IDLE, _X_START, _X_END, _Y_START, _Y_END, _AVAILABLE, _OPENED, _DUE, _AGAIN = range(9)
_PER_OPERATION = 9


@dataclass(frozen=True)
class _Scaled:
    """The problem in units of the mean work of an operation.

    Sizes are half the time that it takes to move them out and back, so that an error in one is
    worth no more than two in idle time; `out` and `back` are the times to move a unit of them.
    """

    unit: float
    durations: list[float]
    required: list[float]
    sizes: list[float]
    out: float
    back: float


class AggregatedProgram:
    """Columns and rows for one problem; the objective is the idle time, in scaled units."""

    def __init__(self, problem: Problem, required: Sequence[int], relax: bool) -> None:
        self.trace = problem.trace
        self.duplex = problem.platform.duplex
        self.scaled = _scale(problem, required)
        self.count = len(self.trace)
        self.model = LinearModel()
        for _ in range(self.count):
            for kind in range(_PER_OPERATION):
                self.model.column(0.0, math.inf, cost=float(kind == _IDLE))
        gaps = self.trace.gaps
        # The column that says whether gap 0 is evicted; those of the other gaps follow.
        self.first_gap = len(self.model.low)
        for _ in gaps:
            self.model.column(0.0, 1.0, integer=not relax)
        # A gap that is not its tensor's first may be evicted "again", with no further offload.
        self.again: dict[int, int] = {}
        self.previous: dict[int, list[int]] = {}
        for index, gap in enumerate(gaps):
            self.previous[index] = [
                other for other in range(index) if gaps[other].tensor == gap.tensor
            ]
            if self.previous[index]:
                self.again[index] = self.model.column(0.0, 1.0, integer=not relax)
        for o in range(self.count):
            self._add_link(o)
            self._add_memory(o)
        self._add_sizes()
        self._add_evictions()

    def _column(self, o: int, kind: int) -> int:
        return _PER_OPERATION * o + kind

    def _add_link(self, o: int) -> None:
        """Amounts grow, at most as fast as the link allows."""
        duration = self.scaled.durations[o]
        idle = self._column(o, _IDLE)
        growth = []
        for start, end in ((_X_START, _X_END), (_Y_START, _Y_END)):
            at_start, at_end = self._column(o, start), self._column(o, end)
            before = [(at_start, 1.0)]
            if o > 0:
                before.append((self._column(o - 1, end), -1.0))
            growth.append((before, [(at_end, 1.0), (at_start, -1.0)]))
        (x_idle, x_during), (y_idle, y_during) = growth
        for terms in (x_idle, x_during, y_idle, y_during):
            self.model.row(terms, 0.0, math.inf)
        x_idle, x_during = (scaled(terms, self.scaled.out) for terms in (x_idle, x_during))
        y_idle, y_during = (scaled(terms, self.scaled.back) for terms in (y_idle, y_during))
        if self.duplex:
            for terms in (x_idle, y_idle):
                self.model.row([*terms, (idle, -1.0)], -math.inf, 0.0)
            for terms in (x_during, y_during):
                self.model.row(terms, -math.inf, duration)
        else:
            self.model.row([*x_idle, *y_idle, (idle, -1.0)], -math.inf, 0.0)
            self.model.row([*x_during, *y_during], -math.inf, duration)

    def _add_memory(self, o: int) -> None:
        """Availability, deadlines and what must be absent."""
        x_end, y_end = self._column(o, _X_END), self._column(o, _Y_END)
        available, opened = self._column(o, _AVAILABLE), self._column(o, _OPENED)
        again = self._column(o, _AGAIN)
        add = self.model.row
        add([(x_end, 1.0), (available, -1.0)], -math.inf, 0.0)
        add([(self._column(o, _Y_START), 1.0), (self._column(o, _DUE), -1.0)], 0.0, math.inf)
        required = self.scaled.required[o]
        add([(opened, 1.0), (y_end, -1.0)], required, math.inf)
        add([(x_end, 1.0), (again, 1.0), (y_end, -1.0)], required, math.inf)
        x_start, y_start = self._column(o, _X_START), self._column(o, _Y_START)
        add([(x_start, 1.0), (again, 1.0), (y_start, -1.0)], required, math.inf)

    def _add_sizes(self) -> None:
        """Define the sizes that depend on the choice of gaps, each from the one before."""
        writers = [self.trace.tensors[gap.tensor].uses[0] for gap in self.trace.gaps]
        # Each size grows at operation o by the gaps whose key is o.
        keys = {
            _AVAILABLE: [writer + 1 for writer in writers],
            _OPENED: [gap.before + 1 for gap in self.trace.gaps],
            _AGAIN: [gap.before + 1 for gap in self.trace.gaps],
            _DUE: [gap.after for gap in self.trace.gaps],
        }
        for kind, key in keys.items():
            growing: list[list[int]] = [[] for _ in range(self.count)]
            for index, o in enumerate(key):
                growing[o].append(index)
            for o in range(self.count):
                terms = [(self._column(o, kind), 1.0)]
                if o > 0:
                    terms.append((self._column(o - 1, kind), -1.0))
                for index in growing[o]:
                    size = self.scaled.sizes[index]
                    if kind != _AGAIN:
                        terms.append((self.first_gap + index, -size))
                    if index in self.again and kind != _OPENED and kind != _DUE:
                        sign = -1.0 if kind == _AGAIN else 1.0
                        terms.append((self.again[index], sign * size))
                self.model.row(terms, 0.0, 0.0)

    def _add_evictions(self) -> None:
        """A gap is evicted again only if it is evicted and an earlier one of its tensor is."""
        for index, column in self.again.items():
            evicted = self.first_gap + index
            self.model.row([(column, 1.0), (evicted, -1.0)], -math.inf, 0.0)
            earlier = [(self.first_gap + other, -1.0) for other in self.previous[index]]
            self.model.row([(column, 1.0), *earlier], -math.inf, 0.0)
        by_tensor: dict[int, list[tuple[int, float]]] = {}
        for index, gap in enumerate(self.trace.gaps):
            terms = by_tensor.setdefault(gap.tensor, [])
            terms.append((self.first_gap + index, 1.0))
            if index in self.again:
                terms.append((self.again[index], -1.0))
        for terms in by_tensor.values():
            if len(terms) > 1:
                self.model.row(terms, -math.inf, 1.0)


def _scale(problem: Problem, required: Sequence[int]) -> _Scaled:
    """Express times and sizes in units that keep the program's numbers near 1."""
    trace = problem.trace
    out, back = (1 / problem.platform.rate(kind) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
    mean = (out + back) / 2
    sizes = [float(trace.gap_size(gap) * mean) for gap in range(len(trace.gaps))]
    unit = max(1.0, (trace.compute_time + 2 * sum(sizes)) / len(trace))
    return _Scaled(
        unit,
        [duration / unit for duration in trace.durations],
        [float(amount * mean) / unit for amount in required],
        [size / unit for size in sizes],
        float(out / mean),
        float(back / mean),
    )


@dataclass(frozen=True)
class FluidBound(SolverOutcome):
    """The bound that HiGHS claims."""

    # Ticks; no schedule is shorter. HiGHS's bound, less `RELATIVE_MARGIN` times all work, rounded
    # up; at least the compute time.
    value: int
    optimal: bool  # Whether the optimum of the program was reached.

    @property
    def details(self) -> dict[str, Any]:
        """The part of a certificate about the solver's work."""
        return super().details | {"optimal": self.optimal}


def fluid_bound(
    problem: Problem,
    *,
    time_limit: float = 60.0,
    relax: bool = False,
    required: Sequence[int] | None = None,
) -> FluidBound:
    """Return a lower bound on the makespan, in ticks, whatever ended the solver.

    Parameters
    ----------
    problem : Problem
        Feasible, any trace and link.
    time_limit : float
        Seconds. When it runs out the bound proved until then is returned.
    relax : bool
        Whether a gap may be evicted in part: a linear program, no stronger, the fractional optimum
        on traces whose tensors have one gap each, nested. Fractional transfers need it.
    required : sequence of int, optional
        Bytes that must be absent during each operation. By default what exceeds the memory, which
        is valid for interruptible transfers too; rounded up to reachable sums
        (`relaxations.required_absent`) it is valid for atomic ones only, and stronger.

    Raises
    ------
    ValueError
        If the problem is infeasible, or binaries are asked for where tensors may move in part.
    """
    if problem.transfers is Transfers.FRACTIONAL and not relax:
        raise ValueError("fractional transfers are bounded by the linear program only")
    began = time.monotonic()
    require_feasible(problem)
    absent = required_absent(problem) if required is None else required
    fluid = AggregatedProgram(problem, absent, relax)
    answer = solve_linear(fluid.model, SCIPY, time_limit=time_limit)
    value, margin = bound_of(problem, answer, fluid.scaled.unit)
    return FluidBound(
        value=value,
        optimal=answer.optimal,
        error=answer.error,
        seconds=round(time.monotonic() - began, 3),
        statistics=recorded(answer, relax=relax, margin=margin),
    )


def require_feasible(problem: Problem) -> None:
    """Raise ValueError if some operation does not fit, whatever leaves."""
    lacking = infeasibility(problem)
    if lacking is not None:
        raise ValueError(f"{lacking.name} lacks {lacking.lacking} bytes, so there is no bound")


def bound_of(problem: Problem, answer: LinearAnswer, unit: float) -> tuple[int, float]:
    """Return the bound in ticks that an answer about idle time, in units, is; and the margin."""
    margin = RELATIVE_MARGIN * unit * len(problem.trace)
    idle = max(0.0, answer.bound * unit - margin) if math.isfinite(answer.bound) else 0.0
    return problem.trace.compute_time + math.ceil(idle), margin


def recorded(answer: LinearAnswer, **beside: Any) -> dict[str, Any]:
    """Return the statistics of a fluid program: what HiGHS says, and what is known beside it."""
    kept = ("rows", "columns", "nonzeros", "solver_status")
    said = {name: answer.statistics[name] for name in kept if name in answer.statistics}
    return said | {"solver": f"HiGHS in SciPy {scipy.__version__}"} | beside
