"""The linear relaxation of the fluid program with some gaps decided, and its dual multipliers.

The rows are those of `fluid.milp`; HiGHS solves them inside SciPy. Its answer is advice only:
`fluid.dual` works out in integers what bound it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack

from offcert.core.problem import Problem
from offcert.formulations.common.highs import run_highs
from offcert.formulations.fluid.dual import KINDS, Fixed, rates
from offcert.formulations.fluid.milp import AggregatedProgram

# The finest that HiGHS accepts. The bound loses what the duals are off.
_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Relaxed:
    """An optimum of the linear program.

    Attributes
    ----------
    evicted : tuple of float
        How much of each gap is evicted, from 0 to 1.
    weights : tuple of tuple of float
        Multipliers as `fluid.dual.Dual.rounded` takes them.
    """

    evicted: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]


class Relaxation:
    """The program of one problem, to be solved with one set of decisions after another.

    Parameters
    ----------
    problem : Problem
        Feasible, any trace and link.
    required : sequence of int
        Bytes that must be absent during each operation.
    """

    def __init__(self, problem: Problem, required: Sequence[int]) -> None:
        self._program = program = AggregatedProgram(problem, required)
        rows = program.rows.constraint(program.columns)
        matrix: Any = rows.A
        low, high = rows.lb, rows.ub
        equal = low == high
        upper = ~equal & np.isfinite(high)
        lower = ~equal & np.isfinite(low)
        self._at_most = vstack([matrix[upper], -matrix[lower]]).tocsr()
        self._limits = np.concatenate([high[upper], -low[lower]])
        self._equal, self._values = matrix[equal], low[equal]
        self._cost = program.cost()
        self._bounds = np.stack([np.zeros(program.columns), program.upper_bounds()], axis=1)
        # Where each row of the program stands among the rows of at most a limit.
        place = np.full(len(low), -1)
        place[np.flatnonzero(upper)] = np.arange(upper.sum())
        place[np.flatnonzero(lower)] = upper.sum() + np.arange(lower.sum())
        self._places: NDArray[np.int64] = place[np.array(program.memory_rows)]
        # The program measures bytes by the mean of their times to leave and to return.
        there = rates(problem)
        self._factor = float((Fraction(1, there.out) + Fraction(1, there.back)) / 2)

    @property
    def size(self) -> dict[str, int]:
        """Rows, columns and nonzeros."""
        rows = self._program.rows
        return {
            "rows": len(rows.low),
            "columns": self._program.columns,
            "nonzeros": len(rows.values),
        }

    def solve(self, fixed: Fixed, time_limit: float) -> Relaxed | None:
        """Return an optimum with some gaps decided, or None if HiGHS finds none in time."""
        if time_limit <= 0:
            return None
        first = self._program.first_gap
        bounds: Any = self._bounds.copy()
        for gap, evicted in fixed.items():
            bounds[first + gap] = float(evicted)
        answer = run_highs(
            "linprog",
            time_limit,
            c=self._cost,
            A_ub=self._at_most,
            b_ub=self._limits,
            A_eq=self._equal,
            b_eq=self._values,
            bounds=bounds,
            method="highs",
            options={
                "time_limit": time_limit,
                "primal_feasibility_tolerance": _TOLERANCE,
                "dual_feasibility_tolerance": _TOLERANCE,
            },
        )
        if answer.status != 0:
            return None
        # A marginal says how the optimum changes with a limit; a larger upper limit lowers it.
        weights = -answer.ineqlin.marginals[self._places].T * self._factor
        assert len(weights) == len(KINDS)
        amounts = answer.x[first : first + len(self._program.trace.gaps)]
        return Relaxed(tuple(amounts.tolist()), tuple(map(tuple, weights.tolist())))
