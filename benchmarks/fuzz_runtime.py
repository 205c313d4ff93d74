"""Random plans on random small networks: what the streams do is what was planned, bit by bit.

    python benchmarks/fuzz_runtime.py --count 10000 -o out/fuzz-runtime.json

Each network is captured once, trained plainly once, and then under many plans, a step or two, on a
simulated device whose memory is what the plan is for, without a byte more. It must hold that

- losses, gradients, parameters and buffers are those of plain training, bit by bit;
- every step follows its plan, and no byte is late;
- live bytes are those predicted at every operation, and no peak is higher; where something runs
  again, they are at most those;
- every operation and every transfer takes place when the forecast says, in every nanosecond,
  unless some of the copies are in a file;
- nothing races, and afterwards nothing is hooked or registered.

What fails is written down with its network and plan, which ``--network`` and ``--plan`` run alone.
What has been found is written from time to time; Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import copy
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from fuzz_networks import inputs_of, random_network
from fuzz_plans import joint_problem_of, problem_of, random_plan
from torch import nn

from offcert.core.documents import write_json
from offcert.core.errors import PlanError
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.runtime.capture import Capture, capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.pinned import CHUNK
from offcert.runtime.follow.offload import Offload
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.predict import predict
from offcert.runtime.plan.reports import StepReport
from offcert.runtime.plan.step_plan import StepPlan, step_plan
from offcert.runtime.simulated import SimulatedDevice, by_chance, early, late
from offcert.runtime.streaming.step_events import forecast
from offcert_lab.engines.allocator import CachingAllocator

STEPS = 2
State = list[torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A captured network, and what two steps of plain training make of it.

    Attributes
    ----------
    network : nn.Module
        As it is before them.
    inputs : list of tuple
        Of each step.
    captures : dict
        By clock.
    expected : list of list of torch.Tensor
        After each step: loss, gradients, parameters, buffers.
    again : list of str
        Paths of modules that may run again.
    """

    network: nn.Module
    inputs: list[tuple[Any, ...]]
    captures: dict[str, Capture]
    expected: list[State]
    again: list[str]


@dataclass
class Found:
    """The counts and faults of all plans together.

    Attributes
    ----------
    counts : Counter
        Of plans, by what they were like, and of transfers.
    worst_reserved : float
        The most that PyTorch's way to give memory out reserved, as a multiple of what was allocated
        at most.
    failures : list of dict
        Network, plan, and what was wrong.
    """

    counts: Counter[str] = field(default_factory=Counter)
    worst_reserved: float = 1.0
    failures: list[dict[str, Any]] = field(default_factory=list)


def case(seed: int, number: int) -> Case:
    """Return a network of a seed."""
    chance = random.Random(f"network {seed} {number}")
    network, shape = random_network(chance)
    inputs = [inputs_of(network, shape) for _ in range(STEPS)]
    step = TrainingStep(network, _run, inputs[0])
    torch.manual_seed(5)
    clock = chance.choice(("modules", "modules", "operators"))
    captures = {clock: capture(step, clock=clock)}
    again = [f"blocks.{index}" for index in range(len(network.blocks))]
    return Case(network, inputs, captures, list(train(copy.deepcopy(network), inputs)), again)


def _run(model: nn.Module, batch: tuple[Any, ...]) -> torch.Tensor:
    loss = model(*batch).square().mean()
    assert isinstance(loss, torch.Tensor)
    return loss


def train(network: nn.Module, inputs: list[tuple[Any, ...]]) -> Iterator[State]:
    """Train, and yield what there is after each step."""
    torch.manual_seed(11)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.5)
    for batch in inputs:
        optimiser.zero_grad()
        loss = _run(network, batch)
        loss.backward()
        optimiser.step()
        gradients = [torch.zeros(0) if p.grad is None else p.grad for p in network.parameters()]
        state = [loss.detach(), *gradients, *network.parameters(), *network.buffers()]
        yield [tensor.detach().clone() for tensor in state]


@dataclass(frozen=True)
class Trial:
    """A plan for a network of a case.

    Attributes
    ----------
    made : StepPlan
        What is followed.
    tight : bool
        Whether the limit is what the plan needs at least.
    """

    made: StepPlan
    tight: bool


def trial(found: Found, of: Case, chance: random.Random) -> Trial:
    """Draw a plan."""
    ((clock, captured),) = of.captures.items()
    joint = clock == "modules" and chance.random() < 0.25
    problem, execution = (
        joint_problem_of(chance, captured, of.again)
        if joint
        else (problem_of(chance, captured), None)
    )
    executed = problem if execution is None else problem.executed(execution)
    chosen: Plan | Schedule = random_plan(chance, executed.trace)
    tight = max(predict(executed.trace, chosen).peak, executed.trace.resident_at_start)
    memory = tight
    if chance.random() < 0.3:
        memory += chance.randint(0, captured.trace.peak_memory // 2)
    if chance.random() < 0.4:
        try:
            chosen = simulate(executed.with_memory(memory), chosen)
        except PlanError:
            found.counts["plans in an order that gets stuck"] += 1
    made = step_plan(problem.with_memory(memory), chosen, execution, streams=True)
    return Trial(made, memory == tight)


def try_plan(found: Found, of: Case, seed: int, number: int, plan: int) -> None:
    """Train under one plan; raise an `AssertionError` if something is not as it must be."""
    chance = random.Random(f"plan {seed} {number} {plan}")
    drawn = trial(found, of, chance)
    made, chunk = on_the_host(random.Random(f"host {seed} {number} {plan}"), drawn.made)
    # With a limit, every byte too much is an error at once.
    ideal = chance.random() < 0.7
    device = SimulatedDevice(
        made.problem.platform,
        memory=made.limit,
        allocator=None if ideal else CachingAllocator(None, "simulated", 1),
        adversary=chance.choice((late, late, early, by_chance(plan))),
        chunk=chunk,
    )
    network = copy.deepcopy(of.network)
    context = Offload(network, [made], FollowOptions(count=True, device=device, timed=True))
    assert made.timetable is not None
    times = forecast(made.problem, made.timetable)
    # The second step finds what the first one has left.
    steps = STEPS if chance.random() < 0.4 else 1
    exact = 0
    with context:
        inputs = of.inputs[:steps]
        for state, expected in zip(train(network, inputs), of.expected, strict=False):
            require_same(state, expected)
            # Where something runs again, bytes may be counted that are free a little earlier.
            require_planned(context.report, not made.segments)
            exact += context.report.follows_prediction
            # Forecasts know no files.
            assert made.host.in_file or context.times == times, (
                "times are not those of the forecast"
            )
        reading = device.memory()
        pinned = device.pinned_bytes
        moved = context.report.offloaded_bytes > 0
    assert device.races == [], device.races[0].what
    registered = made.host.pool - made.host.in_file + made.host.staging
    assert pinned == registered, "the arena is not of the planned size"
    assert device.pinned_bytes == 0, "something is registered still"
    assert hooked(network) == 0, "something is hooked still"
    if ideal:
        assert reading.peak_allocated <= made.limit, "the device gave out more than the limit"
    else:
        worst = reading.peak_reserved / max(reading.peak_allocated, 1)
        found.worst_reserved = max(found.worst_reserved, worst)
    found.counts.update(
        {
            "plans": 1,
            f"clock of {made.capture.clock}": 1,
            f"{made.problem.platform.link} link": 1,
            "with segments that run again": int(bool(made.segments)),
            "that move something": int(moved),
            "with copies in a file": int(made.host.in_file > 0),
            "of those by way of registered memory": int(made.host.staging > 0),
            "at the least memory of the plan": int(drawn.tight),
            "steps": steps,
            "steps with live bytes as predicted": exact,
            "transfers": steps * len(times.transfers),
        }
    )


def on_the_host(chance: random.Random, made: StepPlan) -> tuple[StepPlan, int]:
    """Draw how much memory the host has, and how much of it may be registered by one call."""
    chunk = chance.choice((CHUNK, CHUNK, 192))
    if chance.random() < 0.2 and made.host.pool > 0:
        made = made.within_host(chance.randint(0, made.host.pool), True)
    return made, chunk


def require_planned(report: StepReport, exactly: bool) -> None:
    """Raise an `AssertionError` unless a step has done what was predicted."""
    assert report.planned, report.deviation
    assert report.late_bytes == 0, "bytes were late"
    assert report.unfreed == report.unforeseen == (), "held by others, or not foreseen"
    assert report.outside_entries == 0, "a copy outside of the arena"
    assert report.prediction is not None
    rows = zip(report.peaks, report.prediction.peaks, strict=True)
    beside = report.beside_bytes
    assert all(peak <= bound + beside for peak, bound in rows), "a peak is above its bound"
    assert report.peak <= report.limit, "a peak is above the limit"
    rows = zip(report.at_begin, report.prediction.at_begin, strict=True)
    assert all(live <= bound + beside for live, bound in rows), "more is alive than predicted"
    assert report.follows_prediction or not exactly, "live bytes are not as predicted"


def require_same(found: State, expected: State) -> None:
    """Raise an `AssertionError` unless two states are equal, bit by bit."""
    for index, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        same = ours.shape == theirs.shape and torch.equal(
            ours.reshape(-1).view(torch.uint8), theirs.reshape(-1).view(torch.uint8)
        )
        assert same, f"tensor {index} of {len(found)} is not that of plain training"


def hooked(network: nn.Module) -> int:
    """Return how many hooks there are on a network."""
    return sum(
        len(each)
        for module in network.modules()
        for each in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    ) + sum(
        len(each or {})
        for parameter in network.parameters()
        for each in (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)
    )


def fuzz(
    found: Found,
    count: int,
    each: int,
    seed: int,
    networks: range | None = None,
    only: int | None = None,
    tell: Callable[[], None] = lambda: None,
) -> None:
    """Try `count` plans, `each` of them on every network; stop at an interrupt."""
    numbers = networks or range(-(-count // each))
    try:
        for number in numbers:
            plans = range(min(each, count - number * each)) if only is None else [only]
            try:
                of = case(seed, number)
            except Exception as error:
                found.failures.append(_failure(number, None, error))
                continue
            found.counts["networks"] += 1
            for plan in plans:
                try:
                    try_plan(found, of, seed, number, plan)
                except Exception as error:
                    found.failures.append(_failure(number, plan, error))
            tell()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)


def _failure(network: int, plan: int | None, error: Exception) -> dict[str, Any]:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
    said = f"{type(error).__name__}: {error}"
    return {"network": network, "plan": plan, "error": said, "where": where}


def _document(found: Found, seed: int, seconds: float) -> dict[str, Any]:
    plans = found.counts["plans"] + len(found.failures)
    return {
        "seed": seed,
        "torch": str(torch.__version__),
        "counts": dict(found.counts),
        "worst_reserved": round(found.worst_reserved, 4),
        "cpu_milliseconds_a_plan": round(1000 * seconds / max(plans, 1), 1),
        "failures": found.failures,
    }


def main(arguments: list[str] | None = None) -> int:
    """Try plans, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--count", type=int, default=10_000, help="plans")
    parser.add_argument("--each", type=int, default=50, help="plans on each network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--network", type=int, help="only this one")
    parser.add_argument("--plan", type=int, help="only this one, of every network")
    parser.add_argument("-o", "--output", help="JSON file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found, began = Found(), time.process_time()

    def tell() -> None:
        plans, failed = found.counts["plans"], len(found.failures)
        if sys.stderr.isatty():
            print(f"\r{plans} plans, {failed} failed ", end="", file=sys.stderr, flush=True)
        if options.output:
            write_json(options.output, _document(found, options.seed, time.process_time() - began))

    only = None if options.network is None else range(options.network, options.network + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fuzz(found, options.count, options.each, options.seed, only, options.plan, tell)
    tell()
    seconds = time.process_time() - began
    print(f"\n{found.counts['plans']} plans in {seconds:.0f} s of CPU time")
    for what, number in found.counts.items():
        print(f"  {what}: {number}")
    for failure in found.failures[:20]:
        print(f"  network {failure['network']} plan {failure['plan']}: {failure['error']}")
    return 1 if found.failures else 0


if __name__ == "__main__":
    # Also where a shell has started it in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raise SystemExit(main())
