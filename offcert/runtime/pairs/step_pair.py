"""`StepPair`: a training step and its copy under a plan, which take every step together."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from offcert.core.errors import InputError, OffcertError
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.training_record import AllocatorPeaks
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import Offload
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.pairs.comparison import Comparison, Pair
from offcert.runtime.pairs.train_device import TrainDevice
from offcert.runtime.pairs.training_report import Deviation, StepComparison, deviations
from offcert.runtime.plan.reports import StepReport
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.guard import OffloadWarning, one_line
from offcert.runtime.workloads.standard_step import device_of
from offcert.runtime.workloads.turns import Turns


@dataclass(frozen=True)
class Taken:
    """The measurements of one planned step: its report, the comparison with the plain one, times.

    `memory` are peaks of its device's allocator.
    """

    report: StepReport
    comparison: StepComparison
    times: Schedule | None
    memory: AllocatorPeaks | None


@dataclass(frozen=True)
class Training:
    """How both are trained: by SGD, where a step has no optimiser, and under which options."""

    learning_rate: float = 0.01
    momentum: float = 0.9
    options: FollowOptions = field(default_factory=FollowOptions)

    @property
    def count(self) -> bool:
        """Whether live bytes are counted."""
        return self.options.count is not False


class StepPair:
    """A training step, and a copy of it that follows a plan, trained one after the other."""

    def __init__(
        self, plain: TrainingStep, planned: StepPlan, device: TrainDevice, training: Training
    ) -> None:
        self.taken: list[Taken] = []
        self._plain = plain
        self._step_plan = planned
        self._device = device
        self._training = training
        self._home = device_of(plain.model)
        self._turns = Turns(device.tensors)
        # Of a plan that counts and of one that does not: the hooks of neither are in the way.
        self._contexts: dict[bool, Offload] = {}
        try:
            self._turns.park(plain.model, plain.optimiser)
            self._planned = _copied(plain)
            self.context(training.count)
            self._pair = self._beside(plain, self._planned)
        except BaseException:
            self.bring_home()
            raise

    def _beside(self, plain: TrainingStep, planned: TrainingStep) -> Pair:
        training = self._training
        first, second = (
            each.optimiser
            or torch.optim.SGD(
                each.model.parameters(), lr=training.learning_rate, momentum=training.momentum
            )
            for each in (plain, planned)
        )
        return Pair(plain.model, planned.model, (first, second), self._turns)

    def context(self, count: bool) -> Offload:
        """Return the context of planned steps whose live bytes are counted, or are not."""
        if count not in self._contexts:
            options = replace(
                self._training.options, count=count, device=self._device.streams, timed=True
            )
            self._contexts[count] = Offload(self._planned.model, [self._step_plan], options)
        return self._contexts[count]

    def compare(self) -> StepComparison:
        """Take one optimiser step with both."""
        batch = self._plain.make_batch()
        # A step may change its batch; each is fed with its own.
        copies = copy.deepcopy(batch), batch
        # Counting takes time at every operator. Where that would show in the times of the device,
        # only the first step is counted, which warms it up.
        count = self._training.count and not (self._device.is_real and self.taken)
        followed = _Followed()
        found = self._pair.step(
            partial(self._execute, self._plain, copies[0]),
            partial(self._follow, copies[1], self.context(count), followed),
        )
        report = self.context(count).report
        comparison = self._compared(found, report, followed, count=count)
        self.taken.append(Taken(report, comparison, followed.times, followed.memory))
        return comparison

    def _follow(self, batch: Any, context: Offload, followed: _Followed) -> torch.Tensor | None:
        streams, batch = self._device.streams, self._turns.batch(batch)
        if not self.taken:
            # Memory that plain training had reserved is not the plan's.
            self._device.empty_cache()
        with warnings.catch_warnings():
            # The warnings' texts are in the comparison.
            warnings.simplefilter("ignore", OffloadWarning)
            with context:
                if streams is not None:
                    streams.reset_peaks()
                    before = streams.memory().allocated
                loss = self._execute(self._planned, batch)
                followed.times = context.times
                if streams is not None:
                    reading = streams.memory()
                    followed.memory = AllocatorPeaks(
                        before, reading.peak_allocated, reading.peak_reserved
                    )
        return loss

    def _execute(self, step: TrainingStep, batch: Any) -> torch.Tensor | None:
        try:
            loss = step.execute(self._turns.batch(batch))
            self._device.synchronise()
        except OffcertError:
            raise
        except Exception as error:
            name = type(step.model).__name__
            raise InputError(f"a training step of {name} failed: {one_line(error)}") from error
        return loss

    def _compared(
        self, found: Comparison, report: StepReport, followed: _Followed, *, count: bool
    ) -> StepComparison:
        deviation = report.deviation
        if report.prediction is None and not report.finished:
            deviation = "step.run has not called the model that it was given"
        elif deviation is None and not report.planned:
            deviation = "the step has not ended"
        times, operations = followed.times, len(self._step_plan.trace)
        return StepComparison(
            found.plain_loss,
            found.planned_loss,
            found.differences,
            self._deviations(report) if count else (),
            report.peak,
            sum(unfreed.size for unfreed in report.unfreed),
            report.offloaded_bytes,
            report.prefetched_bytes,
            found.plain_seconds,
            found.planned_seconds,
            deviation,
            sum(unforeseen.size for unforeseen in report.unforeseen),
            report.outside_bytes,
            report.late_bytes,
            times.makespan if times is not None and len(times.ends) == operations else None,
        )

    def _deviations(self, report: StepReport) -> tuple[Deviation, ...]:
        if report.prediction is None:
            return ()
        trace = self._step_plan.trace
        # What the step itself still holds when it ends is no matter of the plan.
        ends = (*report.at_end[:-1], report.prediction.at_end[-1])
        ends = ends if len(report.at_end) == len(trace) else report.at_end
        return deviations(
            trace,
            report.prediction,
            report.at_begin,
            ends,
            report.peaks,
            exactly=not self._step_plan.segments,
            beside=report.beside_bytes,
        )

    @property
    def planned(self) -> TrainingStep:
        """The copy that follows the plan."""
        return self._planned

    def bring_home(self) -> None:
        """Bring the plain model, which is the caller's, to where it was."""
        if self._home.type != "cpu":
            self._turns.bring(self._plain.model, self._plain.optimiser)


def _copied(step: TrainingStep) -> TrainingStep:
    try:
        # Together: what they share, their copies share.
        model, run, optimiser = copy.deepcopy((step.model, step.run, step.optimiser))
    except Exception as error:
        name = type(step.model).__name__
        raise InputError(f"{name} cannot be copied: {one_line(error)}") from error
    return TrainingStep(model, run, step.batch, optimiser)


@dataclass
class _Followed:
    """Facts that are known only while the context of a planned step is open."""

    times: Schedule | None = None
    memory: AllocatorPeaks | None = None
