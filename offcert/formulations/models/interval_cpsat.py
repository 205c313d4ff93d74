"""Atomic transfers, exact and general: the interval model, solved by OR-Tools' CP-SAT.

Problem 1 of the offloading paper, on traces instead of chains, without its restriction to schedules
in which all offloads come before all prefetches (notes on the papers, §1.2).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.metadata import version
from typing import Any

from ortools.sat.python import cp_model

from offcert.core.errors import PlanError
from offcert.core.plan import Kind, Move, Plan
from offcert.core.problem import Problem
from offcert.core.result import SolveStatus
from offcert.core.schedule import Schedule
from offcert.core.simulate import simulate
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.formulations.common.cpsat import run_cpsat
from offcert.formulations.models.interval_data import IntervalData, choose_grid, horizon, prepare
from offcert.formulations.models.interval_energy import choose_windows
from offcert.formulations.models.interval_model import IntervalModel

# Share of the time limit that may go into choosing energy constraints.
_ENERGY_SHARE = 0.1

OnSolution = Callable[[Schedule], object]


@dataclass(frozen=True, slots=True)
class IntervalOutcome:
    """What the interval model found and proved.

    Attributes
    ----------
    status : SolveStatus
        ``OPTIMAL`` only if the schedule's makespan equals the lower bound.
    schedule : Schedule or None
        The best one known, the hint included, re-simulated at full resolution.
    lower_bound : int
        Ticks; valid for every schedule whatever the grid. At least the one that `solve` was given;
        ``details["solver_bound"]`` is what the solver said.
    details : dict
        Settings, solver version, wall time in seconds, what the solver said; JSON values only.
    """

    status: SolveStatus
    schedule: Schedule | None
    lower_bound: int
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def objective(self) -> int | None:
        """Makespan of the schedule in ticks, or None."""
        return None if self.schedule is None else self.schedule.makespan


def solve(
    problem: Problem,
    *,
    time_limit: float = 60.0,
    workers: int = 1,
    seed: int = 0,
    hint: Schedule | None = None,
    lower_bound: int = 0,
    upper_bound: int | None = None,
    grid: int | None = None,
    heads: Sequence[int | Fraction] | None = None,
    tails: Sequence[int | Fraction] | None = None,
    ordered: bool = False,
    energy: bool = True,
    log: Callable[[str], None] | None = None,
    on_solution: OnSolution | None = None,
    stop: Callable[[], bool] | None = None,
) -> IntervalOutcome:
    """Solve a problem with atomic transfers, or find out how good its best schedule can be.

    Parameters
    ----------
    problem : Problem
        Any trace and link.
    time_limit : float
        Seconds, building the model included.
    workers, seed : int
        For the solver.
    hint : Schedule, optional
        A valid schedule; it is returned if nothing better is found.
    lower_bound : int
        Ticks; a bound already proved elsewhere.
    upper_bound : int, optional
        Ticks; longer schedules are of no interest. The hint's makespan if that is less.
    grid : int, optional
        Ticks a cell; the finest that the solver's 64-bit arithmetic allows by default. Coarser
        grids give bounds sooner, most of all aligned ones (`interval_data.aligned_grid`); they
        are rounded optimistically, so all are valid.
    heads, tails : sequence of number, optional
        Ticks, one entry an operation: it starts no earlier than its head, and the schedule ends no
        earlier than its tail after that start. Added to those computed here.
    ordered : bool
        Whether all offloads must end before any prefetch starts. That is a restriction: bound and
        status then speak of such schedules only, of which a trace with several gaps a tensor may
        have none.
    energy : bool
        Whether to add energy constraints.
    log : callable, optional
        Receives the solver's log line by line.
    on_solution : callable, optional
        Receives each better schedule as soon as it is found, from another thread.
    stop : callable, optional
        Asked several times a second whether to stop early.

    Returns
    -------
    IntervalOutcome
        Also when the time runs out, the solver fails or the user interrupts.
    """
    run = _Run(problem, hint, lower_bound, log, on_solution)
    run.details.update(
        {"time_limit": time_limit, "workers": workers, "seed": seed, "ordered": ordered}
    )
    lacking = infeasibility(problem)
    if lacking is not None:
        run.details["infeasible"] = f"{lacking.name} lacks {lacking.lacking} bytes"
        return run.outcome(SolveStatus.INFEASIBLE)
    if hint is not None and run.finished:
        return run.outcome()
    upper = horizon(problem) if upper_bound is None else upper_bound
    if hint is not None:
        upper = min(upper, hint.makespan)
    try:
        run.start(upper, choose_grid(problem, upper) if grid is None else grid, heads, tails)
        if run.data is not None:
            run.build(problem.platform.duplex, ordered, energy, time_limit)
            run.search(time_limit, workers, seed, stop)
    except KeyboardInterrupt:
        run.details["interrupted"] = True
    except (RuntimeError, ValueError, TypeError, MemoryError) as error:
        # A solver that fails costs its contribution, never what is already known.
        run.details["error"] = f"{type(error).__name__}: {error}"
    return run.outcome()


class _Run:
    """One call of `solve`: the incumbent, the bound and the solver between them."""

    def __init__(
        self,
        problem: Problem,
        hint: Schedule | None,
        lower_bound: int,
        log: Callable[[str], None] | None,
        on_solution: OnSolution | None,
    ) -> None:
        self.problem = problem
        self.hint = hint
        self.best = hint
        self.lower_bound = max(lower_bound, problem.trace.compute_time)
        self.log = log
        self.on_solution = on_solution
        self.data: IntervalData | None = None
        self.began = time.monotonic()
        # The solver is given this bound, so what it proves may rest on it.
        self.details: dict[str, Any] = {
            "given_lower_bound": lower_bound,
            "solver": f"OR-Tools CP-SAT {version('ortools')}",
        }

    def start(
        self,
        upper: int,
        grid: int,
        heads: Sequence[int | Fraction] | None,
        tails: Sequence[int | Fraction] | None,
    ) -> None:
        """Round the problem to its grid."""
        self.upper = upper
        self.data = prepare(self.problem, grid, upper, heads, tails)
        self.details.update({"grid": grid, "upper_bound": upper})
        if self.data is None:
            self._nothing_within()
        else:
            self.details["exact"] = self.data.exact

    def build(self, duplex: bool, ordered: bool, energy: bool, time_limit: float) -> None:
        """Build the model, with the hint and the bounds known so far."""
        assert self.data is not None
        windows = []
        if energy:
            windows = choose_windows(self.data, duplex, _ENERGY_SHARE * time_limit)
        self.model = IntervalModel(self.data, duplex, ordered, windows)
        last = self.model.start[-1]
        # The last operation starts no earlier than the bound says; rounded down, like every start.
        least = (self.lower_bound - self.problem.trace.durations[-1]) // self.data.grid
        self.model.model.add(last >= least)
        if self.hint is not None:
            self.model.hint(self.hint)
        self.details.update(
            {
                "windows": len(windows),
                "gaps": len(self.data.gaps),
                "literals": 2 * len(self.model.left),
                "build_seconds": round(time.monotonic() - self.began, 3),
            }
        )

    def search(
        self, time_limit: float, workers: int, seed: int, stop: Callable[[], bool] | None
    ) -> None:
        """Run the solver, and take what it says."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = workers
        solver.parameters.random_seed = seed
        if self.log is not None:
            solver.parameters.log_search_progress = True
            solver.parameters.log_to_stdout = False
            solver.log_callback = self.log
        try:
            end = run_cpsat(
                solver,
                self.model.model,
                max(0.1, time_limit - (time.monotonic() - self.began)),
                on_solution=self.take_solution,
                on_bound=self._take_bound,
                stop=lambda: self.finished or (stop is not None and stop()),
            )
        except Exception as error:
            self.details["error"] = f"{type(error).__name__}: {error}"
            return
        if end.interrupted:
            self.details["interrupted"] = True
        self._take_answer(solver, end.status)

    @property
    def finished(self) -> bool:
        """Whether the incumbent is proved optimal."""
        return self.best is not None and self.best.makespan <= self.lower_bound

    def _take_answer(self, solver: cp_model.CpSolver, status: Any) -> None:
        self.details["solver_status"] = solver.status_name(status)
        if status == cp_model.INFEASIBLE:
            self._nothing_within()
        elif status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
            self._take_bound(solver.best_objective_bound)
        else:
            self.details["error"] = self.model.model.validate() or "the model was not accepted"

    def _nothing_within(self) -> None:
        """No schedule ends by the upper bound, so every one ends later."""
        self.lower_bound = max(self.lower_bound, self.upper + 1)
        if self.best is not None and self.lower_bound > self.best.makespan:
            self.lower_bound = 0
            self.details["error"] = "the model excludes a schedule that exists"

    def _take_bound(self, bound: float) -> None:
        """Take a bound on the last operation's start, in cells."""
        assert self.data is not None
        if not math.isfinite(bound):
            return
        cells = math.ceil(bound - 1e-6)
        ticks = cells * self.data.grid + self.problem.trace.durations[-1]
        self.details["solver_bound"] = min(ticks, self.upper + 1)
        self.lower_bound = max(self.lower_bound, self.details["solver_bound"])

    def take_solution(self, value: Callable[[Any], int]) -> None:
        """Re-simulate a solution of the model, and keep it if it is the best so far."""
        assert self.data is not None
        for plan in plans_of(self.problem, self.model.schedule(value), self.data.exact):
            try:
                schedule = simulate(self.problem, plan)
            except PlanError:
                # On a coarse grid a solution need not be feasible at full resolution.
                if self.data.exact:
                    self.details["error"] = "an exact solution could not be re-simulated"
                continue
            if self.best is None or schedule.makespan < self.best.makespan:
                self.best = schedule
                if self.on_solution is not None:
                    self.on_solution(schedule)

    def outcome(self, status: SolveStatus | None = None) -> IntervalOutcome:
        """Return what is known now."""
        self.details["seconds"] = round(time.monotonic() - self.began, 3)
        if status is None:
            status = SolveStatus.UNKNOWN if self.best is None else SolveStatus.FEASIBLE
            if self.finished:
                status = SolveStatus.OPTIMAL
        return IntervalOutcome(status, self.best, self.lower_bound, self.details)


def plans_of(problem: Problem, rough: Schedule, exact: bool) -> list[Plan]:
    """Return plans that follow a schedule in grid cells; if that is coarse, a cautious one too.

    The first follows the schedule's order of claims. The second takes the memory of every prefetch
    as late as the operations it serves allow.
    """
    trace = problem.trace
    if exact:
        return [rough.plan(trace)]
    # Transfers of no rounded duration tie; offloads go first, and so does what is needed first.
    ordered = sorted(
        rough.transfers,
        key=lambda t: (t.start, t.end, t.kind is Kind.PREFETCH, trace.gaps[t.gap].after),
    )
    eager, late = [], []
    latest = len(trace) - 1
    for transfer in reversed(ordered):
        gap = trace.gaps[transfer.gap]
        if transfer.kind is Kind.OFFLOAD:
            move = Move(Kind.OFFLOAD, transfer.gap, gap.after - 1)
            eager.append(move)
            late.append(move)
            continue
        latest = min(latest, gap.after)
        before = min(rough.first_operation_after_claim(transfer), latest)
        eager.append(Move(Kind.PREFETCH, transfer.gap, before))
        late.append(Move(Kind.PREFETCH, transfer.gap, latest))
    return [Plan(reversed(eager)), Plan(reversed(late))]
