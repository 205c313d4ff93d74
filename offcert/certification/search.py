"""The states of searches: the best schedule or addresses so far, the bounds on them, the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from offcert.certification.running import Running
from offcert.certification.running import SearchProgress as SearchProgress
from offcert.certification.running import UnsoundError as UnsoundError
from offcert.certification.warm import warm_plans
from offcert.core.errors import PlanError
from offcert.core.execution import Execution
from offcert.core.result import Infeasibility
from offcert.core.strategy import Strategy
from offcert.proofs.certificate import Certificate
from offcert.proofs.placement_certificate import PlacementCertificate, placement_kind_of
from offcert.proofs.questions import PLACEMENT, SCHEDULE
from offcert.proofs.registry import cross_attested
from offcert.questions.placement.problem import (
    Placement,
    PlacementOutcome,
    PlacementProblem,
    PlacementResult,
)
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.questions.schedule.simulate import Simulator, simulate
from offcert.verification.execution import legality_faults


def chooses_execution(problem: Problem) -> bool:
    """Return whether computations may run again or memory is minimised, which has own ladders."""
    return problem.recompute is not Recompute.NONE or problem.minimise is Minimise.MEMORY


class Search(Running[Certificate]):
    """Collects schedules and bounds; every schedule passes a checker before it counts.

    ``schedule`` is the best one of whole transfers, ``fluid`` the best one in pieces. Where
    computations may run again, ``execution`` is what the schedule schedules, which passes a checker
    of its own; where memory is minimised, ``memory`` is the bytes within which it stays.

    Where the directions of the link slow each other down, ``problem`` is the one in which they do
    not, which methods are given: their bounds hold for ``asked``, the one that is to be solved, and
    their schedules are timed again for it before they count.

    A bound that rests on a solver's word ends the search only if `attested`.
    """

    question = SCHEDULE

    def __init__(
        self,
        problem: Problem,
        time_limit: float,
        target_gap: float = 0.0,
        progress: Callable[[SearchProgress], None] | None = None,
        keep: Callable[[Search], None] | None = None,
        attested: bool = True,
        counts_compiling: bool = False,
    ) -> None:
        self._attested = attested
        super().__init__(time_limit, progress, keep, counts_compiling)
        self.asked = problem
        slows, platform = problem.platform.slows, problem.platform.alone
        self.problem = replace(problem, platform=platform) if slows else problem
        self.target_gap = Fraction(target_gap)
        self.schedule: Schedule | None = None
        self.fluid: FluidSchedule | None = None
        self.execution: Execution | None = None
        self.memory: int | None = None
        self.infeasibility: Infeasibility | None = None
        self._simulator = Simulator(self.asked)
        # A makespan as good as the least: the search ends with it, or a proof that none has it.
        self.enough: int | None = None
        with self.untimed():
            warm_plans()

    @property
    def best(self) -> Schedule | FluidSchedule | None:
        """The shortest schedule; one of whole transfers if there are two."""
        if self.schedule is None or self.fluid is None:
            return self.schedule or self.fluid
        return self.fluid if self.fluid.makespan < self.schedule.makespan else self.schedule

    @property
    def objective(self) -> int | None:
        """Makespan of the best schedule in ticks, or the bytes of the one that takes least."""
        if self.problem.minimise is Minimise.MEMORY:
            return self.memory
        return None if self.best is None else self.best.makespan

    @property
    def impossible(self) -> bool:
        """Whether it is known that there is no schedule."""
        return self.infeasibility is not None

    @property
    def goal(self) -> int:
        """The makespan at which the target gap is reached with the present bound."""
        if self.target_gap >= 1:
            return 2**62
        bound = self.lower_bound if self._attested else self.proved_bound
        return max(int(bound / (1 - self.target_gap)), self.enough or 0)

    @property
    def done(self) -> bool:
        """Whether the target is reached or the time is over."""
        met = self.objective is not None and self.objective <= self.goal
        met = met or (self.enough is not None and self.proved_bound > self.enough)
        return met or self.late or self.impossible

    def offer(self, schedule: Schedule, memory: int | None = None) -> bool:
        """Take a schedule in which everything runs once if it is better.

        Where nothing else is open, idle time is squeezed out of it before. It stays within `memory`
        bytes, by default the problem's limit. Raises `UnsoundError` if it is not a schedule of the
        problem, or beats a proved lower bound.
        """
        if chooses_execution(self.problem):
            network = self.problem.computed
            plain = None if network is None else Strategy.plain(network).expand(network)
            return self.offer_executed(plain, schedule, memory)
        best = schedule
        try:
            squeezed = self._simulator.run(schedule.plan(self.problem.trace))
            if self.asked.platform.slows or squeezed.makespan <= schedule.makespan:
                best = squeezed
        except PlanError:
            if self.asked.platform.slows:
                return False
        if not self._admits(best.makespan, self.asked, best):
            return False
        self.schedule = best
        return self._took()

    def offer_executed(
        self, execution: Execution | None, schedule: Schedule, memory: int | None = None
    ) -> bool:
        """Take an execution and its schedule if they are better than the best so far.

        Of a captured step only executions that its program can be made to carry out are taken. The
        execution is None if the problem leaves no choice; the schedule stays within `memory` bytes,
        by default the problem's limit, which are the objective where memory is minimised. Raises
        `UnsoundError` if it is no legal execution, no schedule of it, or beats a proved lower
        bound.
        """
        least_bytes = self.problem.minimise is Minimise.MEMORY
        memory = self.problem.platform.memory if memory is None else memory
        value = memory if least_bytes else schedule.makespan
        if self.objective is not None and value >= self.objective:
            return False
        if self.problem.recompute is Recompute.NONE:
            execution = None
        if execution is not None and not self._can_be_carried_out(execution):
            return False
        self._require_legal(execution)
        problem = self.asked if execution is None else self.asked.executed(execution)
        problem = problem.with_memory(memory)
        if problem.platform.slows:
            try:
                schedule = simulate(problem, schedule.plan(problem.trace))
            except PlanError:
                return False
        value = memory if least_bytes else schedule.makespan
        if not self._admits(value, problem, schedule):
            return False
        deadline = self.problem.deadline
        if deadline is not None and schedule.makespan > deadline:
            return False
        self.execution, self.schedule = execution, schedule
        self.memory = memory if least_bytes else None
        return self._took()

    def exchange(self, schedule: Schedule) -> None:
        """Replace the best schedule by another one of the same execution that takes no longer.

        Raises `UnsoundError` if it is not a schedule of the problem, or takes longer.
        """
        problem = self.executed
        faults = self._faults(problem, schedule)
        if self.schedule is None or schedule.makespan > self.schedule.makespan:
            faults = [*faults, "it takes longer than the one that it should replace"]
        if faults:
            raise UnsoundError(f"{self._step} returned an invalid schedule: {faults[0]}")
        self.schedule = schedule
        self._took()

    @property
    def executed(self) -> Problem:
        """The problem whose schedule the best one is, with the memory within which it stays."""
        problem = self.asked if self.execution is None else self.asked.executed(self.execution)
        return problem if self.memory is None else problem.with_memory(self.memory)

    def _can_be_carried_out(self, execution: Execution) -> bool:
        """Whether the runtime can execute it, if the problem is a captured step of a program."""
        captured = "capture" in (self.problem.source or {})
        return not captured or not execution.repeated or execution.program is not None

    def _require_legal(self, execution: Execution | None) -> None:
        faults = [] if execution is None else legality_faults(self.problem, execution)
        if faults:
            raise UnsoundError(f"{self.step} returned an illegal execution: {faults[0]}")

    def offer_fluid(self, schedule: FluidSchedule) -> bool:
        """Take a schedule whose transfers are in pieces if it is better.

        Raises `UnsoundError` if it is not a schedule of the problem, or beats a proved lower bound.
        """
        if not self._admits(schedule.makespan, self.problem, schedule):
            return False
        self.fluid = schedule
        return self._took()

    def _certificate(self, **origin: Any) -> Certificate:
        return Certificate(self.asked, self.result(), **origin)

    def result(self) -> Result:
        """Return the best schedule, the bounds and the status so far."""
        status = self.status_by(self.impossible)
        # Of what does not exist nothing is the least.
        bounds = () if self.infeasibility else tuple(cross_attested(self.bounds))
        return Result(
            status,
            self.best,
            bounds,
            self.seconds,
            self.infeasibility,
            self.execution,
            self.memory,
            self.problem.minimise,
        )


class PlacementSearch(Running[PlacementCertificate]):
    """Collects addresses and bounds; every placement passes the checker before it counts.

    ``placement`` is the one with the smallest pool, within the capacity or not.
    """

    question = PLACEMENT

    _least, _found = "no pool is smaller than", "one has"
    _value_of_found = "the pool of a valid placement, {} bytes"

    def __init__(
        self,
        problem: PlacementProblem,
        time_limit: float,
        progress: Callable[[SearchProgress], None] | None = None,
        keep: Callable[[PlacementSearch], None] | None = None,
    ) -> None:
        super().__init__(time_limit, progress, keep)
        self.problem = problem
        self.placement: Placement | None = None
        self._unlimited = problem.with_capacity(None)

    @property
    def capacity(self) -> int | None:
        """Bytes of the pool, if its size is given."""
        return self.problem.capacity

    @property
    def objective(self) -> int | None:
        """Bytes of the smallest pool that was found."""
        return None if self.placement is None else self.placement.pool(self.problem)

    @property
    def goal(self) -> int:
        """Bytes of a pool that ends the search."""
        return max(self.lower_bound, self.capacity or 0)

    @property
    def infeasible(self) -> bool:
        """Whether no placement fits the capacity, as far as the bounds are right."""
        return self.capacity is not None and self.lower_bound > self.capacity

    @property
    def done(self) -> bool:
        """Whether nothing is left to be found, or the time is over."""
        met = self.objective is not None and self.objective <= self.goal
        return met or self.infeasible or self.late

    def offer(self, placement: Placement) -> bool:
        """Take a placement if its pool is smaller.

        Raises `UnsoundError` if residences overlap, or the pool is smaller than a proved lower
        bound.
        """
        pool = placement.pool(self.problem)
        if not self._admits(pool, self._unlimited, placement, "invalid addresses"):
            return False
        self.placement = placement
        return self._took()

    def take(self, outcome: PlacementOutcome) -> None:
        """Take over a search's placement and bounds."""
        if outcome.placement is not None:
            self.offer(outcome.placement)
        for bound in outcome.bounds:
            self.add(bound)

    def result(self) -> PlacementResult:
        """Return the smallest pool and the bounds so far; a placement counts only if it fits."""
        fits = self.capacity is None or (self.objective or 0) <= self.capacity
        bounds = tuple(cross_attested(self.bounds, placement_kind_of))
        placement = self.placement if fits else None
        return PlacementResult.of(self.problem, placement, bounds, self.seconds)

    def _certificate(self, **origin: Any) -> PlacementCertificate:
        return PlacementCertificate(self.problem, self.result(), **origin)
