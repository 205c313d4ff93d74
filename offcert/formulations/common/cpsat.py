"""CP-SAT, in a thread of its own that can be abandoned.

The caller's thread stays free: an interrupt reaches it at once, it may ask for an early end, and if
the solver takes no notice of its time limit, the thread is left to itself and nobody listens to it
any more.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from offcert.formulations.common.children import leave_behind
from offcert.formulations.common.linear_model import LinearAnswer, LinearModel, whole
from offcert.formulations.common.outcome import SolverRun

# Seconds between two looks at the solver's thread. Arbitrary.
_POLL = 0.05
# Seconds that the solver may take after its time limit, and after it has been asked to stop.
# Arbitrary.
OVERRUN, STOPPING = 3.0, 3.0


class OverrunError(RuntimeError):
    """The solver did not end."""


@dataclass(frozen=True)
class CpSatEnd:
    """How a run ended."""

    status: Any  # The solver's.
    interrupted: bool  # Whether the user ended it.


def run_cpsat(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    time_limit: float,
    *,
    on_solution: Callable[[Callable[[Any], int]], object] | None = None,
    on_bound: Callable[[float], object] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> CpSatEnd:
    """Solve a model within `time_limit` seconds, with a solver that has its other parameters.

    `on_solution` is told of every solution, as a function from expressions to values, and
    `on_bound` of every bound; from another thread. `stop` is asked several times a second whether
    to stop early.

    Raises
    ------
    OverrunError
        If the solver takes no notice of the limit.
    Exception
        Exceptions of the solver or of a callback.
    """
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.catch_sigint_signal = False
    run = _SolverThread(solver, model, on_solution, on_bound)
    thread = threading.Thread(target=run.work, name="CP-SAT", daemon=True)
    thread.start()
    deadline = time.monotonic() + time_limit + OVERRUN
    interrupted = asked = False
    while thread.is_alive() and time.monotonic() < deadline:
        try:
            thread.join(_POLL)
            wanted = interrupted or stop()
        except KeyboardInterrupt:
            wanted = interrupted = True
        if wanted and not asked:
            asked = True
            deadline = min(deadline, time.monotonic() + STOPPING)
            solver.stop_search()
    if thread.is_alive():
        run.listening = False
        leave_behind(thread)
        if interrupted:
            raise KeyboardInterrupt
        raise OverrunError(f"CP-SAT did not end within its time limit of {time_limit:g} s")
    if run.failure is not None:
        raise run.failure
    return CpSatEnd(run.status, interrupted)


# Threads from which on the solver searches neighbourhoods of a solution by itself. Given by
# OR-Tools.
_PORTFOLIO = 8


def solver_with(
    workers: int, seed: int, *, near: bool = False, only: bool = False
) -> cp_model.CpSolver:
    """Return a solver that has so many threads, and whose random numbers begin with a seed.

    With `near` even a single thread searches the neighbourhoods of its best solution, in turns with
    all else; with `only` it does nothing else, and proves nothing.
    """
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.interleave_search = near and workers < _PORTFOLIO
    solver.parameters.use_lns_only = only
    return solver


def complete_hint(model: cp_model.CpModel, seconds: float) -> None:
    """Give each variable a hint, if those that have one leave a solution: so it is the first."""
    solver = solver_with(1, 0)
    solver.parameters.fix_variables_to_their_hinted_value = True
    if run_cpsat(solver, model, seconds).status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        model.clear_hints()
        for index, value in enumerate(solver.response_proto.solution):
            model.add_hint(model.get_int_var_from_proto_index(index), value)


def bound_by(
    run: SolverRun,
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    time_limit: float,
    *,
    on_solution: Callable[[Callable[[Any], int]], object],
    on_bound: Callable[[float], object] | None = None,
    stop: Callable[[], bool],
) -> float | None:
    """Solve a model in what is left of `time_limit` seconds; what the solver says is recorded.

    Return the solver's bound on the objective, infinite if nothing satisfies the model; None if the
    run has failed. A failure is recorded, too, whatever it is: it costs the solver's contribution
    only. Callbacks are as for `run_cpsat`.
    """
    left = max(0.1, time_limit - run.elapsed)
    try:
        end = run_cpsat(solver, model, left, on_solution=on_solution, on_bound=on_bound, stop=stop)
    except Exception as error:
        run.error = f"{type(error).__name__}: {error}"
        return None
    run.interrupted = end.interrupted
    run.statistics["solver_status"] = solver.status_name(end.status)
    if end.status == cp_model.INFEASIBLE:
        return math.inf
    if end.status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        return float(solver.best_objective_bound)
    run.error = model.validate() or "the model was not accepted"
    return None


def solve_integers(
    linear: LinearModel, time_limit: float, threads: int, seed: int, statistics: dict[str, Any]
) -> LinearAnswer:
    """Solve a program whose numbers are all integers within so many seconds.

    Parameters as for `linear_solvers.solve_linear`; `statistics` is what is known of the run, and
    receives the solver's status.
    """
    deadline = time.monotonic() + time_limit
    model = cp_model.CpModel()
    columns = [
        model.new_int_var(whole(low), whole(high), "")
        for low, high in zip(linear.low, linear.high, strict=True)
    ]
    for terms, low, high in linear.rows:
        total = sum(whole(value) * columns[column] for column, value in terms)
        if math.isfinite(low):
            model.add(total >= math.ceil(low))
        if math.isfinite(high):
            model.add(total <= math.floor(high))
    cost = [whole(each) for each in linear.cost]
    # At least 0, which is the bound that the solver reports before it has one.
    least = sum(min(0, c * whole(high)) for c, high in zip(cost, linear.high, strict=True))
    model.minimize(sum(c * column for c, column in zip(cost, columns, strict=True)) - least)
    left = deadline - time.monotonic()
    if left <= 0:
        statistics["solver_status"] = "not started: no time left"
        return LinearAnswer(None, -math.inf, False, statistics=statistics)
    solver = solver_with(threads, seed)
    end = run_cpsat(solver, model, left)
    if end.interrupted:
        raise KeyboardInterrupt
    statistics["solver_status"] = solver.status_name(end.status)
    if end.status == cp_model.INFEASIBLE:
        return LinearAnswer(None, math.inf, True, statistics=statistics)
    found = None
    if end.status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = [float(solver.value(column)) for column in columns]
    if found is None and end.status != cp_model.UNKNOWN:
        return LinearAnswer(None, -math.inf, False, False, model.validate(), statistics)
    bound = max(0.0, solver.best_objective_bound) + least
    return LinearAnswer(found, bound, False, end.status == cp_model.OPTIMAL, statistics=statistics)


class _SolverThread:
    """The run of a solver, in its thread."""

    def __init__(
        self,
        solver: cp_model.CpSolver,
        model: cp_model.CpModel,
        on_solution: Callable[[Callable[[Any], int]], object] | None,
        on_bound: Callable[[float], object] | None,
    ) -> None:
        self.listening = True
        self.status: Any = None
        self.failure: BaseException | None = None
        self._solver = solver
        self._model = model
        self._on_bound = on_bound
        self._collector = None if on_solution is None else _Collector(self, on_solution)

    def work(self) -> None:
        """Run the solver to its end."""
        try:
            if self._on_bound is not None:
                self._solver.best_bound_callback = self._take_bound
            self.status = self._solver.solve(self._model, self._collector)
        except BaseException as error:
            self.failure = error

    def _take_bound(self, bound: float) -> None:
        if self.listening and self._on_bound is not None:
            self._on_bound(bound)


class _Collector(cp_model.CpSolverSolutionCallback):
    """Hands every solution on."""

    def __init__(
        self, run: _SolverThread, on_solution: Callable[[Callable[[Any], int]], object]
    ) -> None:
        super().__init__()
        self._run = run
        self._hand_on = on_solution

    def on_solution_callback(self) -> None:
        """Take the solution that the solver has just found."""
        if self._run.listening:
            self._hand_on(self.value)
