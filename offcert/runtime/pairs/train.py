"""Plain and planned training side by side: the proof that a plan changes nothing but memory."""

from __future__ import annotations

import platform as machine
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from offcert._version import __version__
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.questions.schedule.training_record import (
    Course,
    HostMemory,
    Moved,
    StepNumbers,
    TrainingRecord,
)
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.counting import host_memory_of
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.hardware.model import MATH
from offcert.runtime.pairs.step_pair import StepPair, Taken, seeded
from offcert.runtime.pairs.train_device import (
    DeviceKind,
    Hosted,
    HostKind,
    TrainDevice,
    hosted,
    require_host,
    train_device,
)
from offcert.runtime.pairs.training_report import TrainReport
from offcert.runtime.plan.step_plan import StepPlan, step_plan
from offcert.runtime.streaming.step_events import forecast
from offcert.runtime.streaming.synchronous import forecast_at_once
from offcert.runtime.workloads.standard_step import standard_step
from offcert.runtime.workloads.turns import reproducible
from offcert.runtime.workloads.workload import Workload


def training_record(
    problem: Problem,
    plan: object,
    step_plan: StepPlan,
    device: TrainDevice,
    taken: Sequence[Taken],
    host: HostMemory,
) -> TrainingRecord:
    """Return a plan beside measurements of it.

    What is shown is the step of median time, the first one left out if there are others: it warms
    up. Its live bytes are those of the last step before it in which they were counted, and what a
    real device's allocator says is about the first step, before which its cache was emptied. A plan
    that is a schedule tells the certified makespan.
    """
    shown = _shown(taken)
    planned, measured = planned_course(step_plan), None
    if shown is not None:
        times = taken[shown].times
        assert times is not None
        counted = [each.report for each in taken[: shown + 1] if each.report.at_begin]
        measured = Course(times)
        if counted:
            last = counted[-1]
            measured = Course(times, last.at_begin, last.at_end, last.peaks)
    return TrainingRecord(
        problem.name,
        problem_digest(problem),
        device.kind,
        device.name,
        {"offcert": __version__, "python": machine.python_version()} | device.versions,
        problem.platform.duplex,
        problem.platform.memory,
        problem.trace.peak_memory,
        plan.makespan if isinstance(plan, Schedule) else None,
        tuple(operation.name for operation in step_plan.trace.operations),
        _moved(step_plan, planned, measured),
        planned,
        measured,
        tuple(_numbers(each) for each in taken),
        shown,
        host,
        None if shown is None else taken[0 if device.is_real else shown].memory,
    )


def planned_course(step_plan: StepPlan) -> Course:
    """Return the schedule and the memory of a plan if everything takes its planned time."""
    prediction = step_plan.prediction
    if step_plan.timetable is None:
        schedule = forecast_at_once(step_plan.problem, prediction)
    else:
        schedule = forecast(step_plan.problem, step_plan.timetable)
    return Course(schedule, prediction.at_begin, prediction.at_end, prediction.peaks)


def _shown(taken: Sequence[Taken]) -> int | None:
    timed = [
        (each.comparison.time, index)
        for index, each in enumerate(taken)
        if each.comparison.time is not None
    ]
    if len(timed) > 1:
        timed = [(time, index) for time, index in timed if index > 0]
    return sorted(timed)[(len(timed) - 1) // 2][1] if timed else None


def _moved(step_plan: StepPlan, *courses: Course | None) -> dict[int, Moved]:
    trace = step_plan.trace
    gaps = {
        transfer.gap
        for course in courses
        if course is not None
        for transfer in course.schedule.transfers
        if transfer.gap >= 0
    }
    return {
        gap: Moved(trace.tensors[trace.gaps[gap].tensor].name, trace.gap_size(gap))
        for gap in sorted(gaps)
    }


def _numbers(each: Taken) -> StepNumbers:
    found = each.comparison
    return StepNumbers(
        found.time,
        found.late_bytes,
        found.unfreed_bytes,
        found.outside_bytes,
        found.unforeseen_bytes,
        len(found.differences),
        found.deviation,
    )


def train(
    problem: Problem,
    schedule: Schedule | FluidSchedule | Plan,
    *,
    steps: int = 3,
    seed: int = 0,
    model: nn.Module | None = None,
    step: TrainingStep | None = None,
    progress: Callable[[int, int], None] | None = None,
    count: bool = True,
    execution: Execution | None = None,
    device: str | Device = DeviceKind.AUTO,
    host: str = HostKind.NONE,
    host_memory: int | str | None = None,
    host_spill: bool | str = False,
    announce: Callable[[HostMemory], None] | None = None,
) -> TrainReport:
    """Train the problem's network with and without the plan from the same state, and compare.

    Both start from the same weights and, at every step, the same batch and random state, so dropout
    draws the same masks. SGD with momentum trains them unless the step has an optimiser.

    Parameters
    ----------
    problem : Problem
        Its source names the network or the training step.
    schedule : Schedule or Plan
        The schedule that the planned training follows.
    steps, seed : int
        Optimiser steps, at least 1; seed of the batches and the dropout masks.
    model, step : nn.Module, TrainingStep, optional
        The network or the training step, if the problem's source does not name it; it is trained
        (the plain way). If a step's batch is a callable, every step has a fresh one.
    host_memory, host_spill
        As for `offcert.training.offload`.
    progress : callable, optional
        Called with the number of finished steps and `steps`.
    count : bool
        Count live bytes and compare them with the prediction at every event.
    execution : Execution, optional
        The execution that is scheduled, if parts of the network run again: training carries it out.
    device : str or Device
        ``"auto"``: where the model is. ``"cpu"``: tensors move at once, between two operations.
        ``"simulated"``: the plan is carried out on the streams of a simulated device, which has the
        rates of the problem's platform and, if live bytes are counted, its memory; times are
        virtual. ``"cuda"``: on those of a CUDA device; the two models take turns there and are
        compared on the host, cuDNN is asked for reproducible algorithms, and live bytes are counted
        in the first step only, since that takes time.
    host : str
        ``"none"``: the host of a simulated device takes no time. ``"real"``: further steps are
        taken there in the end, behind the host at hand (`offcert.runtime.pairs.train_device`).
    announce : callable, optional
        Called with what the plan needs of the host, before the first step.

    Raises
    ------
    InputError
        If the network cannot be rebuilt or is not the one that was planned, or the schedule moves
        tensors in pieces.
    PlanError
        If the plan does not make sense or exceeds the memory.
    """
    require_host(host, device)
    if steps < 1:
        raise InputError(f"steps must be at least 1, not {steps}")
    if model is not None and step is not None:
        raise InputError("only one of model and step can be given")
    options = FollowOptions(count=count, host_memory=host_memory, host_spill=host_spill)
    told = progress or (lambda done, total: None)
    plain = _plain_step(problem, model, step)
    _require_captured(problem)
    where = train_device(device, plain.model, problem, count=count)
    made = step_plan(problem, schedule, execution, streams=where.streams is not None)
    (made,) = options.within_host([made])
    needed = host_memory_of([made], options.host_limit)
    if announce is not None:
        announce(needed)
    pair = StepPair(plain, made, where, options)
    try:
        with seeded(seed), reproducible(where.tensors):
            for index in range(steps):
                pair.compare()
                told(index + 1, steps)
            behind = None
            if host == HostKind.REAL:
                behind = hosted(problem, execution, pair.planned, made, options)
    finally:
        # The model is the caller's, also if a step of it has failed.
        pair.bring_home()
    return _report(problem, schedule, made, where, pair, needed, behind)


def _require_captured(problem: Problem) -> None:
    source = problem.source or {}
    if "capture" not in source and source.get("clock", "stages") == "stages":
        raise InputError(
            f"{problem.name} is a problem of stages, for the papers' algorithms: to train by a "
            "plan, profile with the clock modules or operators"
        )


def _report(
    problem: Problem,
    schedule: Schedule | FluidSchedule | Plan,
    made: StepPlan,
    where: TrainDevice,
    pair: StepPair,
    host: HostMemory,
    behind: Hosted | None,
) -> TrainReport:
    prediction, reports = made.prediction, [each.report for each in pair.taken]
    counted = next((each for each in reversed(reports) if each.at_begin), reports[-1])
    pinning = reports[-1].pinning
    return TrainReport(
        problem.name,
        problem.platform.memory,
        problem.trace.peak_memory,
        prediction.peak,
        tuple(each.comparison for each in pair.taken),
        tuple(operation.name for operation in made.trace.operations),
        prediction.at_begin,
        prediction.at_end,
        counted.at_begin,
        counted.at_end,
        counted.peaks,
        made.host.pool,
        made.host.load,
        where.kind,
        training_record(problem, schedule, made, where, pair.taken, host),
        *((0, 0.0) if pinning is None else (pinning.registered, pinning.seconds)),
        hosted=behind,
    )


def _plain_step(
    problem: Problem, model: nn.Module | None, step: TrainingStep | None
) -> TrainingStep:
    if step is not None:
        return step
    workload = Workload.from_source(problem.source)
    if workload.input is None and (model is not None or workload.model is None):
        raise InputError("the problem is one of a TrainingStep: pass it as step")
    made = workload.load() if model is None else model
    built = made if isinstance(made, TrainingStep) else standard_step(made, workload)
    if (problem.source or {}).get("attention") != MATH:
        return built

    def by_products(model: Any, inputs: Any) -> torch.Tensor | None:
        # The card of the plan has no kernel for its attention; the device here may have one.
        with sdpa_kernel(SDPBackend.MATH):
            return built.run(model, inputs)

    return replace(built, run=by_products)
