"""Checkpoints of a chain, exactly: running sums in CP-SAT.

A literal a datum says whether it is a checkpoint. From one datum to the next, the bytes of the
segment so far grow, or begin again at a checkpoint; so does the largest gradient of the segment and
its left checkpoint. Variables grow with the chain, not with its square, and nothing is shared with
`chain_milp`: the two attest each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from itertools import accumulate

from ortools.sat.python import cp_model

from offcert.core.errors import InputError
from offcert.formulations.common.cpsat import OverrunError, run_cpsat, solver_with
from papers.checkpoint_chains.memory_models import dynamic_memory, static_memory
from papers.checkpoint_chains.outcome import SelectionOutcome, SelectionRun
from papers.checkpoint_chains.segment_costs import require_sizes

# The solver reports an integer bound as a float.
_MARGIN = 1e-6


def solve(
    sizes: Sequence[int],
    model: str = "static",
    *,
    gradients: Sequence[int] | None = None,
    time_limit: float = 60.0,
    workers: int = 1,
    seed: int = 0,
    hint: Sequence[int] | None = None,
) -> SelectionOutcome:
    """Return checkpoints of least memory, or the best found and a bound.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of ``d_0 … d_n``.
    model : str
        ``"static"`` or ``"dynamic"``: Eq. (6) or Eq. (9) of the selection paper.
    gradients : sequence of int, optional
        For the dynamic model, bytes of the gradients; by default those of the data.
    time_limit : float
        Seconds.
    workers, seed : int
        For the solver.
    hint : sequence of int, optional
        Checkpoints, from 0 to n; those returned take no more.

    Returns
    -------
    SelectionOutcome
        Also when the time runs out, the solver fails or the user interrupts.

    Raises
    ------
    InputError
        If the model is unknown, a size is none, there are not as many gradients, or the hint is
        none.
    """
    if model not in ("static", "dynamic"):
        raise InputError(f'model must be "static" or "dynamic", not {model!r}')
    gradients = require_sizes(sizes, gradients)

    def memory(checkpoints: Sequence[int]) -> int:
        if model == "static":
            return static_memory(sizes, checkpoints)
        return dynamic_memory(sizes, checkpoints, gradients)

    run = SelectionRun(
        len(sizes),
        memory,
        hint,
        sizes[0] + sizes[-1],
        solver="OR-Tools CP-SAT",
        version=version("ortools"),
        time_limit=time_limit,
    )
    # Smaller numbers propagate better.
    unit = math.gcd(*sizes, *gradients) or 1
    sums = RunningSums([s // unit for s in sizes], [g // unit for g in gradients], model)
    sums.hint(run.best)
    solver = solver_with(workers, seed)
    try:
        end = run_cpsat(solver, sums.model, max(0.1, time_limit - run.elapsed))
    except KeyboardInterrupt:
        run.interrupted = True
        return run.outcome()
    except (OverrunError, RuntimeError, ValueError, TypeError, MemoryError) as error:
        run.error = f"{type(error).__name__}: {error}"
        return run.outcome()
    run.interrupted = end.interrupted
    run.statistics["solver_status"] = solver.status_name(end.status)
    if end.status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        run.take_checkpoints(sums.checkpoints(solver))
    if end.status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        run.take_bound(solver.best_objective_bound, _MARGIN, unit)
    else:
        run.error = sums.model.validate() or "the solver excludes checkpoints that exist"
    return run.outcome()


class RunningSums:
    """Variables and constraints for one chain.

    Parameters
    ----------
    sizes, gradients : sequence of int
        Bytes, or multiples of them.
    model : str
        ``"static"`` or ``"dynamic"``.
    """

    def __init__(self, sizes: Sequence[int], gradients: Sequence[int], model: str) -> None:
        self.model = cp_model.CpModel()
        self._sizes, self._gradients = sizes, gradients
        count = len(sizes)
        self._stored = [self.model.new_bool_var(f"checkpoint {i}") for i in range(count)]
        self.model.add_bool_and([self._stored[0], self._stored[-1]])
        most = 2 * sum(sizes) + max(gradients)
        self._segment = [
            self.model.new_int_var(0, sum(sizes), f"segment {i}") for i in range(count)
        ]
        self._add_segments()
        self._peak = self.model.new_int_var(0, most, "peak")
        if model == "static":
            self._add_static()
        else:
            self._add_dynamic()

    def _add_segments(self) -> None:
        """At a checkpoint a segment begins; elsewhere it grows."""
        for i in range(1, len(self._sizes)):
            grown = self._segment[i] >= self._segment[i - 1] + self._sizes[i]
            self.model.add(grown).only_enforce_if(~self._stored[i])

    def _add_static(self) -> None:
        """All checkpoints, and the largest segment."""
        self.model.add_max_equality(self._peak, self._segment)
        stored = sum(s * each for s, each in zip(self._sizes, self._stored, strict=True))
        self.model.minimize(stored + self._peak)

    def _add_dynamic(self) -> None:
        """At each checkpoint: those so far, the segment that it ends, and its buffer."""
        largest = max(self._gradients)
        buffer = [
            self.model.new_int_var(size, largest, f"buffer {i}")
            for i, size in enumerate(self._gradients)
        ]
        stored = list(
            accumulate(s * each for s, each in zip(self._sizes, self._stored, strict=True))
        )
        for i in range(1, len(self._sizes)):
            self.model.add(buffer[i] >= buffer[i - 1]).only_enforce_if(~self._stored[i])
            needed = stored[i] + self._segment[i - 1] + buffer[i - 1]
            self.model.add(self._peak >= needed).only_enforce_if(self._stored[i])
        self.model.minimize(self._peak)

    def hint(self, checkpoints: Sequence[int]) -> None:
        """Begin with these."""
        for i, literal in enumerate(self._stored):
            self.model.add_hint(literal, i in checkpoints)

    def checkpoints(self, solver: cp_model.CpSolver) -> tuple[int, ...]:
        """Return the checkpoints of the solver's solution."""
        return tuple(i for i, literal in enumerate(self._stored) if solver.value(literal))
