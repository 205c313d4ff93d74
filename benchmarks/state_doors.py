"""The ways in which something runs again, for `benchmarks/fuzz_state.py`."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest import mock

import torch
from fuzz_plans import random_plan, random_program
from state_models import BATCH, WIDTH, Drawn, program_for
from torch import nn

from offcert.core.carried.carry import carry
from offcert.core.errors import InputError, NoPlanError, PlanError
from offcert.core.platform import Platform
from offcert.core.result import SolveStatus
from offcert.core.units import Units
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.simulate import simulate
from offcert.runtime.capture import capture
from offcert.runtime.capture.capture import read_capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.plan.predict import predict
from offcert.runtime.segments.alone import segmented
from offcert.runtime.watch import operators as recomputing
from offcert.training import offload, search

# What is open; None where there is nothing to ask.
Training = Any
Door = Callable[[nn.Module], AbstractContextManager[Training]]


class Again(threading.local):
    """Counts recomputations, in place of the depth of `offcert.runtime.watch.operators`."""

    def __init__(self) -> None:
        self.begun = 0
        self._depth = 0

    @property
    def depth(self) -> int:
        """How many recomputations are under way."""
        return self._depth

    @depth.setter
    def depth(self, value: int) -> None:
        self.begun += value > self._depth
        self._depth = value


AGAIN = Again()


@contextmanager
def counted() -> Iterator[Again]:
    """Count the recomputations in the block."""
    AGAIN.begun = 0
    with mock.patch.object(recomputing, "_LOCAL", AGAIN):
        yield AGAIN


def by_hand(chance: random.Random, drawn: Drawn) -> Door:
    """Run parts again that were named by hand; nothing leaves the device."""
    program = program_for(chance, drawn)

    @contextmanager
    def enter(model: nn.Module) -> Iterator[Training]:
        with segmented(model, program) as training:
            yield training

    return enter


def by_certificate(chance: random.Random, drawn: Drawn) -> Door:
    """Follow a plan that was made before the training, for a step without anything beside it."""
    model, layers = drawn.build()
    step = TrainingStep(model, lambda each, x: each(x).square().mean(), torch.ones(BATCH, WIDTH))
    try:
        captured = capture(step)
    finally:
        for each in layers:
            each.end()
    means = Recompute.NONE if captured.network is None else Recompute.ANY
    problem = Problem(
        "fuzz",
        captured.network or captured.trace,
        Platform(captured.trace.peak_memory, Fraction(1)),
        units=Units("ns", "B"),
        source={"clock": "modules", "capture": captured.to_json()},
        recompute=means,
    )
    certificate = drawn_plan(chance, problem)
    counts = chance.random() < 0.2
    return lambda each: offload(each, certificate, count=counts)


def on_the_way(chance: random.Random, drawn: Drawn) -> Door:
    """Train with plans made on the way, which are drawn instead of searched for."""
    counts = chance.random() < 0.2

    def certify(problem: Problem, **options: Any) -> Certificate:
        return drawn_plan(chance, problem)

    @contextmanager
    def enter(model: nn.Module) -> Iterator[Training]:
        # The search runs here, where a drawn plan can take its place.
        options = {"memory": 2**30, "hardware": "v100-pcie", "background": False}
        training = offload(model, "auto", **options, count=counts)
        # Of the memory there is plenty, so that a plan at once would be the best one.
        drawn_alone = mock.patch.multiple(search, certify=certify, at_once=lambda problem: None)
        with drawn_alone, training:
            yield training

    return enter


def drawn_plan(chance: random.Random, problem: Problem) -> Certificate:
    """Return a random plan in place of a certified one.

    Raises
    ------
    NoPlanError
        If what may run again cannot be carried out; the planner asks for another one then.
    """
    execution = None
    network = problem.computed
    if problem.recompute is not Recompute.NONE and network is not None:
        captured = replace(read_capture(problem.source, network.trace()), network=network)
        assert captured.record is not None
        try:
            for _ in range(20):
                made = random_program(chance, captured)
                if made.segments:
                    break
            carried = carry(network, made, captured.ranges, captured.record, captured.ticks)
        except (InputError, PlanError) as error:
            raise NoPlanError(str(error)) from error
        execution = carried.execution
    executed = problem if execution is None else problem.executed(execution)
    plan = random_plan(chance, executed.trace)
    memory = max(predict(executed.trace, plan).peak, executed.trace.resident_at_start)
    try:
        schedule = simulate(executed.with_memory(memory), plan)
    except PlanError:
        # Its order gets stuck: everything stays.
        memory = executed.trace.peak_memory
        schedule = simulate(executed.with_memory(memory), Plan(()))
    result = Result(SolveStatus.FEASIBLE, schedule, execution=execution)
    return Certificate(problem.with_memory(memory), result, method="fuzz")


DOORS: dict[str, Callable[[random.Random, Drawn], Door]] = {
    "by hand": by_hand,
    "by certificate": by_certificate,
    "on the way": on_the_way,
}
