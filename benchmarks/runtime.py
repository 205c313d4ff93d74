"""Training under certified plans beside what others do, at equal measured peak; ratios in one run.

    python benchmarks/runtime.py [--device simulated|cuda] [--networks NAME,...] [--host] [-o FILE]

Every way to save memory trains the same step; its peak is measured (bytes above what was there
when the step began) and its time by the device's events. Then plans are made for that very peak,
one that only offloads and one that may run parts again, and measured, too. On a simulated device
operators take what a roofline says and copies what the link's rate says, to the nanosecond; peaks
are counted. On CUDA everything is measured. Figures are times over that of plain training, which
takes all the memory that it likes. ``--host`` takes plain steps and those by plans on a simulated
device behind the host at hand, too: in how far the device waits for Python then.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from runtime_rows import Row, table
from runtime_ways import (
    Checkpointed,
    MemoryBudget,
    Plain,
    SaveOnHost,
    Threshold,
    Way,
    live_bytes_of,
)
from torch import nn

from offcert.certification.ladder import certify
from offcert.core.documents import write_json
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.carried import launch_times
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.capture import read_capture
from offcert.runtime.capture.run import Nobody
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.cuda import CudaDevice, versions
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.pairs.train_device import HostedSteps
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.profiling.profile import profile
from offcert.runtime.profiling.timing import Timing
from offcert.runtime.simulated.device import SimulatedDevice
from offcert.runtime.simulated.host import RealHost
from offcert.runtime.streaming.step_events import Stopwatch, forecast
from offcert.runtime.watch.events import ENTER
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.tracker import LiveBytes
from offcert.runtime.workloads.standard_step import standard_step
from offcert.runtime.workloads.workload import Workload

HARDWARE = "v100-pcie"
WAYS: tuple[Way, ...] = (SaveOnHost(), Threshold(), Checkpointed(), MemoryBudget())
SHAPES = {
    "simulated": {
        "resnet50": (4, 3, 64, 64),
        "densenet121": (4, 3, 64, 64),
        "gpt-tiny": (8, 32),
    },
    "cuda": {
        "resnet50": (128, 3, 224, 224),
        "densenet121": (64, 3, 224, 224),
        "gpt": (16, 1024),
    },
}
# A plan whose measured peak is above the one it is for is made again for that much less.
_TRIES = 4
# Steps before measuring, on CUDA: libraries choose kernels, and allocators fill their caches.
_WARM_UP = 3


class Bench:
    """One network on one device.

    Parameters
    ----------
    name : str
        Of the zoo.
    shape : tuple of int
        Of its input.
    kind : str
        ``"simulated"`` or ``"cuda"``.
    seconds : float
        For each plan to be found in.
    repetitions : int
        Steps to take the median of; one is enough where nothing is measured.
    host : bool
        Whether steps are taken behind the host at hand, too.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        kind: str,
        seconds: float,
        repetitions: int,
        host: bool = False,
    ) -> None:
        workload = Workload(name, shape)
        model = workload.load()
        self.name = name
        self._simulated = kind == "simulated"
        self._seconds = seconds
        self.host = host and self._simulated
        self._repetitions = 1 if self._simulated else repetitions
        if not self._simulated:
            model = model.to("cuda")
        self.step: TrainingStep = standard_step(model, workload)
        self.problem: Problem = (
            profile(self.step, hardware=HARDWARE, recompute="none")
            if self._simulated
            else profile(self.step, measure=True, recompute="none")
        )
        self._capture = read_capture(self.problem.source, self.problem.plain().trace)
        self._forward = {
            event.path: operation.duration
            for event, operation in zip(
                self._capture.ticks, self.problem.plain().trace.operations, strict=True
            )
            if event.kind == ENTER and event.call == 0
        }

    def device(self) -> Device:
        """Return a device that nothing has used yet."""
        if self._simulated:
            return SimulatedDevice(self.problem.platform)
        return CudaDevice(next(self.step.model.parameters()).device, timed=True)

    def way(self, way: Way) -> Row:
        """Measure a way that needs no plan."""
        if self._simulated and not way.everywhere:
            note = f"{way.source}: not on a simulated device"
            return Row(self.name, way.name, way.name, None, None, note=note)
        device = self.device()
        with self._counting() as counter, way.context(self.step.model, device, counter) as saving:
            step = replace(self.step, model=way.model(self.step.model))

            def once(batch: Any) -> None:
                with self._clock(device) if self._simulated else nullcontext():
                    step.execute(batch)

            def after() -> None:
                if saving is not None:
                    saving.end_step()

            time, peak = self._repeat(once, device, counter, after)
        behind = self._behind(None) if isinstance(way, Plain) else None
        return Row(self.name, way.name, way.name, peak, time, behind=behind, note=way.source)

    def _behind(self, plan: StepPlan | None) -> int | None:
        """Return the time of a step without a plan or by one, behind the host at hand."""
        if not self.host:
            return None
        steps = HostedSteps(self.problem.platform, RealHost())
        if plan is not None:
            return steps.planned(self.step, plan)[0].time
        return steps.plain(self.step, self.problem.plain().trace.durations).time

    @contextmanager
    def _clock(self, device: Device) -> Iterator[None]:
        """Tell a simulated device what runs, parts that run again included."""
        hooks = Hooks(self.step.model, Nobody())
        timing = Timing(hooks, self._capture, Stopwatch(device))
        hooks.steps = timing
        hooks.attach({event.path for event in self._capture.ticks}.__contains__)
        again = [self._again(module, path, device) for path, module in self._ticked()]
        try:
            yield
        finally:
            hooks.detach()
            for handle in again:
                handle.remove()
        timing.require_complete()

    def _ticked(self) -> Iterator[tuple[str, nn.Module]]:
        return ((p, m) for p, m in self.step.model.named_modules() if p in self._forward)

    def _again(self, module: nn.Module, path: str, device: Device) -> Any:
        """Let a simulated device take its time for a module that is called more often."""
        planned = sum(e.kind == ENTER and e.path == path for e in self._capture.ticks)
        calls = 0

        def called(*_: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > planned:
                device.ran(self._forward[path])

        return module.register_forward_hook(called)

    def planned(self, at: Row, recompute: Recompute) -> Row:
        """Measure a plan for the peak of another way."""
        name = "offload and recompute" if recompute is Recompute.ANY else "offload"
        assert at.peak is not None
        limit = at.peak
        for _ in range(_TRIES):
            certificate = self._certified(limit, recompute)
            if certificate.result.schedule is None:
                status = f"no plan at {limit} bytes: {certificate.result.status}"
                return Row(self.name, name, at.way, None, None, note=status)
            row = self._follow(certificate, name, at)
            assert row.peak is not None
            if row.peak <= at.peak:
                return row
            limit -= row.peak - at.peak
        return replace(row, note=f"peak above that of {at.way}")

    def _certified(self, limit: int, recompute: Recompute) -> Certificate:
        problem = self.problem
        if problem.computed is not None:
            problem = replace(problem, recompute=recompute)
        return certify(problem.with_memory(limit), time_limit=self._seconds, target_gap=1e-3)

    def _follow(self, certificate: Certificate, name: str, at: Row) -> Row:
        device = self.device()
        made = follow(
            self.step.model,
            certificate,
            options=FollowOptions(device=device, timed=True, count=self._simulated),
        )
        with made:

            def once(batch: Any) -> None:
                self.step.execute(batch)

            def after() -> None:
                assert made.report.planned, made.report.deviation

            time, peak = self._repeat(once, device, None, after)
            if self._simulated:
                peak = made.report.peak
        [program] = made.step_plans
        assert program.timetable is not None
        predicted = forecast(program.problem, program.timetable).makespan
        launches = launch_times(certificate.problem, certificate.result.execution)
        hosted = None
        if launches is not None and len(launches) == len(program.problem.trace):
            times = forecast(program.problem, program.timetable, launches=launches)
            hosted = times.makespan
        found = Row(self.name, name, at.way, peak, time, predicted=predicted, hosted=hosted)
        bound = certificate.result.lower_bound
        return replace(found, bound=bound, behind=self._behind(program))

    def _repeat(
        self,
        once: Callable[[Any], None],
        device: Device,
        counter: LiveBytes | None,
        after: Callable[[], None],
    ) -> tuple[int, int]:
        """Return the median time of a step, and its peak."""
        if not self._simulated:
            for _ in range(_WARM_UP):
                once(self.step.make_batch())
                after()
        times = []
        batches = [self.step.make_batch() for _ in range(self._repetitions)]
        before = device.memory().allocated
        device.reset_peaks()
        for batch in batches:
            if counter is not None:
                counter.start()
            begin = device.compute.record()
            once(batch)
            end = device.compute.record()
            device.synchronise()
            times.append(device.nanoseconds(begin, end))
            after()
        peak = device.memory().peak_allocated - before if counter is None else counter.peak
        return round(statistics.median(times)), peak

    @contextmanager
    def _counting(self) -> Iterator[LiveBytes | None]:
        """Count live bytes where no allocator does; gradients of parameters are not counted."""
        if not self._simulated:
            yield None
            return
        with live_bytes_of(self.step.model) as counter:
            yield counter


def measure(bench: Bench, tell: Callable[[str], None]) -> Iterator[Row]:
    """Yield a row for every way, and for the plans at its peak."""
    plain = bench.way(Plain())
    assert plain.time is not None
    total = plain.time

    def rated(row: Row) -> Row:
        return row if row.time is None else replace(row, ratio=row.time / total)

    yield rated(plain)
    for way in WAYS:
        tell(f"{bench.name}: {way.name}")
        found = rated(bench.way(way))
        yield found
        if found.peak is None:
            continue
        for recompute in (Recompute.NONE, Recompute.ANY):
            tell(f"{bench.name}: a plan at the peak of {way.name}, recompute {recompute}")
            yield rated(bench.planned(found, recompute))


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=tuple(SHAPES), default="simulated")
    parser.add_argument("--networks", help="names, with a comma between; by default all")
    parser.add_argument("--shape", help="of all inputs, such as 2x3x32x32")
    parser.add_argument("--time-limit", type=float, default=20, help="seconds for each plan")
    parser.add_argument("--repetitions", type=int, default=7, help="steps, on CUDA")
    parser.add_argument("--host", action="store_true", help="behind the host at hand, too")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file")
    options = parser.parse_args(arguments)
    shapes: dict[str, tuple[int, ...]] = dict(SHAPES[options.device])
    if options.networks:
        shapes = {name: shapes.get(name, ()) for name in options.networks.split(",")}
    if options.shape:
        shapes = dict.fromkeys(shapes, tuple(map(int, options.shape.split("x"))))
    rows: list[Row] = []

    def tell(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    for name, shape in shapes.items():
        settings = options.device, options.time_limit, options.repetitions, options.host
        bench = Bench(name, shape, *settings)
        rows += measure(bench, tell)
    tell("")
    print(table(rows))
    if options.output is not None:
        document: dict[str, Any] = {
            "device": options.device,
            "torch": str(torch.__version__),
            "shapes": {name: list(shape) for name, shape in shapes.items()},
            "rows": [asdict(row) for row in rows],
        }
        if options.device == "cuda":
            document["versions"] = versions(torch.device("cuda"))
        write_json(options.output, document)


if __name__ == "__main__":
    main()
