"""The work of the host in one training step, in calls of Python functions and in processor time.

    python benchmarks/host_time.py --json out/host_time.json

Calls are counted by ``cProfile``, those of functions written in C included: for a given plan they
are exact, and need no GPU. Inputs are tiny, so that nearly all of a step is work of the host. Plans
are made by fixed rules, none by a search, and are the same every time: at a quarter of the memory
whatever has to make room leaves just before it does; all that may leave leaves; all blocks run
again; every other block runs again, keeps what one of its modules computes, and all that may leave
leaves. ``--searched SECONDS`` adds a plan that is searched for, which may be another one each time.

The figures are of steps after rehearsals are over. A step is the forward pass, the loss, the
backward pass and one of SGD with momentum. Processor time is the median over steps, in which the
ways take turns; its ratio is to PyTorch's non-reentrant checkpointing of every block.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import math
import statistics
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.core.carried.carry import carry
from offcert.core.documents import write_json
from offcert.core.platform import Kind, Platform
from offcert.core.units import Units
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime import zoo
from offcert.runtime.capture import Capture, capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import Offload
from offcert.runtime.plan.place import program_of
from offcert.runtime.plan.predict import predict
from offcert.runtime.plan.step_plan import StepPlan, step_plan, step_plans
from offcert.runtime.segments.placed import Kept, PlacedProgram, PlacedSegment
from offcert.runtime.watch.events import ENTER
from offcert.runtime.watch.guard import OffloadWarning

# Bytes a nanosecond: 0.3 GB/s, a tenth of what the slowest cards have. Arbitrary.
SLOW_LINK = Fraction(3, 10)

# Steps before any that is measured: the first follows nothing yet, the next one rehearses.
WARMING = 4


@dataclass(frozen=True)
class Case:
    """A network, the paths of its blocks and what they may keep, and a step with tiny inputs."""

    label: str
    build: Callable[[], nn.Module]
    blocks: tuple[str, ...]
    kept: str
    run: Callable[[nn.Module, Any], torch.Tensor]
    batch: Callable[[], Any]

    def step(self) -> TrainingStep:
        """Return the step of a new network with the same weights each time."""
        torch.manual_seed(0)
        return TrainingStep(self.build(), self.run, self.batch, tensors="real")


def classify(model: nn.Module, batch: Any) -> torch.Tensor:
    """Return the loss of a classifier."""
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels)


def resnet(name: str = "resnet50", layers: Sequence[int] = (3, 4, 6, 3)) -> Case:
    """Return a residual network, with two images of 32 x 32."""
    blocks = tuple(f"layer{i}.{n}" for i, most in enumerate(layers, 1) for n in range(most))
    build = partial(zoo.build, name, classes=10)
    draw = torch.Generator().manual_seed(0)
    batch = torch.randn(2, 3, 32, 32, generator=draw), torch.tensor([1, 2])
    return Case(f"{name}, 2 x 3 x 32 x 32", build, blocks, "conv2", classify, lambda: batch)


def gpt2(layers: int = 24) -> Case:
    """Return the GPT-2 of `transformers` with narrow layers, and two sequences of 32."""

    def build() -> nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        sizes = {"n_layer": layers, "n_embd": 64, "n_head": 4, "n_positions": 32}
        tokens = {"vocab_size": 256, "bos_token_id": 0, "eos_token_id": 0}
        return GPT2LMHeadModel(GPT2Config(**sizes, **tokens, use_cache=False))

    def run(model: nn.Module, batch: Any) -> torch.Tensor:
        return model(input_ids=batch, labels=batch).loss

    blocks = tuple(f"transformer.h.{n}" for n in range(layers))
    tokens = torch.randint(256, (2, 32), generator=torch.Generator().manual_seed(0))
    return Case(
        f"GPT-2, {layers} layers of 64, 2 x 32", build, blocks, "attn.c_attn", run, lambda: tokens
    )


CASES = {"resnet50": resnet, "gpt2": gpt2}


# Plans, by fixed rules.


def problem_of(step: TrainingStep) -> tuple[Problem, Capture]:
    """Capture a step, for a device with a slow link; the memory is that of plain training."""
    found = capture(step)
    assert found.network is not None
    problem = Problem(
        "host time",
        found.network,
        Platform(found.trace.peak_memory, SLOW_LINK),
        units=Units("ns", "B"),
        source={"clock": "modules", "capture": found.to_json()},
        recompute=Recompute.ANY,
    )
    return problem, found


def moves_at_a_quarter(problem: Problem) -> StepPlan:
    """Return a plan at a quarter of the memory: what makes room leaves just before it has to."""
    plain = replace(problem, recompute=Recompute.NONE)
    quarter = plain.with_memory(plain.memory_at(Fraction(1, 4)))
    schedule = solve(quarter, "sequential").result.schedule
    assert schedule is not None
    return step_plan(quarter, schedule)


def everything_leaves(problem: Problem) -> Plan:
    """Return the plan in which all that may leave spends all of its gaps on the host."""
    moves, left = [], set()
    for number, gap in enumerate(problem.trace.gaps):
        if gap.tensor not in left:
            left.add(gap.tensor)
            moves.append(Move(Kind.OFFLOAD, number, gap.before + 1))
        moves.append(Move(Kind.PREFETCH, number, gap.after))
    return Plan(moves)


def moves_everything(problem: Problem) -> StepPlan:
    """Return a plan under which all that may leave leaves."""
    plain = replace(problem, recompute=Recompute.NONE)
    return step_plan(plain, everything_leaves(plain))


def runs_again(
    problem: Problem, found: Capture, placed: PlacedProgram, *, moves: bool = False
) -> StepPlan:
    """Return a plan under which segments run again; `moves`: and all that may leave leaves."""
    assert found.network is not None
    assert found.record is not None
    program = program_of(placed, found.ranges, found.ticks)
    execution = carry(found.network, program, found.ranges, found.record, found.ticks).execution
    executed = problem.executed(execution)
    plan = everything_leaves(executed) if moves else Plan()
    problem = problem.with_memory(predict(executed.trace, plan).peak)
    return step_plan(problem, plan, execution)


def searched(problem: Problem, seconds: float) -> StepPlan:
    """Return the plan of a certificate at a quarter of the memory."""
    quarter = problem.with_memory(problem.memory_at(Fraction(1, 4)))
    return step_plans(certify(quarter, time_limit=seconds), None)[0]


# Steps that are measured.


class Way:
    """A model that is trained in one way.

    Parameters
    ----------
    case : Case
        Network and step.
    context : callable, optional
        Gives the context around the training.
    segments : int
        How many calls of segments run again in a step.
    """

    def __init__(
        self,
        case: Case,
        context: Callable[[nn.Module], AbstractContextManager[Any]] = lambda model: nullcontext(),
        segments: int = 0,
    ) -> None:
        self._step = case.step()
        self.model = self._step.model
        self._batch = self._step.make_batch()
        self._optimiser = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)
        self.context = context(self.model)
        self.segments = segments
        plans = self.context.step_plans if isinstance(self.context, Offload) else []
        self.host_bytes = sum(plan.host.pool for plan in plans)
        self.calls: list[int] = []
        self.seconds: list[float] = []

    def run(self) -> None:
        """Take one step."""
        self._step.execute(self._batch)
        self._optimiser.step()
        self._optimiser.zero_grad()

    def count(self) -> None:
        """Count the calls of functions in one step."""
        profiler = cProfile.Profile()
        profiler.enable()
        self.run()
        profiler.disable()
        self.calls.append(sum(each.callcount for each in profiler.getstats()))

    def time(self) -> None:
        """Measure the processor time of one step, in seconds."""
        begun = time.process_time()
        self.run()
        self.seconds.append(time.process_time() - begun)

    def require_planned(self) -> None:
        """Assert that all steps have followed their plan."""
        if isinstance(self.context, Offload):
            steps = dict(self.context.steps)
            assert set(steps) == {"planned"}, (steps, self.context.report.deviation)


def checkpointed(case: Case, model: nn.Module) -> AbstractContextManager[None]:
    """Let PyTorch checkpoint every block of a model."""
    for block in map(model.get_submodule, case.blocks):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
    return nullcontext()


def ways_of(
    case: Case, seconds: float | None, without: Collection[str] = ()
) -> Iterator[tuple[str, Way]]:
    """Yield the ways in which a case is trained, by name, without some of the plans."""
    yield "plain", Way(case)
    yield "checkpointed", Way(case, partial(checkpointed, case), len(case.blocks))
    problem, found = problem_of(case.step())
    blocks = PlacedProgram(map(PlacedSegment, case.blocks))
    others = PlacedProgram(
        PlacedSegment(block, kept=(Kept(ENTER, f"{block}.{case.kept}"),))
        for block in case.blocks[::2]
    )
    rules: dict[str, Callable[[], StepPlan]] = {
        "empty plan": lambda: step_plan(replace(problem, recompute=Recompute.NONE), Plan()),
        "moves": lambda: moves_at_a_quarter(problem),
        "moves all": lambda: moves_everything(problem),
        "runs again": lambda: runs_again(problem, found, blocks),
        "keeps and moves": lambda: runs_again(problem, found, others, moves=True),
    }
    if seconds is not None:
        rules["searched"] = lambda: searched(problem, seconds)
    for name, rule in rules.items():
        if name not in without:
            plan = rule()
            segments = len(list(plan.segments.nested()))
            yield name, Way(case, lambda model, plan=plan: Offload(model, [plan]), segments)


def measure(
    case: Case, steps: int, seconds: float | None = None, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return a row for each way in which a case is trained, without some of the plans."""
    ways = dict(ways_of(case, seconds, without))
    with ExitStack() as contexts, warnings.catch_warnings():
        warnings.simplefilter("error", OffloadWarning)
        for way in ways.values():
            contexts.enter_context(way.context)
            for _ in range(WARMING):
                way.run()
        # What the collector of garbage does is no work of a step, and falls on any of them.
        gc.collect()
        gc.disable()
        contexts.callback(gc.enable)
        for way in ways.values():
            way.count()
            way.count()
        for _ in range(steps):
            for way in ways.values():
                way.time()
        for way in ways.values():
            way.require_planned()
    plain, theirs = ways["plain"], ways["checkpointed"]
    rows = []
    for name, way in ways.items():
        calls, time_taken = max(way.calls), statistics.median(way.seconds)
        more = calls - max(plain.calls)
        rows.append(
            {
                "network": case.label,
                "way": name,
                "calls": calls,
                "calls_by_step": way.calls,
                "segments": way.segments,
                "host_bytes": way.host_bytes,
                "calls_a_segment": more / way.segments if way.segments else None,
                "milliseconds": 1000 * time_taken,
                "to_checkpointing": time_taken / statistics.median(theirs.seconds),
                "to_plain": time_taken / statistics.median(plain.seconds),
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| network | way | calls a step | to plain | segments | calls a segment "
        "| processor, ms | to checkpointing |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    plain = math.nan
    for row in rows:
        plain = row["calls"] if row["way"] == "plain" else plain
        a_segment = f"{row['calls_a_segment']:,.0f}" if row["segments"] else "-"
        lines.append(
            f"| {row['network']} | {row['way']} | {row['calls']:,} | {row['calls'] / plain:.2f} "
            f"| {row['segments'] or '-'} | {a_segment} | {row['milliseconds']:.1f} "
            f"| {row['to_checkpointing']:.2f} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure every case, print the table and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES), help="resnet50, gpt2")
    parser.add_argument("--steps", type=int, default=10, help="steps whose time is taken")
    parser.add_argument("--searched", type=float, help="seconds of a search for one more plan")
    parser.add_argument("--json", help="file for the rows")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for name in options.cases:
        rows += measure(CASES[name](), options.steps, options.searched)
    print(table(rows))
    if options.json:
        write_json(options.json, {"torch": torch.__version__, "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
