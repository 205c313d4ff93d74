"""Problems captured from training steps of the tests, plans for them, and plain training beside it.

`compare` is the test of tests: the same loop runs over a plain copy of the model and over one that
follows a plan, and everything that training leaves behind must be equal, bit by bit.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy
import torch
from torch import nn

from offcert.core.platform import Kind, Platform
from offcert.core.trace import Trace
from offcert.core.units import Units
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.offload import Offload, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.predict import predict
from offcert.runtime.plan.reports import StepReport


def problem_of_step(step: TrainingStep, clock: str = "modules", tensors: str = "auto") -> Problem:
    """Capture a step, without times; the memory is that of plain training."""
    captured = capture(step, clock=clock, tensors=tensors)
    trace = captured.trace
    return Problem(
        "test",
        trace,
        Platform(trace.peak_memory, Fraction(1)),
        units=Units("ns", "B"),
        source={"clock": clock, "capture": captured.to_json()},
    )


def evict_everything(problem: Problem, gaps: set[int] | None = None) -> Plan:
    """Evict gaps (by default all): leave right after one use, come back right before the next."""
    trace = problem.trace
    moves = []
    offloaded = set()
    for number, gap in enumerate(trace.gaps):
        if gaps is not None and number not in gaps:
            continue
        if gap.tensor not in offloaded:
            offloaded.add(gap.tensor)
            moves.append(Move(Kind.OFFLOAD, number, gap.before + 1))
        moves.append(Move(Kind.PREFETCH, number, gap.after))
    return Plan(moves)


def random_plan(trace: Trace, chance: random.Random, stay: float = 0.5) -> Plan:
    """Evict gaps at random, all but a part of them, each for a random stretch."""
    moves: list[Move] = []
    offloaded: set[int] = set()
    for number, gap in enumerate(trace.gaps):
        if chance.random() < stay:
            continue
        release = gap.before + 1
        if gap.tensor not in offloaded:
            offloaded.add(gap.tensor)
            release = chance.randint(release, gap.after)
            moves.append(Move(Kind.OFFLOAD, number, release))
        moves.append(Move(Kind.PREFETCH, number, chance.randint(release, gap.after)))
    return Plan(moves)


def convolutions() -> nn.Sequential:
    """Return convolutions with norms and changes in place, and one linear layer."""
    torch.manual_seed(0)
    widths = (3, 4, 6, 5, 4)
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Dropout(0.3), nn.Flatten(), nn.Linear(4 * 64, 7))


def evicted_bytes(problem: Problem, plan: Plan) -> int:
    """Return the bytes that a plan copies to the host."""
    return sum(problem.trace.gap_size(m.gap) for m in plan.moves if m.kind is Kind.OFFLOAD)


# What the loop under test does with a batch; it returns what is to be compared besides the model.
Loop = Callable[[nn.Module, Any, torch.optim.Optimizer], Any]


@dataclass
class Outcome:
    """What a comparison found.

    Attributes
    ----------
    problem : Problem
        What was captured.
    offload : Offload
        After its context has ended.
    reports : list of StepReport
        One after every turn of the loop.
    times : list of Schedule or None
        Likewise, on a device with streams.
    model : nn.Module
        That followed the plan.
    """

    problem: Problem
    plan: Plan
    offload: Offload
    model: nn.Module
    reports: list[StepReport] = field(default_factory=list)
    times: list[Schedule | None] = field(default_factory=list)

    def require_followed(self, steps: int | None = None) -> Outcome:
        """Assert that every step moved all that the plan moves, and counted what it predicts."""
        expected = evicted_bytes(self.problem, self.plan)
        assert expected > 0
        for report in self.reports:
            assert report.planned, report.deviation
            assert report.offloaded_bytes == expected
            assert report.unfreed == (), report.unfreed
            assert report.unforeseen == ()
            assert report.late_bytes == 0
            if report.at_begin:
                assert report.prediction is not None
                assert report.at_begin == report.prediction.at_begin
                assert report.follows_prediction
        assert dict(self.offload.steps) == {"planned": steps or len(self.reports)}
        return self


def standard_loop(step: TrainingStep) -> Loop:
    """Return the loop body of the step: forward, backward, optimiser."""

    def loop(model: nn.Module, batch: Any, optimiser: torch.optim.Optimizer) -> Any:
        optimiser.zero_grad()
        loss = step.run(model, batch)
        if loss is not None:
            loss.backward()
        optimiser.step()
        return None if loss is None else loss.detach().clone()

    return loop


def compare(
    step: TrainingStep,
    loop: Loop | None = None,
    *,
    steps: int = 3,
    batches: Callable[[int], Any] | None = None,
    prepare: Callable[[nn.Module], Any] | None = None,
    clock: str = "modules",
    tensors: str = "auto",
    count: bool = True,
    strict: bool = False,
    plan: Callable[[Problem], Plan] = evict_everything,
    device: Callable[[Problem], Device] | None = None,
    limit: int | None = None,
) -> Outcome:
    """Train a plain copy and, under a plan that evicts everything, the model of the step.

    Parameters
    ----------
    loop : callable, optional
        Called for every batch with the model, the batch and an optimiser.
    batches : callable, optional
        Gives the batch of a turn of the loop; by default always that of the step.
    prepare : callable, optional
        Called with either model before its loop, after the capture.
    device : callable, optional
        Gives the device whose streams move tensors, for the captured problem.
    limit : int, optional
        Bytes that the plan is for; by default what the plan needs if `device` is given, so that all
        that it wants to leave must leave, and what plain training needs otherwise.
    """
    loop = loop or standard_loop(step)
    plain = copy.deepcopy(step.model)
    before = state_of(plain)
    with seeded(3):
        # Programs that draw random numbers may go another way in every step.
        problem = problem_of_step(step, clock, tensors)
    require_same(before, state_of(step.model))
    chosen = plan(problem)
    if device is not None:
        limit = predict(problem.trace, chosen).peak if limit is None else limit
        problem = problem.with_memory(max(limit, problem.trace.resident_at_start))
    on = None if device is None else device(problem)
    options: dict[str, Any] = {"strict": strict, "device": on, "timed": on is not None}
    made = follow(step.model, chosen, problem, FollowOptions(count=count, **options))
    outcome = Outcome(problem, chosen, made, step.model)
    expected = list(_train(plain, step, loop, steps, batches, prepare))
    found = []
    with made:
        for state in _train(step.model, step, loop, steps, batches, prepare):
            found.append(state)
            outcome.reports.append(made.report)
            outcome.times.append(made.times)
    assert len(found) == len(expected) == steps
    for theirs, ours in zip(expected, found, strict=True):
        require_same(theirs, ours)
    return outcome


def _train(
    model: nn.Module,
    step: TrainingStep,
    loop: Loop,
    steps: int,
    batches: Callable[[int], Any] | None,
    prepare: Callable[[nn.Module], Any] | None,
) -> Iterator[dict[str, Any]]:
    with seeded(7):
        if prepare is not None:
            prepare(model)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimiser = torch.optim.SGD(trained, lr=0.1, momentum=0.5)
        for turn in range(steps):
            batch = step.make_batch() if batches is None else batches(turn)
            yield {"result": loop(model, batch, optimiser), **state_of(model)}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed every generator of random numbers; put their states back afterwards."""
    states = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _numbers_of_numpy() -> list[int]:
    state: Any = numpy.random.get_state()
    return list(state[1].tolist())


def state_of(model: nn.Module) -> dict[str, Any]:
    """Return everything that training changes: tensors, attributes of modules, random states."""
    return {
        "parameters": {n: p.detach().clone() for n, p in model.named_parameters()},
        "gradients": {
            n: None if p.grad is None else p.grad.detach().clone()
            for n, p in model.named_parameters()
        },
        "buffers": {n: b.detach().clone() for n, b in model.named_buffers()},
        "attributes": {n: _attributes(m) for n, m in model.named_modules()},
        "random": random.getstate(),
        "numpy": _numbers_of_numpy(),
        "torch": torch.get_rng_state(),
    }


def _attributes(module: nn.Module) -> dict[str, Any]:
    kinds = bool, int, float, str, torch.Tensor
    return {
        name: value.detach().clone() if isinstance(value, torch.Tensor) else value
        for name, value in module.__dict__.items()
        if isinstance(value, kinds)
    }


def require_same(expected: Any, found: Any, where: str = "state") -> None:
    """Assert that two nested structures are equal, tensors bit by bit."""
    assert type(expected) is type(found), where
    if isinstance(expected, torch.Tensor):
        assert expected.dtype == found.dtype, where
        assert expected.shape == found.shape, where
        assert torch.equal(_bytes_of(expected), _bytes_of(found)), where
    elif isinstance(expected, dict):
        assert list(expected) == list(found), where
        for key in expected:
            require_same(expected[key], found[key], f"{where}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(expected) == len(found), where
        for index, pair in enumerate(zip(expected, found, strict=True)):
            require_same(*pair, f"{where}[{index}]")
    else:
        assert expected == found, where


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    # A tensor with a dimension of one can be contiguous whatever the stride there.
    return tensor.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def mean_step(model: nn.Module, *shape: int) -> TrainingStep:
    """Return a step over random inputs of a shape, with the mean of the squared output as loss."""
    return TrainingStep(
        model, lambda model, x: model(x).square().mean(), lambda: torch.randn(shape)
    )
