"""Checkpoints of a chain, exactly: a path through the chain as a mixed-integer linear program.

A binary ``x[h, i]`` says that `h` and `i` are neighbouring checkpoints; they are a path from 0 to
n. So "`c` is a checkpoint" is the sum of the arcs into it, and no constant is needed that is larger
than everything. Static: least stored bytes plus `T`, where ``T ≥ Σ_i between[h, i] · x[h, i]`` for
every `h`. Otherwise: least `T`, where ``T ≥ stored before h + Σ_i between[h, i] · x[h, i]`` for
every `h`; where `h` is no checkpoint, that says no more than what is stored before it, which some
later row says as well. Arcs that alone exceed the memory of known checkpoints are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from offcert.formulations.common.linear_model import LinearModel, Terms
from offcert.formulations.common.linear_solvers import SCIPY, require_solver, solve_linear
from papers.checkpoint_chains.outcome import SelectionOutcome, SelectionRun
from papers.checkpoint_chains.segment_costs import SegmentCosts

# Solvers hold rows and integrality to 1e-6, in units of a thousandth of all bytes: an error of that
# size in one row moves the bound by 1e-9 of them. A thousand times as much comes off.
RELATIVE_MARGIN = 1e-6
_UNITS = 1000.0


def solve(
    costs: SegmentCosts,
    *,
    solver: str = SCIPY,
    time_limit: float = 60.0,
    threads: int = 1,
    hint: Sequence[int] | None = None,
) -> SelectionOutcome:
    """Return checkpoints of least memory, or the best found and a bound.

    Parameters
    ----------
    costs : SegmentCosts
        A chain under any memory model.
    solver : str
        ``"scipy"``, or a name that PuLP knows.
    time_limit : float
        Seconds.
    threads : int
        Threads of the solver.
    hint : sequence of int, optional
        Checkpoints, from 0 to n; those returned take no more.

    Returns
    -------
    SelectionOutcome
        Also when the time runs out, the solver fails or the user interrupts. The bound is the
        solver's, less `RELATIVE_MARGIN` of all bytes, rounded up to a multiple of the greatest
        common divisor of all sizes.

    Raises
    ------
    InputError
        If the solver is unknown or not available, or the hint is none.
    """
    require_solver(solver)
    last = len(costs.stored) - 1
    ends = costs.stored[0] + (costs.stored[last] if costs.static else 0)
    run = SelectionRun(last + 1, costs.memory, hint, ends, time_limit=time_limit)
    unit = math.gcd(*costs.stored, *(size for row in costs.between for size in row)) or 1
    scale = max(costs.most, 1) / _UNITS
    path = PathModel(costs, run.value, scale)
    try:
        answer = solve_linear(
            path.model, solver, time_limit=time_limit - run.elapsed, threads=threads
        )
    except KeyboardInterrupt:
        run.interrupted = True
        return run.outcome()
    run.statistics.update(answer.statistics)
    run.error = answer.error
    if answer.values is not None:
        run.take_checkpoints(path.checkpoints(answer.values))
    if answer.infeasible:
        run.error = "the solver excludes checkpoints that exist"
    else:
        run.take_bound(answer.bound * scale / unit, RELATIVE_MARGIN * costs.most / unit, unit)
    return run.outcome()


class PathModel:
    """Columns and rows for one chain.

    Parameters
    ----------
    costs : SegmentCosts
        The chain.
    upper : int
        Bytes of known checkpoints; those that take no more are described.
    scale : float
        Bytes of a unit of the program.
    """

    def __init__(self, costs: SegmentCosts, upper: int, scale: float) -> None:
        self.model = LinearModel()
        self._costs, self._scale = costs, scale
        self._last = len(costs.stored) - 1
        self._peak = self.model.column(0.0, costs.most / scale, cost=1.0)
        self._arcs = {
            (h, i): self.model.column(0.0, 1.0, cost=self._cost(i), integer=True)
            for h in range(self._last)
            for i in range(h + 1, self._last + 1)
            if self._least(h, i) <= upper
        }
        self._add_path()
        self._add_peaks()

    def _cost(self, checkpoint: int) -> float:
        """Return the cost of an arc into a checkpoint in the objective; the input comes last."""
        if not self._costs.static:
            return 0.0
        first = self._costs.stored[0] if checkpoint == self._last else 0
        return (self._costs.stored[checkpoint] + first) / self._scale

    def _least(self, h: int, i: int) -> int:
        """Return bytes that checkpoints with this arc take at least."""
        stored = self._costs.stored
        least = self._costs.between[h][i - h - 1]
        if self._costs.static:
            return least + sum(stored[each] for each in {0, h, i, self._last})
        return least + (stored[0] if h else 0)

    def _into(self, checkpoint: int, factor: float) -> Terms:
        return [(column, factor) for (_, i), column in self._arcs.items() if i == checkpoint]

    def _out_of(self, checkpoint: int, factor: float) -> Terms:
        return [(column, factor) for (h, _), column in self._arcs.items() if h == checkpoint]

    def _add_path(self) -> None:
        """One arc leaves 0, and what enters another checkpoint leaves it."""
        self.model.row(self._out_of(0, 1.0), 1.0, 1.0)
        for each in range(1, self._last):
            self.model.row([*self._into(each, 1.0), *self._out_of(each, -1.0)], 0.0, 0.0)

    def _add_peaks(self) -> None:
        """The peak is at least what every stretch takes, and what is stored before it."""
        stored, scale = self._costs.stored, self._scale
        for h in range(self._last):
            row: Terms = [(self._peak, 1.0)]
            constant = 0.0
            if not self._costs.static and h:
                constant = stored[0] / scale
                for each in range(1, h):
                    row += self._into(each, -stored[each] / scale)
            for i in range(h + 1, self._last + 1):
                if (h, i) in self._arcs:
                    bytes_between = self._costs.between[h][i - h - 1]
                    row.append((self._arcs[h, i], -bytes_between / scale))
            self.model.row(row, constant)

    def checkpoints(self, values: Sequence[float]) -> tuple[int, ...]:
        """Return the path of a solution, from 0 along the arc with the largest value."""
        path = [0]
        while path[-1] != self._last:
            ahead = {i: values[c] for (h, i), c in self._arcs.items() if h == path[-1]}
            path.append(max(ahead, key=ahead.__getitem__))
        return tuple(path)
