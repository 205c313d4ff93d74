"""`StepPair`: a training step and its copy under a plan, which take every step together."""

from __future__ import annotations

import copy
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy
import torch
from torch import nn

from offcert.core.errors import InputError, OffcertError
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.training_record import AllocatorPeaks
from offcert.runtime.capture.borrowed import RandomState, random_state_kept
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import Offload
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.pairs.train_device import TrainDevice
from offcert.runtime.pairs.training_report import Deviation, PairStep, StepComparison, deviations
from offcert.runtime.plan.reports import StepReport
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.guard import OffloadWarning, one_line
from offcert.runtime.workloads.standard_step import device_of
from offcert.runtime.workloads.turns import Turns

# Of SGD, where a step has no optimiser. Arbitrary.
_LEARNING_RATE, _MOMENTUM = 0.01, 0.9

# Runs a forward and a backward pass and returns the loss, if there is one to return.
Pass = Callable[[], torch.Tensor | None]


class Pair:
    """Two copies of a network, with their optimisers, that are to stay the same.

    Turns bring each to a device while it is trained; everything is compared on the host.
    """

    def __init__(
        self,
        plain: nn.Module,
        planned: nn.Module,
        optimisers: tuple[torch.optim.Optimizer, torch.optim.Optimizer],
        turns: Turns,
    ) -> None:
        self._plain, self._planned, self._optimisers = plain, planned, optimisers
        self._turns = turns

    def step(self, run_plain: Pass, run_planned: Pass) -> PairStep:
        """Take one optimiser step with both, from the same random state, and compare everything."""
        for optimiser in self._optimisers:
            optimiser.zero_grad()
        state = RandomState.now()
        plain_loss, plain_seconds = self._timed(self._plain, self._optimisers[0], run_plain)
        after_plain = RandomState.now()
        state.restore()
        planned_loss, planned_seconds = self._timed(self._planned, self._optimisers[1], run_planned)
        differences = []
        if not same_bits(plain_loss, planned_loss):
            differences.append("loss")
        if not after_plain.is_same(RandomState.now()):
            differences.append("random state")
        differences += self._differences("gradient of", _gradients)
        for model, optimiser in zip((self._plain, self._planned), self._optimisers, strict=True):
            with self._turns.turn(model, optimiser):
                optimiser.step()
        differences += self._differences("parameter", lambda network: network.named_parameters())
        differences += self._differences("buffer", lambda network: network.named_buffers())
        return PairStep(
            _number(plain_loss),
            _number(planned_loss),
            tuple(differences),
            plain_seconds,
            planned_seconds,
        )

    def _timed(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, run: Pass
    ) -> tuple[torch.Tensor | None, float]:
        with self._turns.turn(model, optimiser):
            begun = time.perf_counter()
            loss = run()
            seconds = time.perf_counter() - begun
        return loss, seconds

    def _differences(
        self, what: str, named: Callable[[nn.Module], Iterator[tuple[str, torch.Tensor | None]]]
    ) -> list[str]:
        ours, theirs = dict(named(self._plain)), dict(named(self._planned))
        # A step may make buffers, or drop them.
        names = [*ours, *(name for name in theirs if name not in ours)]
        return [
            f"{what} {name}" for name in names if not same_bits(ours.get(name), theirs.get(name))
        ]


def _gradients(network: nn.Module) -> Iterator[tuple[str, torch.Tensor | None]]:
    return ((name, parameter.grad) for name, parameter in network.named_parameters())


def _number(loss: torch.Tensor | None) -> float | None:
    return None if loss is None else loss.item()


def same_bits(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    """Whether two tensors are the same to the last bit, or both missing."""
    if first is None or second is None:
        return first is second
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.layout is not torch.strided:
        return bool(torch.equal(first, second))
    # Comparing bytes tells 0 from -0 and finds equal NaNs equal.
    return torch.equal(_bytes(first), _bytes(second))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    # A tensor with a dimension of one is contiguous whatever the stride there.
    return tensor.detach().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators that models use without asking, and put them back after the block."""
    with random_state_kept():
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        yield


@dataclass(frozen=True)
class Taken:
    """The measurements of one planned step: its report, the comparison with the plain one, times.

    `memory` are peaks of its device's allocator.
    """

    report: StepReport
    comparison: StepComparison
    times: Schedule | None
    memory: AllocatorPeaks | None


class StepPair:
    """A training step, and a copy of it that follows a plan, trained one after the other."""

    def __init__(
        self, plain: TrainingStep, planned: StepPlan, device: TrainDevice, options: FollowOptions
    ) -> None:
        self.taken: list[Taken] = []
        self._plain, self._step_plan, self._device = plain, planned, device
        self._options = options
        self._count = options.count is not False
        # Of the latest planned step, known only while its context is open.
        self._times: Schedule | None = None
        self._memory: AllocatorPeaks | None = None
        self._home = device_of(plain.model)
        self._turns = Turns(device.tensors)
        # Of a plan that counts and of one that does not: the hooks of neither are in the way.
        self._contexts: dict[bool, Offload] = {}
        try:
            self._turns.park(plain.model, plain.optimiser)
            self._planned = _copied(plain)
            self.context(self._count)
            first, second = (
                each.optimiser
                or torch.optim.SGD(each.model.parameters(), lr=_LEARNING_RATE, momentum=_MOMENTUM)
                for each in (plain, self._planned)
            )
            self._pair = Pair(plain.model, self._planned.model, (first, second), self._turns)
        except BaseException:
            self.bring_home()
            raise

    def context(self, count: bool) -> Offload:
        """Return the context of planned steps whose live bytes are counted, or are not."""
        if count not in self._contexts:
            options = replace(self._options, count=count, device=self._device.streams, timed=True)
            self._contexts[count] = Offload(self._planned.model, [self._step_plan], options)
        return self._contexts[count]

    def compare(self) -> StepComparison:
        """Take one optimiser step with both."""
        batch = self._plain.make_batch()
        # A step may change its batch; each is fed with its own.
        copies = copy.deepcopy(batch), batch
        # Counting takes time at every operator. Where that would show in the times of the device,
        # only the first step is counted, which warms it up.
        count = self._count and not (self._device.is_real and self.taken)
        found = self._pair.step(
            partial(self._execute, self._plain, copies[0]),
            partial(self._follow, copies[1], self.context(count)),
        )
        report = self.context(count).report
        comparison = self._compared(found, report, count=count)
        self.taken.append(Taken(report, comparison, self._times, self._memory))
        return comparison

    def _follow(self, batch: Any, context: Offload) -> torch.Tensor | None:
        streams, batch = self._device.streams, self._turns.batch(batch)
        if streams is not None and self._device.is_real and not self.taken:
            # Memory that plain training had reserved is not the plan's.
            streams.release()
        with warnings.catch_warnings():
            # The warnings' texts are in the comparison.
            warnings.simplefilter("ignore", OffloadWarning)
            with context:
                if streams is not None:
                    streams.reset_peaks()
                    before = streams.memory().allocated
                loss = self._execute(self._planned, batch)
                self._times = context.times
                if streams is not None:
                    reading = streams.memory()
                    self._memory = AllocatorPeaks(
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

    def _compared(self, found: PairStep, report: StepReport, *, count: bool) -> StepComparison:
        deviation = report.deviation
        if report.prediction is None and not report.finished:
            deviation = "step.run has not called the model that it was given"
        elif deviation is None and not report.planned:
            deviation = "the step has not ended"
        times, operations = self._times, len(self._step_plan.trace)
        return StepComparison(
            **vars(found),
            deviations=self._deviations(report) if count else (),
            peak=report.peak,
            unfreed_bytes=sum(unfreed.size for unfreed in report.unfreed),
            offloaded_bytes=report.offloaded_bytes,
            prefetched_bytes=report.prefetched_bytes,
            deviation=deviation,
            unforeseen_bytes=sum(unforeseen.size for unforeseen in report.unforeseen),
            outside_bytes=report.outside_bytes,
            late_bytes=report.late_bytes,
            time=times.makespan if times is not None and len(times.ends) == operations else None,
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
