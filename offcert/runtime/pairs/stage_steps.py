"""Plain and planned training side by side, for problems whose operations are stages."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from offcert.questions.schedule.fluid_schedule import FluidSchedule
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.runtime.pairs.comparison import Comparison, Pair, seeded
from offcert.runtime.pairs.step_pair import Training
from offcert.runtime.pairs.training_report import StepComparison, TrainReport, deviations
from offcert.runtime.stages.replay import Replay, ReplayReport, offload
from offcert.runtime.workloads.workload import Loss, Workload, loss_function


def train_stages(
    problem: Problem,
    schedule: Schedule | FluidSchedule | Plan,
    training: Training,
    *,
    steps: int,
    seed: int,
    model: nn.Module | None,
    progress: Callable[[int, int], None],
) -> TrainReport:
    """Train as `offcert.runtime.pairs.train.train` does, replaying the traced network."""
    workload = Workload.from_source(problem.source)
    plain = workload.build() if model is None else model
    planned = copy.deepcopy(plain)
    context = offload(planned, schedule, problem, directory=training.directory)
    first, second = (
        torch.optim.SGD(network.parameters(), lr=training.learning_rate, momentum=training.momentum)
        for network in (plain, planned)
    )
    pair = Pair(plain, planned, (first, second))
    loss = loss_function(workload.loss)
    generator = torch.Generator().manual_seed(seed)
    results = []
    with seeded(seed):
        for index in range(steps):
            inputs, labels = context.batches.draw(generator)
            # A network may change its input; each is fed with its own.
            found = pair.step(
                partial(_plain, plain, loss, inputs.clone(), labels),
                partial(_planned, context, inputs, labels),
            )
            results.append(_compared(found, context.report, problem))
            progress(index + 1, steps)
    last = context.report
    return TrainReport(
        problem.name,
        problem.platform.memory,
        problem.trace.peak_memory,
        last.prediction.peak,
        tuple(results),
        tuple(operation.name for operation in problem.trace.operations),
        last.prediction.at_begin,
        last.prediction.at_end,
        last.at_begin,
        last.at_end,
        last.peaks,
        last.arena_bytes,
        last.arena_load,
    )


def _plain(
    network: nn.Module, loss: Loss, inputs: torch.Tensor, labels: torch.Tensor | None
) -> torch.Tensor:
    result = loss(network(inputs), labels)
    result.backward()
    return result.detach()


def _planned(context: Replay, inputs: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    with context as step:
        result = step(inputs, labels)
        result.backward()
    return result.detach()


def _compared(found: Comparison, report: ReplayReport, problem: Problem) -> StepComparison:
    return StepComparison(
        found.plain_loss,
        found.planned_loss,
        found.differences,
        deviations(problem.trace, report.prediction, report.at_begin, report.at_end, report.peaks),
        report.peak,
        sum(unfreed.size for unfreed in report.unfreed),
        report.offloaded_bytes,
        report.prefetched_bytes,
        found.plain_seconds,
        found.planned_seconds,
        outside_bytes=report.outside_bytes,
    )
