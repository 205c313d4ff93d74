"""What every model returns, and the bookkeeping of the incumbent and the bound around a solver."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from offcert.core.errors import PlanError
from offcert.core.plan import Kind, Move, Plan
from offcert.core.problem import Problem
from offcert.core.result import SolveStatus
from offcert.core.schedule import Schedule, Transfer
from offcert.core.simulate import simulate
from offcert.core.trace import Trace
from offcert.formulations.combinatorial.relaxations import infeasibility


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """What a model found and what its solver claims.

    Attributes
    ----------
    status : SolveStatus
        ``OPTIMAL`` only if the schedule's makespan equals the lower bound.
    schedule : Schedule or None
        The best one known, the hint included; times are the simulator's, never the solver's.
    lower_bound : int
        Ticks; no schedule of the problem at full resolution is shorter, as far as the solver's
        claim is right.
    details : dict
        JSON values: ``"solver"`` and ``"version"``, settings, sizes, seconds, the solver's own
        words, ``"model_bound"`` (what the model alone proved) if it proved anything.
    """

    status: SolveStatus
    schedule: Schedule | None
    lower_bound: int
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def objective(self) -> int | None:
        """Makespan of the schedule in ticks, or None."""
        return None if self.schedule is None else self.schedule.makespan


class Progress:
    """The best schedule and bound so far, whatever happens to the solver.

    Parameters
    ----------
    problem : Problem
        Its transfers are taken as atomic.
    upper_bound : int, optional
        Ticks; longer schedules are of no interest.
    hint : Schedule, optional
        A valid schedule.
    lower_bound : int
        Ticks, proved elsewhere.

    Attributes
    ----------
    upper : int
        Ticks: the least of the given bound, the hint's makespan and a makespan that some optimal
        schedule does not exceed. Models describe the schedules of at most this length.
    details : dict
        Grows as the model is built and solved.
    """

    def __init__(
        self, problem: Problem, upper_bound: int | None, hint: Schedule | None, lower_bound: int
    ) -> None:
        self.problem = problem
        self.best = hint
        self.lower_bound = max(lower_bound, problem.trace.compute_time)
        self.upper = longest_makespan(problem) if upper_bound is None else upper_bound
        if hint is not None:
            self.upper = min(self.upper, hint.makespan)
        self.details: dict[str, Any] = {"upper_bound": self.upper}
        self._began = time.monotonic()
        lacking = infeasibility(problem)
        self.feasible = lacking is None
        if lacking is not None:
            self.details["infeasible"] = f"{lacking.name} lacks {lacking.lacking} bytes"

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def take_bound(self, ticks: float, margin: float) -> None:
        """Take a solver's bound on the makespans of at most `upper`, in ticks.

        Makespans are integers, so `ticks` less `margin` is rounded up. The model knows nothing of
        longer schedules, so its bound counts up to the first of them only.
        """
        if math.isfinite(ticks):
            claimed = min(math.ceil(ticks - margin), self.upper + 1)
            self.details["model_bound"] = max(claimed, self.details.get("model_bound", 0))
            self.lower_bound = max(self.lower_bound, claimed)

    def nothing_within(self) -> None:
        """Take a proof that no schedule ends by `upper`; one that does refutes the proof."""
        self.details["model_bound"] = self.upper + 1
        if self.best is not None and self.best.makespan <= self.upper:
            self.details["error"] = "the solver excludes a schedule that exists"
            del self.details["model_bound"]
        else:
            self.lower_bound = max(self.lower_bound, self.upper + 1)

    def take_plans(self, plans: Iterable[Plan], exact: bool) -> None:
        """Simulate plans at full resolution and keep the best schedule.

        Parameters
        ----------
        plans : iterable of Plan
            From a solver's solution, in any order.
        exact : bool
            Whether the first of them must be feasible, so that a failure is an error to report.
        """
        for position, plan in enumerate(plans):
            try:
                schedule = simulate(self.problem, plan)
            except PlanError as error:
                if exact and position == 0:
                    self.details["error"] = f"an exact solution could not be re-simulated: {error}"
                continue
            if self.best is None or schedule.makespan < self.best.makespan:
                self.best = schedule

    def outcome(self) -> ModelOutcome:
        """Return what is known now."""
        self.details["seconds"] = round(self.elapsed, 3)
        if not self.feasible:
            return ModelOutcome(SolveStatus.INFEASIBLE, None, self.lower_bound, self.details)
        if self.best is None:
            return ModelOutcome(SolveStatus.UNKNOWN, None, self.lower_bound, self.details)
        if self.lower_bound > self.best.makespan:
            self.details["error"] = (
                f"a bound of {self.lower_bound} contradicts a schedule of {self.best.makespan}"
            )
            self.lower_bound = self.problem.trace.compute_time
        optimal = self.best.makespan == self.lower_bound
        status = SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE
        return ModelOutcome(status, self.best, self.lower_bound, self.details)


def longest_makespan(problem: Problem) -> int:
    """Return a makespan, in ticks, that some optimal schedule does not exceed.

    Executed without waiting, some operation or transfer runs at every time; a tensor leaves once
    and comes back at most once a gap.
    """
    trace = problem.trace
    return trace.compute_time + sum(
        problem.platform.transfer_time(trace.gap_size(gap), kind)
        for gap in range(len(trace.gaps))
        for kind in Kind
    )


def idle_demand(trace: Trace) -> list[int]:
    """Return the bytes held just before each operation starts if nothing is ever evicted."""
    change = [0] * (len(trace) + 1)
    for tensor in trace.tensors:
        change[tensor.uses[0] + 1] += tensor.size
        change[tensor.uses[-1] + 1] -= tensor.size
    held, live = [], 0
    for delta in change[:-1]:
        live += delta
        held.append(live)
    return held


def useful_gaps(trace: Trace, required: Sequence[int]) -> list[int]:
    """Return the gaps that span an operation at which memory can bind.

    Evicting another one frees memory only where everything fits anyway: what is held in idle time
    is held during the operations on both of its sides too.

    Parameters
    ----------
    trace : Trace
        Whose gaps.
    required : sequence of int
        For each operation, bytes that must be absent while it runs.
    """
    return [
        number
        for number, gap in enumerate(trace.gaps)
        if any(required[o] > 0 for o in range(gap.before + 1, gap.after))
    ]


def first_evicted(trace: Trace, evicted: Iterable[int]) -> dict[int, int]:
    """Return, for each tensor with an evicted gap, the first one: the gap its offload names."""
    found: dict[int, int] = {}
    for gap in sorted(evicted):
        found.setdefault(trace.gaps[gap].tensor, gap)
    return found


def rough_plans(
    trace: Trace,
    starts: Sequence[int],
    ends: Sequence[int],
    transfers: Iterable[Transfer],
) -> list[Plan]:
    """Return plans that follow times which need not be feasible at full resolution.

    The first follows the order of claims; the second takes the memory of every prefetch as late as
    the operations behind it in the queue allow. Rounded durations can be 0, so transfers tie: then
    offloads go first, and so does what is needed first.

    Parameters
    ----------
    trace : Trace
        Whose operations and gaps.
    starts, ends : sequence of int
        Of the operations, in any unit of time.
    transfers : iterable of Transfer
        In the same unit.
    """
    queue = sorted(
        transfers, key=lambda t: (t.start, t.end, t.kind is Kind.PREFETCH, trace.gaps[t.gap].after)
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
        follower = next(
            (
                o
                for o, (start, end) in enumerate(zip(starts, ends, strict=True))
                if start > transfer.start or (start == transfer.start and end > start)
            ),
            len(trace) - 1,
        )
        eager.append(Move(Kind.PREFETCH, transfer.gap, min(follower, latest)))
        late.append(Move(Kind.PREFETCH, transfer.gap, latest))
    return [Plan(reversed(eager)), Plan(reversed(late))]
