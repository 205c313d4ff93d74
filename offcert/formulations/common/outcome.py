"""The outcome of a model, and the bookkeeping of the incumbent and the bound around a solver."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from offcert.core.errors import InputError, PlanError
from offcert.core.platform import Kind
from offcert.core.result import SolveStatus
from offcert.core.trace import Trace
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.formulations.common.grid import longest_makespan
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate

OnSolution = Callable[[Schedule], object]
# Who claims what CP-SAT says.
CP_SAT = "OR-Tools CP-SAT"


@dataclass(frozen=True, slots=True)
class SolverClaim:
    """A lower bound that rests on a solver's word."""

    value: int  # Ticks. No schedule is shorter, as far as the solver is right.
    solver: str  # Who says so.


@dataclass(frozen=True, kw_only=True)
class SolverOutcome:
    """The record of a run of a solver, whatever it was asked."""

    # The failure in a sentence, in the solver or around it; None if there was none.
    error: str | None = None
    interrupted: bool = False  # Whether the user ended it.
    seconds: float = 0.0  # How long it took.
    # JSON values that are good to know and that nothing depends on: solver, version, settings,
    # sizes, the solver's own words.
    statistics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def details(self) -> dict[str, Any]:
        """The part of a certificate about the solver's work."""
        found = dict(self.statistics)
        if self.error is not None:
            found["error"] = self.error
        if self.interrupted:
            found["interrupted"] = True
        return found | {"seconds": self.seconds}


@dataclass(frozen=True)
class ModelOutcome(SolverOutcome):
    """The findings of a model and the claims of its solver."""

    status: SolveStatus  # ``OPTIMAL`` only if the schedule's makespan equals the lower bound.
    # The best one known, the hint included; times are the simulator's, never the solver's.
    schedule: Schedule | None
    # Ticks, whatever the grid; no schedule of the problem at full resolution is shorter, as far as
    # the solver's claim is right. At least the bound that the model was given.
    lower_bound: int
    claim: SolverClaim | None = None  # The bound that the solver showed by itself, if it did.

    @property
    def objective(self) -> int | None:
        """Makespan of the schedule in ticks, or None."""
        return None if self.schedule is None else self.schedule.makespan


class SolverRun:
    """One run of a solver, whatever happens to it.

    `statistics`, which begin with the arguments, grow as the model is built and solved.
    """

    def __init__(self, **statistics: Any) -> None:
        self.error: str | None = None
        self.interrupted = False
        self.statistics: dict[str, Any] = statistics
        self._began = time.monotonic()

    @property
    def record(self) -> dict[str, Any]:
        """The fields of a `SolverOutcome`."""
        return {
            "error": self.error,
            "interrupted": self.interrupted,
            "seconds": round(self.elapsed, 3),
            "statistics": self.statistics,
        }

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep incumbent and bound if the block is interrupted or a solver fails in it.

        That costs the solver's contribution only. Bad input is raised all the same.
        """
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
        except InputError:
            raise
        except (RuntimeError, ValueError, TypeError, MemoryError) as error:
            self.error = f"{type(error).__name__}: {error}"


class ModelRun(SolverRun):
    """One run of a model: the best schedule and bound so far, whatever happens to the solver.

    Transfers of the problem are taken as atomic, the hint is a valid schedule, and `lower_bound`
    (ticks) is proved elsewhere. `solver` makes the claims, which the statistics mention under
    `claim_name`. `on_solution` is told of every schedule that is better than those before.
    """

    def __init__(
        self,
        problem: Problem,
        upper_bound: int | None,
        hint: Schedule | None,
        lower_bound: int,
        *,
        solver: str,
        claim_name: str = "model_bound",
        on_solution: OnSolution | None = None,
        **statistics: Any,
    ) -> None:
        self.problem = problem
        self.best = hint  # The best schedule so far.
        self.lower_bound = max(lower_bound, problem.trace.compute_time)
        # Ticks: the least of the given bound, the hint's makespan and a makespan that some optimal
        # schedule does not exceed. Models describe the schedules of at most this length.
        self.upper = longest_makespan(problem) if upper_bound is None else upper_bound
        if hint is not None:
            self.upper = min(self.upper, hint.makespan)
        super().__init__(upper_bound=self.upper, solver=solver, **statistics)
        # Ticks that the solver alone has shown to be necessary.
        self.claimed: int | None = None
        self._solver, self._claim_name = solver, claim_name
        self._on_solution = on_solution
        lacking = infeasibility(problem)
        self.feasible = lacking is None
        if lacking is not None:
            self.statistics["infeasible"] = f"{lacking.name} lacks {lacking.lacking} bytes"

    @property
    def finished(self) -> bool:
        """Whether the best schedule is as short as the bound."""
        return self.best is not None and self.best.makespan <= self.lower_bound

    @property
    def limits(self) -> list[int]:
        """Lengths to describe schedules up to, in turn: shorter ones than the best come first.

        Where windows as narrow as that leave none, it is for the solver to say so.
        """
        if self.best is None or self.best.makespan > self.upper:
            return [self.upper]
        return [self.best.makespan - 1, self.upper]

    def take_bound(self, ticks: float, margin: float) -> None:
        """Take a solver's bound on the makespans of at most `upper`, in ticks.

        Makespans are integers, so `ticks` less `margin` is rounded up. The model knows nothing of
        longer schedules, so its bound counts up to the first of them only.
        """
        if math.isfinite(ticks):
            claimed = min(math.ceil(ticks - margin), self.upper + 1)
            self.claimed = max(claimed, self.claimed or 0)
            self.lower_bound = max(self.lower_bound, claimed)

    def nothing_within(self) -> None:
        """Take a proof that no schedule ends by `upper`; one that does refutes the proof."""
        if self.best is not None and self.best.makespan <= self.upper:
            self.claimed = None
            self.error = "the solver excludes a schedule that exists"
        else:
            self.claimed = self.upper + 1
            self.lower_bound = max(self.lower_bound, self.upper + 1)

    def take_plans(self, plans: Iterable[Plan], exact: bool) -> None:
        """Simulate a solution's plans at full resolution and keep the best schedule.

        If `exact`, the first of them must be feasible, so that a failure is an error to report.
        """
        for position, plan in enumerate(plans):
            try:
                schedule = simulate(self.problem, plan)
            except PlanError as error:
                if exact and position == 0:
                    self.error = f"an exact solution could not be re-simulated: {error}"
                continue
            if self.best is None or schedule.makespan < self.best.makespan:
                self.best = schedule
                if self._on_solution is not None:
                    self._on_solution(schedule)

    def outcome(self) -> ModelOutcome:
        """Return the best schedule, the lower bound and the status so far."""
        status, best = SolveStatus.UNKNOWN, self.best
        if not self.feasible:
            status, best = SolveStatus.INFEASIBLE, None
        elif best is not None:
            if self.lower_bound > best.makespan:
                self.error = (
                    f"a bound of {self.lower_bound} contradicts a schedule of {best.makespan}"
                )
                self.lower_bound = self.problem.trace.compute_time
            optimal = best.makespan == self.lower_bound
            status = SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE
        claim = None
        if self.claimed is not None:
            claim = SolverClaim(self.claimed, self._solver)
            self.statistics[self._claim_name] = self.claimed
        return ModelOutcome(status, best, self.lower_bound, claim, **self.record)


def rough_plans(trace: Trace, rough: Schedule) -> list[Plan]:
    """Return plans that follow times which need not be feasible at full resolution.

    The first follows the order of claims; the second takes the memory of every prefetch as late as
    the operations behind it in the queue allow. Rounded durations can be 0, so transfers tie: then
    offloads go first, and so does what is needed first. Times may be in any unit.
    """
    queue = sorted(
        rough.transfers,
        key=lambda t: (t.start, t.end, t.kind is Kind.PREFETCH, trace.gaps[t.gap].after),
    )
    eager, late = [], []
    latest = len(trace) - 1
    for transfer in reversed(queue):
        closed = trace.gaps[transfer.gap].after
        if transfer.kind is Kind.OFFLOAD:
            move = Move(Kind.OFFLOAD, transfer.gap, closed - 1)
            eager.append(move)
            late.append(move)
            continue
        latest = min(latest, closed)
        before = min(rough.first_operation_after_claim(transfer), latest)
        eager.append(Move(Kind.PREFETCH, transfer.gap, before))
        late.append(Move(Kind.PREFETCH, transfer.gap, latest))
    return [Plan(reversed(eager)), Plan(reversed(late))]
