"""Plain and planned training side by side: the proof that a plan changes nothing but memory."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError, OffcertError
from offcert.core.execution import Execution
from offcert.core.fluid_schedule import FluidSchedule
from offcert.core.plan import Plan
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.runtime.comparison import Comparison, Pair, seeded
from offcert.runtime.offload import Offload
from offcert.runtime.program import Program, program
from offcert.runtime.quiet import one_line
from offcert.runtime.reports import OffloadWarning, StepReport
from offcert.runtime.stages.train import train_stages
from offcert.runtime.standard_step import standard_step
from offcert.runtime.step import TrainingStep
from offcert.runtime.training_report import Deviation, StepComparison, TrainReport, deviations
from offcert.runtime.workload import Workload


def train(
    problem: Problem,
    schedule: Schedule | FluidSchedule | Plan,
    *,
    steps: int = 3,
    seed: int = 0,
    learning_rate: float = 0.01,
    momentum: float = 0.9,
    model: nn.Module | None = None,
    step: TrainingStep | None = None,
    directory: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    count: bool = True,
    execution: Execution | None = None,
) -> TrainReport:
    """Train the problem's network with and without the plan from the same state, and compare.

    Both start from the same weights and, at every step, the same batch and random state, so dropout
    draws the same masks.

    Parameters
    ----------
    problem : Problem
        Its source names the network or the training step.
    schedule : Schedule or Plan
        What the planned training follows.
    steps : int
        Optimiser steps, at least 1.
    seed : int
        Of the batches and the dropout masks.
    learning_rate, momentum : float
        Of SGD, which is used unless the training step has an optimiser.
    model : nn.Module, optional
        The network, if the problem's source does not name one; it is trained (the plain way).
    step : TrainingStep, optional
        The training step, if the problem's source does not name one; likewise. If its batch is a
        callable, every step has a fresh one.
    directory : str, optional
        Where the temporary file with the offloaded bytes is made.
    progress : callable, optional
        Called with the number of finished steps and `steps`.
    count : bool
        Count live bytes and compare them with the prediction at every event. A problem whose
        operations are stages is always counted.
    execution : Execution, optional
        What the schedule is of, if parts of the network run again: training carries it out.

    Raises
    ------
    InputError
        If the network cannot be rebuilt or is not the one that was planned, or the schedule moves
        tensors in pieces.
    PlanError
        If the plan does not make sense or exceeds the memory.
    """
    if steps < 1:
        raise InputError(f"steps must be at least 1, not {steps}")
    if model is not None and step is not None:
        raise InputError("only one of model and step can be given")
    source = problem.source or {}
    if "capture" not in source and source.get("clock", "stages") == "stages":
        if step is not None:
            raise InputError("the problem is one of stages, which takes a network, not a step")
        if execution is not None:
            raise InputError("the problem is one of stages: training cannot run any of them again")
        return train_stages(
            problem,
            schedule,
            steps=steps,
            seed=seed,
            learning_rate=learning_rate,
            momentum=momentum,
            model=model,
            directory=directory,
            progress=progress,
        )
    plain = _plain_step(problem, model, step)
    made = program(problem, schedule, execution)
    pair = _StepPair(plain, made, learning_rate, momentum, directory, count=count)
    results = []
    with seeded(seed):
        for index in range(steps):
            results.append(pair.compare())
            if progress is not None:
                progress(index + 1, steps)
    prediction, last = made.prediction, pair.context.report
    return TrainReport(
        problem.name,
        problem.platform.memory,
        problem.trace.peak_memory,
        prediction.peak,
        tuple(results),
        tuple(operation.name for operation in made.trace.operations),
        prediction.at_begin,
        prediction.at_end,
        last.at_begin,
        last.at_end,
        last.peaks,
        made.host.pool,
        made.host.load,
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
    return made if isinstance(made, TrainingStep) else standard_step(made, workload)


class _StepPair:
    """A training step, and a copy of it that follows a plan."""

    def __init__(
        self,
        plain: TrainingStep,
        planned: Program,
        learning_rate: float,
        momentum: float,
        directory: str | None,
        *,
        count: bool,
    ) -> None:
        self._plain = plain
        self._trace = planned.trace
        self._exactly = not planned.segments
        self._count = count
        try:
            # Together: what they share, their copies share.
            model, run, optimiser = copy.deepcopy((plain.model, plain.run, plain.optimiser))
        except Exception as error:
            name = type(plain.model).__name__
            raise InputError(f"{name} cannot be copied: {one_line(error)}") from error
        self._planned = TrainingStep(model, run, plain.batch, optimiser)
        self.context = Offload(model, [planned], count=count, directory=directory)
        first, second = (
            each.optimiser
            or torch.optim.SGD(each.model.parameters(), lr=learning_rate, momentum=momentum)
            for each in (plain, self._planned)
        )
        self._pair = Pair(plain.model, model, (first, second))

    def compare(self) -> StepComparison:
        """Take one optimiser step with both."""
        batch = self._plain.make_batch()
        # A step may change its batch; each is fed with its own.
        copies = copy.deepcopy(batch), batch
        found = self._pair.step(
            partial(_execute, self._plain, copies[0]), partial(self._follow, copies[1])
        )
        return self._compared(found, self.context.report)

    def _follow(self, batch: Any) -> torch.Tensor | None:
        with warnings.catch_warnings():
            # What they say is in the comparison.
            warnings.simplefilter("ignore", OffloadWarning)
            with self.context:
                return _execute(self._planned, batch)

    def _compared(self, found: Comparison, report: StepReport) -> StepComparison:
        deviation = report.deviation
        if report.prediction is None and not report.finished:
            deviation = "step.run has not called the model that it was given"
        elif deviation is None and not report.planned:
            deviation = "the step has not ended"
        trace = self._trace
        wrong: tuple[Deviation, ...] = ()
        if self._count and report.prediction is not None:
            # What the step itself still holds when it ends is no matter of the plan.
            ends = (*report.at_end[:-1], report.prediction.at_end[-1])
            ends = ends if len(report.at_end) == len(trace) else report.at_end
            wrong = deviations(
                trace,
                report.prediction,
                report.at_begin,
                ends,
                report.peaks,
                exactly=self._exactly,
            )
        return StepComparison(
            found.plain_loss,
            found.planned_loss,
            found.differences,
            wrong,
            report.peak,
            sum(unfreed.size for unfreed in report.unfreed),
            report.offloaded_bytes,
            report.prefetched_bytes,
            found.plain_seconds,
            found.planned_seconds,
            deviation,
            sum(unforeseen.size for unforeseen in report.unforeseen),
            report.outside_bytes,
        )


def _execute(step: TrainingStep, batch: Any) -> torch.Tensor | None:
    try:
        return step.execute(batch)
    except OffcertError:
        raise
    except Exception as error:
        name = type(step.model).__name__
        raise InputError(f"a training step of {name} failed: {one_line(error)}") from error
