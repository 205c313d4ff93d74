"""An exact interval model for several devices, solved by OR-Tools' CP-SAT; small problems only.

Operations of no duration take their memory for no time, which this model does not see: its bound
holds, and its decisions are simulated anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.core.result import Bound
from offcert.formulations.common.cpsat import OverrunError, run_cpsat, solver_with
from offcert.formulations.common.outcome import CP_SAT
from offcert.proofs.devices_certificate import MODEL
from offcert.proofs.registry import claimed
from offcert.questions.devices.problem import AdditionPlace, DevicesProblem, GradientJob, JobKind
from offcert.questions.devices.schedule import DevicesPlan, DevicesSchedule, TimedJob
from offcert.questions.devices.simulate import simulate_devices
from offcert.questions.schedule.schedule import Schedule, Transfer

# How far the solver's integer bound may be off, as it reports a float. Assumed.
_MARGIN = 1e-6
# Ticks of the longest horizon; longer ones overflow the solver's arithmetic. Derived.
_LONGEST = 2**45


@dataclass(frozen=True)
class ModelAnswer:
    """The answer of the model: a schedule, a bound, neither or both; and if it was interrupted."""

    schedule: DevicesSchedule | None
    bound: Bound | None
    interrupted: bool = False


def solve_devices(
    problem: DevicesProblem,
    upper_bound: int,
    *,
    lower_bound: int = 0,
    time_limit: float = 10.0,
    workers: int = 1,
    seed: int = 0,
) -> ModelAnswer:
    """Look for schedules no longer than a known one, and for a bound on all.

    Small problems: some hundred operations and transfers in all. `lower_bound` (ticks) is proved
    elsewhere, `time_limit` is in seconds. Nothing is found if the problem's times are too large for
    the solver.
    """
    if upper_bound > _LONGEST:
        return ModelAnswer(None, None)
    model = _Model(problem, lower_bound, upper_bound)
    solver = solver_with(workers, seed)
    found: list[DevicesSchedule] = []

    def take(value: Callable[[Any], int]) -> None:
        try:
            found.append(simulate_devices(problem, model.plan(value)))
        except PlanError:
            return

    try:
        end = run_cpsat(solver, model.model, time_limit, on_solution=take)
    except OverrunError:
        return ModelAnswer(None, None)
    best = min(found, key=lambda each: each.makespan, default=None)
    bound = None
    if end.status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        value = solver.best_objective_bound
        if math.isfinite(value) and value > 0:
            bound = claimed(MODEL, math.ceil(value - _MARGIN), CP_SAT, {})
    return ModelAnswer(best, bound, end.interrupted)


class _Model:
    """The model of one problem."""

    def __init__(self, problem: DevicesProblem, least: int, horizon: int) -> None:
        self.problem = problem
        self.trace = problem.step.trace
        self.horizon = horizon
        self.model = cp_model.CpModel()
        self.makespan = self.model.new_int_var(least, horizon, "makespan")
        self.uses: dict[Kind, list[Any]] = {kind: [] for kind in Kind}
        self.devices = [_DeviceModel(self) for _ in range(problem.devices)]
        self.jobs: dict[GradientJob, Any] = {}
        self.adds: list[Any] = []
        self.barrier = self.time()
        self._add_jobs()
        self._add_precedences()
        self._add_link()
        self._break_symmetry()
        self.model.minimize(self.makespan)

    def time(self) -> Any:
        """Return a new variable for a time."""
        return self.model.new_int_var(0, self.horizon, "")

    def _add_jobs(self) -> None:
        by_gradient: dict[int, list[Any]] = {}
        for device in self.devices:
            self.model.add(self.makespan >= device.ends[-1])
            self.model.add(self.barrier >= device.ends[-1])
        for job in self.problem.jobs:
            start = self.jobs[job] = self.time()
            ticks = self.problem.ticks(job)
            interval = self.model.new_fixed_size_interval_var(start, ticks, "")
            self.model.add(self.makespan >= start + ticks)
            direction = job.kind.direction
            if direction is None:
                self.adds.append(interval)
                by_gradient.setdefault(job.gradient, []).append(interval)
            else:
                self.uses[direction].append(interval)
        for intervals in by_gradient.values():
            self.model.add_no_overlap(intervals)
        if self.adds:
            cores = self.problem.accumulation.cores
            self.model.add_cumulative(self.adds, [1] * len(self.adds), cores)

    def _after(self, job: GradientJob, kind: JobKind, device: int) -> None:
        other = GradientJob(kind, job.gradient, device)
        self.model.add(self.jobs[job] >= self.jobs[other] + self.problem.ticks(other))

    def _add_precedences(self) -> None:
        host = self.problem.accumulation.place is AdditionPlace.HOST
        for job, start in self.jobs.items():
            gradient = self.problem.gradients[job.gradient]
            if not host:
                self.model.add(start >= self.barrier)
            if job.kind is JobKind.SEND:
                self.model.add(start >= self.devices[job.device].ends[gradient.ready])
            elif job.kind is JobKind.FORWARD:
                self._after(job, JobKind.SEND, job.device)
            elif job.kind is JobKind.ADD:
                if host:
                    self._after(job, JobKind.SEND, job.device)
                elif job.device > 0:
                    self._after(job, JobKind.FORWARD, job.device)
            else:
                for device in range(self.problem.devices):
                    self._after(job, JobKind.ADD, device)
                if job.kind is JobKind.RETURN:
                    self.model.add(start >= self.devices[job.device].ends[gradient.last_use])
                    if not host:
                        self._after(job, JobKind.COLLECT, 0)

    def _add_link(self) -> None:
        if self.problem.step.platform.duplex:
            for kind in Kind:
                self.model.add_no_overlap(self.uses[kind])
        else:
            self.model.add_no_overlap([each for kind in Kind for each in self.uses[kind]])

    def _break_symmetry(self) -> None:
        """Devices are alike, so the first gradients may be sent in their order."""
        first_jobs = self.problem.jobs_of(0)
        sends = [self.jobs[job] for job in first_jobs if job.kind is JobKind.SEND]
        for first, second in pairwise(sends):
            self.model.add(first <= second)

    def plan(self, value: Callable[[Any], int]) -> DevicesPlan:
        """Return a solution's decisions."""
        jobs = [
            TimedJob(job, value(start), value(start) + self.problem.ticks(job))
            for job, start in self.jobs.items()
        ]
        steps = [device.schedule(value) for device in self.devices]
        return DevicesPlan.of(self.problem, DevicesSchedule(steps, jobs))


class _DeviceModel:
    """Operations, transfers and memory of one device."""

    def __init__(self, whole: _Model) -> None:
        self._whole = whole
        self._model = whole.model
        self._trace = whole.trace
        self._platform = whole.problem.step.platform
        self._memory: list[tuple[Any, int]] = []
        self.starts = [whole.time() for _ in self._trace.operations]
        self.ends = [
            start + ticks for start, ticks in zip(self.starts, self._trace.durations, strict=True)
        ]
        self._offloads: dict[int, tuple[Any, Any]] = {}
        self._prefetches: list[tuple[Any, Any]] = []
        for end, start in zip(self.ends, self.starts[1:], strict=False):
            self._model.add(start >= end)
        self._move()
        self._evict_enough()
        self._hold()
        intervals, sizes = zip(*self._memory, strict=True) if self._memory else ((), ())
        self._model.add_cumulative(intervals, sizes, self._platform.memory)

    def _end(self, operation: int) -> Any:
        return 0 if operation < 0 else self.ends[operation]

    def _transfer(self, size: int, kind: Kind, present: Any) -> Any:
        start = self._whole.time()
        ticks = self._platform.transfer_time(size, kind)
        self._whole.uses[kind].append(
            self._model.new_optional_fixed_size_interval_var(start, ticks, present, "")
        )
        return start

    def _move(self) -> None:
        for gap, size in zip(self._trace.gaps, self._trace.gap_sizes, strict=True):
            if gap.tensor not in self._offloads:
                leaves = self._model.new_bool_var("")
                start = self._transfer(size, Kind.OFFLOAD, leaves)
                written = self._trace.tensors[gap.tensor].uses[0]
                self._model.add(start >= self._end(written)).only_enforce_if(leaves)
                self._offloads[gap.tensor] = leaves, start
            evicted = self._model.new_bool_var("")
            self._model.add_implication(evicted, self._offloads[gap.tensor][0])
            self._prefetches.append((evicted, self._transfer(size, Kind.PREFETCH, evicted)))
        for tensor, (leaves, _) in self._offloads.items():
            rows = zip(self._trace.gaps, self._prefetches, strict=True)
            some = [each[0] for gap, each in rows if gap.tensor == tensor]
            self._model.add_bool_or([*some, leaves.negated()])

    def _evict_enough(self) -> None:
        """Evict at least what must be absent at each operation, also at those of no duration."""
        memory = self._platform.memory
        for operation, demand in enumerate(self._trace.demand):
            if demand > memory:
                absent = sum(
                    self._trace.gap_size(gap) * self._prefetches[gap][0]
                    for gap in self._trace.gaps_over[operation]
                )
                self._model.add(absent >= demand - memory)

    def _hold(self) -> None:
        """Say when each tensor is on the device."""
        rows = zip(self._trace.operations, self.starts, self.ends, strict=True)
        for operation, start, end in rows:
            self._occupy(start, end, operation.workspace)
        numbers = self._trace.gap_numbers
        for index, tensor in enumerate(self._trace.tensors):
            if tensor.uses[0] >= 0:
                self._occupy(self.starts[tensor.uses[0]], self.ends[tensor.uses[0]], tensor.size)
            for before, after in zip(tensor.uses, tensor.uses[1:], strict=False):
                self._occupy(self.starts[after], self.ends[after], tensor.size)
                gap = numbers.get((index, before, after))
                if gap is None:
                    self._occupy(self._end(before), self.starts[after], tensor.size)
                else:
                    self._hold_in_gap(gap, before, after, tensor.size)

    def _hold_in_gap(self, number: int, before: int, after: int, size: int) -> None:
        evicted, prefetch = self._prefetches[number]
        tensor = self._trace.gaps[number].tensor
        released, back = self._whole.time(), self._whole.time()
        _, offload = self._offloads[tensor]
        copied = offload + self._platform.transfer_time(size, Kind.OFFLOAD)
        arrived = prefetch + self._platform.transfer_time(size, Kind.PREFETCH)
        self._model.add(released >= self._end(before))
        self._model.add(back >= released)
        self._model.add(back <= self.starts[after])
        self._model.add(released == back).only_enforce_if(evicted.negated())
        self._model.add(released >= copied).only_enforce_if(evicted)
        self._model.add(back == prefetch).only_enforce_if(evicted)
        self._model.add(arrived <= self.starts[after]).only_enforce_if(evicted)
        self._occupy(self._end(before), released, size)
        self._occupy(back, self.starts[after], size)

    def _occupy(self, start: Any, end: Any, size: int) -> None:
        if size:
            length = self._whole.time()
            self._memory.append((self._model.new_interval_var(start, length, end, ""), size))

    def schedule(self, value: Callable[[Any], int]) -> Schedule:
        """Return the device's schedule in a solution."""
        starts = [value(start) for start in self.starts]
        ends = [start + ticks for start, ticks in zip(starts, self._trace.durations, strict=True)]
        transfers, left = [], set()
        for number, (evicted, prefetch) in enumerate(self._prefetches):
            if not value(evicted):
                continue
            tensor, size = self._trace.gaps[number].tensor, self._trace.gap_sizes[number]
            begun = value(prefetch)
            ticks = self._platform.transfer_time(size, Kind.PREFETCH)
            transfers.append(Transfer(Kind.PREFETCH, number, begun, begun + ticks))
            if tensor not in left:
                left.add(tensor)
                begun = value(self._offloads[tensor][1])
                ticks = self._platform.transfer_time(size, Kind.OFFLOAD)
                transfers.append(Transfer(Kind.OFFLOAD, number, begun, begun + ticks))
        return Schedule(starts, ends, transfers)
