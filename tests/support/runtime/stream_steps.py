"""Steps on devices with streams: a small network most of which leaves and comes back."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from offcert.core.platform import Link, Platform
from offcert.core.trace import Trace
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.cuda import CudaDevice
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.offload import Offload, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.predict import predict
from offcert.runtime.simulated import SimulatedDevice
from support.runtime.captured import (
    evict_everything,
    problem_of_step,
    require_same,
    seeded,
    state_of,
)


class Layers(nn.Module):
    """Linear layers with sigmoids between them, each of which something may be done to."""

    def __init__(self, count: int = 5, middle: Callable[[Any], Any] = lambda x: x) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(count))
        self.middle = middle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            x = torch.sigmoid(layer(x))
            if index == len(self.layers) // 2:
                x = self.middle(x)
        return x


def mean(model: nn.Module, *batch: Any) -> torch.Tensor:
    return model(*batch).square().mean()


def captured_problem(
    model: nn.Module,
    *shape: int,
    run: Callable[..., Any] = mean,
    clock: str = "modules",
    rates: tuple[int, int] = (1, 1),
    link: str = "duplex",
    duration: int = 20,
    tensors: str = "auto",
) -> Problem:
    """Capture a step of a model on the CPU; every operation takes so many nanoseconds."""
    twin = copy.deepcopy(model).cpu()
    with seeded(3):
        step = TrainingStep(twin, run, torch.randn(shape or (4, 8)))
        problem = problem_of_step(step, clock, tensors)
    operations = [replace(each, duration=duration) for each in problem.trace.operations]
    return replace(
        problem,
        network=Trace(operations, problem.trace.tensors),
        platform=Platform(
            problem.platform.memory, Fraction(rates[0]), Link(link), Fraction(rates[1])
        ),
    )


def tight(problem: Problem, plan: Plan) -> Problem:
    """Return a problem with no more memory than a plan needs: all that it moves must leave."""
    needed = predict(problem.trace, plan).peak
    return problem.with_memory(max(needed, problem.trace.resident_at_start))


def evicting(problem: Problem, among: Callable[[int], bool] = lambda gap: True) -> Plan:
    """Evict gaps from one use to the next."""
    return evict_everything(problem, {gap for gap in range(len(problem.trace.gaps)) if among(gap)})


@dataclass
class On:
    """A kind of device, and how to make one for a problem.

    Attributes
    ----------
    kind : str
        ``"simulated"`` or ``"cuda"``.
    arenas : list of weakref
        What has been registered.
    """

    kind: str
    arenas: list[weakref.ref[Any]] = field(default_factory=list)

    @property
    def is_simulated(self) -> bool:
        return self.kind == "simulated"

    @property
    def tensors(self) -> str:
        return "cpu" if self.is_simulated else "cuda"

    def device(self, problem: Problem, **options: Any) -> Device:
        """Return a device with the rates of a problem, or the one at hand."""
        if self.is_simulated:
            return watched(SimulatedDevice(problem.platform, **options), self.arenas)
        return watched(CudaDevice("cuda", timed=True), self.arenas)

    def randn(self, *shape: int) -> torch.Tensor:
        """Return random numbers, the same ones on every device."""
        return torch.randn(shape).to(self.tensors)

    def put(self, model: nn.Module) -> nn.Module:
        return model.to(self.tensors)

    def settled(self, device: Device) -> None:
        """Assert that nothing races, and that nothing is registered any more."""
        device.synchronise()
        if isinstance(device, SimulatedDevice):
            assert device.races == []
            assert device.crossings == 0
            assert device.pinned_bytes == 0
        arenas = [reference() for reference in self.arenas]
        assert all(arena is None or arena.closed for arena in arenas)


def watched(device: Device, arenas: list[weakref.ref[Any]]) -> Device:
    """Return a device whose arenas are known."""
    made = device.arena

    def arena(size: int, *order: Any) -> Any:
        found = made(size, *order)
        arenas.append(weakref.ref(found))
        return found

    device.arena = arena  # type: ignore[method-assign, assignment]
    return device


def followed(
    on: On,
    model: nn.Module,
    *shape: int,
    plan: Callable[[Problem], Plan] = evicting,
    steps: int = 2,
    run: Callable[..., Any] = mean,
    **capturing: Any,
) -> tuple[Offload, Device]:
    """Train a model and a plain copy; both must be equal, and every step as planned."""
    model = on.put(model)
    problem = captured_problem(model, *shape, run=run, **capturing)
    chosen = plan(problem)
    problem = tight(problem, chosen)
    device = on.device(problem)
    plain = copy.deepcopy(model)
    # Before the hooks are on: the plain one runs without them.
    expected = [state for _, state in trained(on, plain, *shape, steps=steps, run=run)]
    made = follow(model, chosen, problem, FollowOptions(device=device, count=on.is_simulated))
    with made:
        for turn, state in trained(on, model, *shape, steps=steps, run=run):
            require_same(expected[turn], state)
            report = made.report
            assert report.planned, report.deviation
            assert report.late_bytes == 0
            assert report.unfreed == ()
            assert report.offloaded_bytes > 0
            if on.is_simulated:
                assert report.follows_prediction
                assert report.peak <= problem.platform.memory
    on.settled(device)
    return made, device


def trained(
    on: On, model: nn.Module, *shape: int, steps: int, run: Callable[..., Any] = mean
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Train, and yield the number of each step and what it has left."""
    with seeded(7):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for turn in range(steps):
            optimiser.zero_grad()
            loss = run(model, on.randn(*(shape or (4, 8))))
            loss.backward()
            optimiser.step()
            yield turn, {"loss": loss.detach().clone(), **parts_of(model)}


def parts_of(model: nn.Module) -> dict[str, Any]:
    """Return parameters, gradients and buffers."""
    state = state_of(model)
    return {name: state[name] for name in ("parameters", "gradients", "buffers")}


@contextmanager
def moved_by(monkeypatch: Any, mover: type) -> Any:
    """Let steps be moved by another mover than the engine's in the block."""
    with monkeypatch.context() as patch:
        patch.setattr("offcert.runtime.streaming.mover_makers.StreamMover", mover)
        yield


def context(
    on: On, model: nn.Module, *shape: int, room: int = 0, **options: Any
) -> tuple[Offload, Device]:
    """Return a context in which all that may leave leaves, with its device."""
    problem = captured_problem(model, *shape)
    plan = evicting(problem)
    limited = tight(problem, plan)
    limited = limited.with_memory(limited.platform.memory + room)
    device = on.device(limited)
    return follow(on.put(model), plan, limited, FollowOptions(device=device, **options)), device


def gradients(on: On, model: Any, turn: int = 0) -> list[torch.Tensor]:
    """Take a step; return its gradients."""
    torch.manual_seed(turn)
    model.zero_grad()
    mean(model, on.randn(4, 8)).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def closed(on: On, made: Offload, model: nn.Module) -> list[torch.Tensor]:
    """Take a step, and let the context take stock of it at once; return its gradients."""
    found = gradients(on, model)
    made.follower.close_run("the test looks")
    return found


def same(first: Iterable[torch.Tensor], second: Iterable[torch.Tensor]) -> bool:
    return all(map(torch.equal, first, second))
