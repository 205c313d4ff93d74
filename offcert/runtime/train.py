"""Plain and planned training side by side: the proof that a plan changes nothing but memory."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.core.fluid_schedule import FluidSchedule
from offcert.core.plan import Plan
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.runtime.stages.replay import Offload, StepReport, offload
from offcert.runtime.stages.staged import loss_function
from offcert.runtime.workload import Workload


@dataclass(frozen=True)
class Deviation:
    """An event at which live bytes were not as predicted.

    Attributes
    ----------
    event : str
        ``"begin"``, ``"end"`` or ``"peak"`` (which only counts if it is above its bound).
    operation : str
        Its name.
    predicted, counted : int
        Bytes.
    """

    event: str
    operation: str
    predicted: int
    counted: int


@dataclass(frozen=True)
class StepComparison:
    """One optimiser step, plain and planned.

    Attributes
    ----------
    plain_loss, planned_loss : float
        The losses.
    differences : tuple of str
        What was not bitwise equal: ``"loss"``, ``"random state"``, ``"gradient of conv1.weight"``,
        ``"parameter …"``, ``"buffer …"``.
    deviations : tuple of Deviation
        Where live bytes were not as predicted.
    peak : int
        The most live bytes.
    unfreed_bytes : int
        Bytes that the plan wanted to free and could not.
    offloaded_bytes, prefetched_bytes : int
        Bytes copied.
    plain_seconds, planned_seconds : float
        Forward and backward pass; the planned one includes counting and copying.
    """

    plain_loss: float
    planned_loss: float
    differences: tuple[str, ...]
    deviations: tuple[Deviation, ...]
    peak: int
    unfreed_bytes: int
    offloaded_bytes: int
    prefetched_bytes: int
    plain_seconds: float
    planned_seconds: float


@dataclass(frozen=True)
class TrainReport:
    """What `train` found.

    Attributes
    ----------
    name : str
        Of the problem.
    limit : int
        The problem's memory in bytes.
    unplanned_peak : int
        Bytes that the step needs without a plan.
    predicted_peak : int
        Bytes that the plan needs at most.
    steps : tuple of StepComparison
        One for each optimiser step.
    operations : tuple of str
        Their names, for the curves.
    predicted_begin, predicted_end : tuple of int
        Live bytes that the plan predicts when each operation begins and ends.
    counted_begin, counted_end, counted_peaks : tuple of int
        What was counted in the last step.
    """

    name: str
    limit: int
    unplanned_peak: int
    predicted_peak: int
    steps: tuple[StepComparison, ...]
    operations: tuple[str, ...]
    predicted_begin: tuple[int, ...]
    predicted_end: tuple[int, ...]
    counted_begin: tuple[int, ...]
    counted_end: tuple[int, ...]
    counted_peaks: tuple[int, ...]

    @property
    def bitwise_equal(self) -> bool:
        """Whether losses, gradients, parameters, buffers and random state never differed."""
        return not any(step.differences for step in self.steps)

    @property
    def follows_prediction(self) -> bool:
        """Whether live bytes were as predicted at every event of every step."""
        return not any(step.deviations for step in self.steps)

    @property
    def peak(self) -> int:
        """The most live bytes in any step."""
        return max((step.peak for step in self.steps), default=0)

    @property
    def ok(self) -> bool:
        """Whether everything held: equality, prediction, limit, and all bytes freed."""
        return (
            self.bitwise_equal
            and self.follows_prediction
            and self.peak <= self.limit
            and not any(step.unfreed_bytes for step in self.steps)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, with the verdicts spelled out."""
        return asdict(self) | {
            "bitwise_equal": self.bitwise_equal,
            "follows_prediction": self.follows_prediction,
            "peak": self.peak,
            "ok": self.ok,
        }


def train(
    problem: Problem,
    schedule: Schedule | FluidSchedule | Plan,
    *,
    steps: int = 3,
    seed: int = 0,
    learning_rate: float = 0.01,
    momentum: float = 0.9,
    model: nn.Module | None = None,
    directory: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TrainReport:
    """Train the problem's network with and without the plan from the same state, and compare.

    Both start from the same weights and, at every step, the same batch and random state, so dropout
    draws the same masks; both use SGD with momentum.

    Parameters
    ----------
    problem : Problem
        Its source names the network.
    schedule : Schedule or Plan
        What the planned training follows.
    steps : int
        Optimiser steps, at least 1.
    seed : int
        Of the batches and the dropout masks.
    learning_rate, momentum : float
        Of SGD.
    model : nn.Module, optional
        The network, if the problem's source does not name one; it is trained (the plain way).
    directory : str, optional
        Where the temporary file with the offloaded bytes is made.
    progress : callable, optional
        Called with the number of finished steps and `steps`.

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
    workload = Workload.from_source(problem.source)
    plain = workload.build() if model is None else model
    planned = copy.deepcopy(plain)
    context = offload(planned, schedule, problem, directory=directory)
    pair = _Pair(plain, planned, context, workload, learning_rate, momentum)
    generator = torch.Generator().manual_seed(seed)
    results = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for index in range(steps):
            results.append(pair.step(*context.batches.draw(generator), problem))
            if progress is not None:
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
    )


class _Pair:
    """The two copies of a network and their optimisers."""

    def __init__(
        self,
        plain: nn.Module,
        planned: nn.Module,
        context: Offload,
        workload: Workload,
        learning_rate: float,
        momentum: float,
    ) -> None:
        self._plain = plain
        self._planned = planned
        self._context = context
        self._loss = loss_function(workload.loss)
        self._optimisers = [
            torch.optim.SGD(network.parameters(), lr=learning_rate, momentum=momentum)
            for network in (plain, planned)
        ]

    def step(
        self, inputs: torch.Tensor, labels: torch.Tensor | None, problem: Problem
    ) -> StepComparison:
        """Take one optimiser step with both and compare everything."""
        for optimiser in self._optimisers:
            optimiser.zero_grad()
        state = torch.get_rng_state()
        begun = time.perf_counter()
        # A network may change its input; each is fed with its own.
        plain_loss = self._loss(self._plain(inputs.clone()), labels)
        plain_loss.backward()
        plain_seconds = time.perf_counter() - begun
        after_plain = torch.get_rng_state()
        torch.set_rng_state(state)
        begun = time.perf_counter()
        with self._context as planned_step:
            planned_loss = planned_step(inputs, labels)
            planned_loss.backward()
        planned_seconds = time.perf_counter() - begun
        differences = []
        if not _same_bits(plain_loss.detach(), planned_loss.detach()):
            differences.append("loss")
        if not torch.equal(after_plain, torch.get_rng_state()):
            differences.append("random state")
        differences += self._differences("gradient of", _gradients)
        for optimiser in self._optimisers:
            optimiser.step()
        differences += self._differences("parameter", lambda network: network.named_parameters())
        differences += self._differences("buffer", lambda network: network.named_buffers())
        report = self._context.report
        return StepComparison(
            plain_loss.item(),
            planned_loss.item(),
            tuple(differences),
            deviations(problem, report),
            report.peak,
            sum(unfreed.size for unfreed in report.unfreed),
            report.offloaded_bytes,
            report.prefetched_bytes,
            plain_seconds,
            planned_seconds,
        )

    def _differences(
        self, what: str, named: Callable[[nn.Module], Iterator[tuple[str, torch.Tensor | None]]]
    ) -> list[str]:
        theirs = dict(named(self._planned))
        return [
            f"{what} {name}"
            for name, tensor in named(self._plain)
            if not _same_bits(tensor, theirs[name])
        ]


def _gradients(network: nn.Module) -> Iterator[tuple[str, torch.Tensor | None]]:
    return ((name, parameter.grad) for name, parameter in network.named_parameters())


def _same_bits(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    # Comparing bytes tells 0 from -0 and finds equal NaNs equal.
    return torch.equal(_bytes(first), _bytes(second))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def deviations(problem: Problem, report: StepReport) -> tuple[Deviation, ...]:
    """Return every event of a step at which live bytes were not as predicted."""
    prediction = report.prediction
    found = []
    for index, operation in enumerate(problem.trace.operations):
        for event, predicted, counted in (
            ("begin", prediction.at_begin, report.at_begin),
            ("end", prediction.at_end, report.at_end),
            ("peak", prediction.peaks, report.peaks),
        ):
            value = counted[index] if index < len(counted) else -1
            wrong = value > predicted[index] if event == "peak" else value != predicted[index]
            if wrong:
                found.append(Deviation(event, operation.name, predicted[index], value))
    return tuple(found)
