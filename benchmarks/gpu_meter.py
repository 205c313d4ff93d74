"""Measures steps for `make gpu`: on a CUDA device, or on the simulated one where there is none."""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import torch
from gpu_networks import build
from runtime_ways import live_bytes_of
from torch import nn

from offcert.core.platform import Platform
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture import read_capture
from offcert.runtime.capture.run import Nobody
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.cuda import CudaDevice
from offcert.runtime.device.interface import Device
from offcert.runtime.profiling.timing import Timing
from offcert.runtime.simulated.device import SimulatedDevice
from offcert.runtime.streaming.step_events import Stopwatch
from offcert.runtime.watch.events import ENTER
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.sharded import local
from offcert.runtime.watch.tracker import LiveBytes
from offcert.runtime.workloads.turns import reproducible

# Of the stated hardware model and of the link where nothing is measured. Arbitrary.
HARDWARE = "v100-pcie"
LINK = Platform(0, Fraction(12), prefetch_bandwidth=Fraction(11))
# Steps before measuring; steps of which the median counts, and seconds after which two are enough.
_WARM_UP, _STEPS, _SECONDS = 3, 6, 6.0
# Bytes that are pinned to know how long more takes. Arbitrary.
_PINNED = 2**28
_MS = 1e6


class Bench:
    """A training step and the device that it trains on.

    Parameters
    ----------
    name : str
        Of `gpu_networks.NETWORKS`.

    Attributes
    ----------
    step : TrainingStep
        The step; its model has gradients, which steps add to.
    where : torch.device
        Of its tensors.
    simulated : bool
        Whether the device is simulated, because no CUDA device is at hand.
    """

    def __init__(self, name: str) -> None:
        self.simulated = not torch.cuda.is_available()
        self.where = torch.device("cpu" if self.simulated else "cuda")
        self.step: TrainingStep = build(name, self.where)
        self.model: nn.Module = self.step.model
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)

    @property
    def name(self) -> str:
        """The device's name."""
        return "simulated" if self.simulated else str(torch.cuda.get_device_name(self.where))

    def device(self, platform: Platform = LINK, **options: Any) -> Device:
        """Return a device that nothing has used yet; of a simulated one, platform and options."""
        if not self.simulated:
            return CudaDevice(self.where, timed=True)
        # The one place where the time of the host is said: here it takes none.
        return SimulatedDevice(platform, **options)

    def pinning_ms(self, size: int) -> float:
        """Return the milliseconds in which so many bytes are pinned, by how long some took."""
        if self.simulated:
            return 0.0
        begun = time.perf_counter()
        self.device().arena(_PINNED).close()
        return 1000 * (time.perf_counter() - begun) * size / _PINNED

    @contextmanager
    def clock(self, problem: Problem, device: Device) -> Iterator[None]:
        """Tell a simulated device what runs, modules that run once more included."""
        if not self.simulated:
            yield
            return
        trace = problem.plain().trace
        captured = read_capture(problem.source, trace)
        hooks = Hooks(self.model, Nobody())
        timing = Timing(hooks, captured, Stopwatch(device))
        hooks.steps = timing
        hooks.attach({event.path for event in captured.ticks}.__contains__)
        ticks = zip(captured.ticks, trace.operations, strict=True)
        begun = [(e.path, o.duration) for e, o in ticks if e.kind == ENTER]
        calls = Counter(path for path, _ in begun)
        handles = [
            module.register_forward_hook(_Again(device, calls[path], dict(begun)[path]))
            for path, module in self.model.named_modules()
            if path in calls
        ]
        try:
            yield
        finally:
            hooks.detach()
            for handle in handles:
                handle.remove()

    @contextmanager
    def counting(self) -> Iterator[LiveBytes | None]:
        """Count live bytes where no allocator does, without gradients of parameters."""
        if not self.simulated:
            yield None
            return
        with live_bytes_of(self.model) as counter:
            yield counter

    def repeat(
        self,
        once: Callable[[Any], None],
        device: Device | None,
        counter: LiveBytes | None = None,
        after: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Run steps; return the columns of a row that are measured.

        Parameters
        ----------
        once : callable
            Runs a step on a batch.
        device : Device or None
            Whose events tell the time; None: the host's clock does.
        counter : LiveBytes, optional
            Tells the peak instead of the device's allocator.
        after : callable
            What is to be done after each step, beside its time.
        """
        batch, watch = self.step.make_batch(), Stopwatch(device)
        first = self._first(once, batch, device)
        after()
        if not self.simulated:
            for _ in range(_WARM_UP):
                once(batch)
                after()
        before = None if device is None else device.memory().allocated
        if device is not None:
            device.reset_peaks()
        times, host, since = [], [], time.monotonic()
        while len(times) < (2 if self.simulated else _STEPS):
            if counter is not None:
                counter.start()
            begin, handed = watch.mark(), time.perf_counter_ns()
            once(batch)
            host.append(time.perf_counter_ns() - handed)
            times += watch.between([begin, watch.mark()])
            after()
            if len(times) > 1 and time.monotonic() - since > _SECONDS:
                break
        found: dict[str, Any] = {
            "measured_ms": statistics.median(times) / _MS,
            # The host of a simulated device does what the device would.
            "host_ms": None if self.simulated else statistics.median(host) / _MS,
            "first_ms": first,
        }
        if counter is not None:
            found["peak_allocated"] = counter.peak
        elif device is not None and before is not None and not self.simulated:
            reading = device.memory()
            found["peak_allocated"] = reading.peak_allocated - before
            found["peak_reserved"] = reading.peak_reserved - before
        return found

    def _first(self, once: Callable[[Any], None], batch: Any, device: Device | None) -> float:
        """Return the milliseconds of the first step: by a clock on the wall where there is a card.

        A step that a simulated device has not been told of yet takes what it takes on its clock.
        """
        watch = Stopwatch(device if self.simulated else None)
        begun = watch.mark()
        once(batch)
        if device is not None:
            device.synchronise()
        return watch.between([begun, watch.mark()])[0] / _MS

    def gradients(self, once: Callable[[Any], None]) -> list[torch.Tensor]:
        """Return the gradients of a step from a seed, by kernels that are the same every time."""
        trained = [each for each in self.model.parameters() if each.requires_grad]
        for parameter in trained:
            assert parameter.grad is not None
            parameter.grad.zero_()
        with reproducible(self.where), _deterministic():
            torch.manual_seed(1)
            once(self.step.make_batch())
        return [each.grad.clone() for each in trained if each.grad is not None]

    def free(self) -> None:
        """Give back memory that nothing uses, so that the next way begins as this one did."""
        gc.collect()
        if not self.simulated:
            torch.cuda.empty_cache()


@contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Return whether all bits of some tensors are equal."""
    pairs = zip(map(local, one), map(local, other), strict=True)
    return all(torch.equal(_bits(a), _bits(b)) for a, b in pairs)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


class _Again:
    """Lets a simulated device take its time for a module that is called more often than planned."""

    def __init__(self, device: Device, planned: int, duration: int) -> None:
        self._device, self._left, self._duration = device, planned, duration

    def __call__(self, *_: Any) -> None:
        """Take note of a call."""
        self._left -= 1
        if self._left < 0:
            self._device.ran(self._duration)
