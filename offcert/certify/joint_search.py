"""The state of a search in which computations may run again, or memory is minimised."""

from __future__ import annotations

from dataclasses import replace

from offcert.certify.search import Search, UnsoundError
from offcert.core.check import check
from offcert.core.execution import Execution
from offcert.core.problem import Minimise, Recompute
from offcert.core.result import Result
from offcert.core.schedule import Schedule
from offcert.verify.execution import legality_faults


class JointSearch(Search):
    """Collects executions with their schedules, and bounds.

    Every execution passes the checker of executions and its schedule that of schedules before they
    count. Parameters are those of `Search`.
    """

    execution: Execution | None = None
    memory: int | None = None

    @property
    def objective(self) -> int | None:
        """Makespan of the best schedule in ticks, or the bytes of the one that takes least."""
        if self.problem.minimise is Minimise.MEMORY:
            return self.memory
        return super().objective

    def offer(self, schedule: Schedule, memory: int | None = None) -> bool:
        """Take a schedule of the execution in which everything runs once if it is better.

        Raises
        ------
        UnsoundError
            If it is no schedule, or beats a proved lower bound.
        """
        from offcert.core.strategy import Strategy

        network = self.problem.computed
        if network is None:
            return self.offer_executed(None, schedule, memory)
        return self.offer_executed(Strategy.plain(network).expand(network), schedule, memory)

    def offer_executed(
        self, execution: Execution | None, schedule: Schedule, memory: int | None = None
    ) -> bool:
        """Take an execution and its schedule if they are better than what is known.

        Of a captured step only executions that its program can be made to carry out are taken.

        Parameters
        ----------
        execution : Execution or None
            What runs; None if the problem leaves that no choice.
        schedule : Schedule
            Of ``problem.executed(execution)``.
        memory : int, optional
            Bytes within which it stays; by default the problem's limit. Where memory is minimised
            these are the objective.

        Raises
        ------
        UnsoundError
            If it is no legal execution, no schedule of it, or beats a proved lower bound.
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
        problem = self.problem if execution is None else self.problem.executed(execution)
        if not self._admits(value, lambda: check(problem.with_memory(memory), schedule)):
            return False
        deadline = self.problem.deadline
        if deadline is not None and schedule.makespan > deadline:
            return False
        self.execution, self.schedule = execution, schedule
        self.memory = memory if least_bytes else None
        return self._took()

    def _can_be_carried_out(self, execution: Execution) -> bool:
        """Whether the runtime can execute it, if the problem is a captured step of a program."""
        captured = "capture" in (self.problem.source or {})
        return not captured or not execution.repeated or execution.program is not None

    def _require_legal(self, execution: Execution | None) -> None:
        faults = [] if execution is None else legality_faults(self.problem, execution)
        if faults:
            raise UnsoundError(f"{self.step} returned an illegal execution: {faults[0]}")

    def result(self) -> Result:
        """Return what is known now."""
        return replace(
            super().result(),
            execution=self.execution,
            memory=self.memory,
            minimise=self.problem.minimise,
        )
