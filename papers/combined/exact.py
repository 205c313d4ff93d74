"""The least time of offloading and recomputation together on a small chain, under any assumptions.

Strategies come in the order of their computing time. No schedule of one takes less, so once the
next one computes for as long as the best schedule takes, that schedule is optimal. The transfers of
each are solved exactly (`transfers`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from offcert.core.errors import MethodError
from offcert.core.execution import Execution
from offcert.core.result import SolveStatus
from offcert.core.strategy import Strategy
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from papers.combined.assumptions import PUBLISHED, Assumptions
from papers.combined.strategies import Strategies
from papers.combined.transfers import scheduled_problem, solve_transfers


@dataclass(frozen=True)
class CombinedOutcome:
    """The optimum of going through the strategies, or the bounds on it so far.

    Attributes
    ----------
    status : SolveStatus
        ``OPTIMAL`` or ``INFEASIBLE`` if the list was read to its end.
    lower_bound : int
        Ticks: nothing under these assumptions is shorter, as far as the solvers are right.
    execution : Execution or None
        The execution of the best schedule.
    schedule : FluidSchedule, Schedule or None
        The best one, checked.
    scheduled : Problem or None
        The problem whose schedule it is; see `TransferOutcome.problem`.
    strategies, solved : int
        How many were listed, and for how many of them transfers had to be solved.
    seconds : float
        How long it took.
    """

    status: SolveStatus
    lower_bound: int
    execution: Execution | None
    schedule: FluidSchedule | Schedule | None
    scheduled: Problem | None
    strategies: int
    solved: int
    seconds: float

    @property
    def objective(self) -> int | None:
        """Ticks of the best schedule."""
        return None if self.schedule is None else self.schedule.makespan


def solve_combined(
    problem: Problem,
    assumptions: Assumptions = PUBLISHED,
    *,
    upper_bound: int | None = None,
    time_limit: float = 60.0,
) -> CombinedOutcome:
    """Find the shortest schedule of a chain whose stages may run again and whose tensors may leave.

    Parameters
    ----------
    problem : Problem
        A chain of a few stages.
    assumptions : Assumptions
        The assumptions; by default all of the combined paper.
    upper_bound : int, optional
        Ticks: only schedules of at most that are looked for.
    time_limit : float
        Seconds.

    Raises
    ------
    MethodError
        If the problem is no chain.
    """
    if problem.checkpoint_chain is None:
        raise MethodError("the exact combined model needs a chain")
    return _Run(problem, assumptions, upper_bound, time_limit).outcome()


class _Run:
    def __init__(
        self, problem: Problem, assumptions: Assumptions, upper: int | None, time_limit: float
    ) -> None:
        chain = problem.checkpoint_chain
        assert chain is not None
        self.problem, self.assumptions, self.upper = problem, assumptions, upper
        self.turn = len(chain) - 1
        self.began, self.time_limit = time.monotonic(), time_limit
        self.strategies = Strategies(chain, problem.platform, assumptions, problem.offload)
        self.strategies.upper = None if upper is None else upper + 1
        self.best: tuple[Execution, FluidSchedule | Schedule, Problem] | None = None
        self.listed = self.solved = 0
        # What strategies may take at least whose transfers were not solved to the end.
        self.open_bound: int | None = None

    def outcome(self) -> CombinedOutcome:
        ended = True
        for strategy in self.strategies:
            left = self.time_limit - (time.monotonic() - self.began)
            if left <= 0:
                ended = False
                break
            self._try(strategy, left)
        reached = self.strategies.reached
        limits = [b for b in (self.strategies.upper, self.open_bound) if b is not None]
        lower = min([*limits, *(() if ended else (reached,))], default=reached)
        execution, schedule, scheduled = self.best or (None, None, None)
        return CombinedOutcome(
            self._status(lower, ended),
            lower,
            execution,
            schedule,
            scheduled,
            self.listed,
            self.solved,
            round(time.monotonic() - self.began, 3),
        )

    def _try(self, strategy: Strategy, time_limit: float) -> None:
        """Solve the transfers of a strategy, and keep the schedule if it is the best."""
        self.listed += 1
        network = self.problem.computed
        assert network is not None
        execution = strategy.expand(network)
        scheduled = scheduled_problem(self.problem, execution, self.assumptions)
        upper = self.strategies.upper
        found = solve_transfers(scheduled, self.turn, self.assumptions, upper, time_limit)
        self.solved += scheduled.trace.peak_memory > self.problem.platform.memory
        if found.schedule is not None and (upper is None or found.schedule.makespan < upper):
            self.best = execution, found.schedule, scheduled
            self.strategies.upper = found.schedule.makespan
        if found.bound is not None and (found.value is None or found.bound < found.value):
            self.open_bound = min(found.bound, self.open_bound or found.bound)

    def _status(self, lower: int, ended: bool) -> SolveStatus:
        if self.best is not None:
            optimal = lower >= self.best[1].makespan
            return SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE
        if ended and self.open_bound is None and self.upper is None:
            return SolveStatus.INFEASIBLE
        return SolveStatus.UNKNOWN
