"""Problems whose computations may run again, programs for them, and plain training beside it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from torch import nn

from offcert.core.carried.carry import Carried, carry
from offcert.core.platform import Platform
from offcert.core.units import Units
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.schedule import Schedule
from offcert.runtime.capture import Capture, capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.offload import Offload
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.place import program_of
from offcert.runtime.plan.predict import predict
from offcert.runtime.plan.reports import StepReport
from offcert.runtime.plan.step_plan import step_plan
from offcert.runtime.segments.placed import Kept, PlacedProgram, PlacedSegment
from support.runtime.captured import (
    Loop,
    _train,
    evict_everything,
    require_same,
    seeded,
    standard_loop,
)


class Unwatched(list):
    """A list that is not put back when what appends to it runs again: it counts as ours."""

    __module__ = "offcert.tests"


def segment(path: str, *kept: str, call: int = 0, inner: Any = (), children: Any = None) -> Any:
    """Return a segment that keeps what modules compute, given by their paths."""
    ticks = tuple(each if isinstance(each, Kept) else Kept("enter", each) for each in kept)
    return PlacedSegment(path, call, children, ticks, tuple(inner))


def line(*calls: Any, kept: Any = (), inner: Any = ()) -> PlacedSegment:
    """Return a segment of calls in a line, given by paths, or by paths and numbers of calls."""
    made = tuple(each if isinstance(each, tuple) else (each, 0) for each in calls)
    path, call = made[0]
    return PlacedSegment(
        path,
        call,
        kept=tuple(each if isinstance(each, Kept) else Kept("enter", each) for each in kept),
        inner=tuple(inner),
        line=made,
    )


def again(*segments: Any) -> PlacedProgram:
    """Return a program of segments, or of paths."""
    return PlacedProgram(segment(each) if isinstance(each, str) else each for each in segments)


def problem_of(step: TrainingStep, tensors: str = "auto") -> tuple[Problem, Capture]:
    """Capture a step, without times; the memory is that of plain training."""
    captured = capture(step, tensors=tensors)
    assert captured.network is not None
    problem = Problem(
        "test",
        captured.network,
        Platform(captured.trace.peak_memory, Fraction(1)),
        units=Units("ns", "B"),
        source={"clock": "modules", "capture": captured.to_json()},
        recompute=Recompute.ANY,
    )
    return problem, captured


def carried_by(captured: Capture, placed: PlacedProgram) -> Carried:
    """Return what really runs, without running it."""
    found = program_of(placed, captured.ranges, captured.ticks)
    assert captured.network is not None
    assert captured.record is not None
    return carry(captured.network, found, captured.ranges, captured.record, captured.ticks)


def live(trace: Any) -> tuple[list[int], list[int]]:
    """Return the peak of each operation of a trace, and the live bytes after it."""
    held = sum(tensor.size for tensor in trace.tensors if tensor.uses[0] < 0)
    peaks, ends = [], []
    for number, operation in enumerate(trace.operations):
        held += sum(t.size for t in trace.tensors if t.uses[0] == number)
        peaks.append(held + operation.workspace)
        held -= sum(t.size for t in trace.tensors if t.uses[-1] == number)
        ends.append(held)
    return peaks, ends


@dataclass
class Joint:
    """What a comparison found.

    Attributes
    ----------
    offload : Offload
        After its context has ended.
    model : nn.Module
        That followed the plan.
    reports : list of StepReport
        One after every turn of the loop.
    carried : Carried
        What was to run.
    plain_peak : int
        Of plain training.
    times : list of Schedule or None
        One after every turn of the loop, if streams moved tensors.
    """

    offload: Offload
    model: nn.Module
    carried: Carried
    plain_peak: int
    reports: list[StepReport] = field(default_factory=list)
    times: list[Schedule | None] = field(default_factory=list)

    def require_followed(self, *, exactly: bool = True) -> Joint:
        """Assert that every step did what was predicted: to the byte, or with no more bytes."""
        for report in self.reports:
            assert report.planned, report.deviation
            assert report.unfreed == (), report.unfreed
            assert report.unforeseen == ()
            assert report.late_bytes == 0
            assert report.prediction is not None
            if not exactly and not report.peaks:
                # Its backward pass ran where nobody counted.
                continue
            begins = zip(report.at_begin, report.prediction.at_begin, strict=True)
            assert [n for n, (found, bound) in enumerate(begins) if found > bound] == []
            peaks = zip(report.peaks, report.prediction.peaks, strict=True)
            assert [n for n, (found, bound) in enumerate(peaks) if found > bound] == []
            assert report.follows_prediction or not exactly
            assert report.within_limit
        assert dict(self.offload.steps) == {"planned": len(self.reports)}
        return self


def compare_joint(
    step: TrainingStep,
    placed: PlacedProgram,
    *,
    plan: Callable[[Problem], Plan] = evict_everything,
    loop: Loop | None = None,
    steps: int = 3,
    tensors: str = "auto",
    prepare: Callable[[nn.Module], Any] | None = None,
    count: bool = True,
    device: Callable[[Problem], Device] | None = None,
) -> Joint:
    """Train a plain copy and, under a joint plan, the model of the step; all must be equal.

    `device` gives the one whose streams move tensors; by default they move at once.
    """
    loop = loop or standard_loop(step)
    plain = copy.deepcopy(step.model)
    with seeded(3):
        problem, captured = problem_of(step, tensors)
    carried = carried_by(captured, placed)
    executed = problem.executed(carried.execution)
    chosen = plan(executed)
    # What everything that may leave leaves behind.
    problem = problem.with_memory(predict(executed.trace, chosen).peak)
    on = None if device is None else device(problem)
    made = step_plan(problem, chosen, carried.execution, streams=on is not None)
    context = Offload(
        step.model, [made], FollowOptions(count=count, device=on, timed=on is not None)
    )
    outcome = Joint(context, step.model, carried, captured.trace.peak_memory)
    expected = list(_train(plain, step, loop, steps, None, prepare))
    found = []
    with context:
        for state in _train(step.model, step, loop, steps, None, prepare):
            found.append(state)
            outcome.reports.append(context.report)
            outcome.times.append(context.times)
    assert len(found) == len(expected) == steps
    for theirs, ours in zip(expected, found, strict=True):
        require_same(theirs, ours)
    return outcome
