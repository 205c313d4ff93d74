"""`TrainingRecord` of steps that were taken under a plan."""

from __future__ import annotations

import platform as machine
from collections.abc import Sequence

from offcert._version import __version__
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.training_record import (
    Course,
    HostMemory,
    Moved,
    StepNumbers,
    TrainingRecord,
)
from offcert.runtime.pairs.step_pair import Taken
from offcert.runtime.pairs.train_device import TrainDevice
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.streaming.step_events import forecast
from offcert.runtime.streaming.synchronous import forecast_at_once


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
