"""Ways to train within one limit, side by side: offloading, recomputation, both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from offcert.core.errors import InputError
from offcert.questions.schedule.training_record import HostMemory
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.pairs.train import train
from offcert.runtime.pairs.train_device import DeviceKind, HostKind
from offcert.runtime.pairs.training_report import TrainReport
from offcert.runtime.plan.step_plan import CertificateLike


@dataclass(frozen=True)
class Way:
    """One of several plans for the same step, with training by it beside plain training.

    `means` says for people how the plan may save memory; `compute_time` are nanoseconds of all
    operations, each run once.
    """

    means: str
    report: TrainReport
    compute_time: int

    @property
    def plain_seconds(self) -> float:
        """Forward and backward passes of plain training; the first step warms up."""
        return sum(step.plain_seconds for step in _timed(self.report))

    @property
    def planned_seconds(self) -> float:
        """Seconds of the steps that were trained by the plan."""
        return sum(step.planned_seconds for step in _timed(self.report))

    @property
    def ratio(self) -> float:
        """Time of a step by the plan over that of a plain one.

        On a simulated device both are virtual: plain training takes the operations' durations, or
        what it takes behind the host at hand.
        """
        hosted = self.report.hosted
        if hosted is not None:
            return hosted.planned.time / max(hosted.plain.time, 1)
        record = self.report.record
        if self.report.device == DeviceKind.SIMULATED:
            taken = record.measured_time or record.predicted_time
            return taken / max(self.compute_time, 1)
        return self.planned_seconds / max(self.plain_seconds, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """Return the way as JSON values."""
        report = self.report
        steps = max(len(_timed(report)), 1)
        record = report.record
        return {
            "means": self.means,
            "device": report.device,
            "plain_seconds": self.plain_seconds / steps,
            "planned_seconds": self.planned_seconds / steps,
            "ratio": self.ratio,
            "predicted_time": record.predicted_time,
            "measured_time": record.measured_time,
            "predicted_peak": report.predicted_peak,
            "peak": report.peak if report.counted else None,
            "within_limit": max(report.peak, report.predicted_peak) <= report.limit,
            "offloaded_bytes": max((step.offloaded_bytes for step in report.steps), default=0),
            "bitwise_equal": report.bitwise_equal,
            "follows_prediction": report.follows_prediction,
            "ok": report.ok,
        }


@dataclass(frozen=True)
class Ways:
    """Several plans for the same step at the same limit, in the order in which they were given."""

    name: str
    limit: int
    unplanned_peak: int
    ways: tuple[Way, ...]

    @property
    def ok(self) -> bool:
        """Whether everything held for all of them."""
        return all(way.report.ok for way in self.ways)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "name": self.name,
            "limit": self.limit,
            "unplanned_peak": self.unplanned_peak,
            "ways": [way.to_dict() for way in self.ways],
            "ok": self.ok,
        }


def train_ways(
    certificates: Sequence[CertificateLike],
    *,
    steps: int = 3,
    seed: int = 0,
    model: Callable[[], nn.Module] | None = None,
    step: Callable[[], TrainingStep] | None = None,
    directory: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    count: bool = True,
    device: str = DeviceKind.AUTO,
    host: str = HostKind.NONE,
    host_memory: int | str | None = None,
    host_spill: bool | str = False,
    announce: Callable[[HostMemory], None] | None = None,
) -> Ways:
    """Train by several certificates for the same captured step, each beside plain training.

    All begin with the same weights, batches and random states. `model` or `step` make the network
    or the step anew, if the problem's source does not name it; all else is as for `train`:
    `progress` counts the steps of all, and `announce` is called for each.
    """
    _require_comparable(certificates)
    found = []
    total = steps * len(certificates)
    for index, certificate in enumerate(certificates):
        result = certificate.result
        if result.schedule is None:
            raise InputError(f"certificates[{index}] is {result.status}: it holds no schedule")

        def told(done: int, _: int, before: int = index * steps) -> None:
            if progress is not None:
                progress(before + done, total)

        report = train(
            certificate.problem.with_memory(_limit(certificate)),
            result.schedule,
            steps=steps,
            seed=seed,
            model=None if model is None else model(),
            step=None if step is None else step(),
            directory=directory,
            progress=told,
            count=count,
            execution=result.execution,
            device=device,
            host=host,
            host_memory=host_memory,
            host_spill=host_spill,
            announce=announce,
        )
        problem = certificate.problem
        found.append(Way(problem.means, report, problem.trace.compute_time))
    problem = certificates[0].problem
    return Ways(problem.name, _limit(certificates[0]), problem.trace.peak_memory, tuple(found))


def _limit(certificate: CertificateLike) -> int:
    memory = certificate.result.memory
    return certificate.problem.platform.memory if memory is None else memory


def _require_comparable(certificates: Sequence[CertificateLike]) -> None:
    if not certificates:
        raise InputError("certificates must not be empty")
    first = certificates[0]
    for index, other in enumerate(certificates):
        if _ticks(other) != _ticks(first):
            raise InputError(f"certificates[{index}] is for another step than certificates[0]")
        if _limit(other) != _limit(first):
            raise InputError(
                f"certificates[{index}] is for {_limit(other)} bytes, but certificates[0] for "
                f"{_limit(first)}"
            )


def _ticks(certificate: CertificateLike) -> Any:
    capture = (certificate.problem.source or {}).get("capture")
    return capture.get("ticks") if isinstance(capture, dict) else None


def _timed(report: TrainReport) -> Sequence[Any]:
    return report.steps[1:] or report.steps
