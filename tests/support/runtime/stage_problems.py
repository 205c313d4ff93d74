"""Problems and schedules for the tests of the runtime."""

from __future__ import annotations

from fractions import Fraction

from torch import nn

from offcert.core.platform import Kind, Platform
from offcert.core.units import Units
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.runtime.stages.recording import StagesRecorder, StagesRecording, prepare, record
from offcert.runtime.workloads.workload import Workload
from support.runtime.captured import evict_everything

__all__ = ["evict_everything", "problem_of", "real_recording", "serial_schedule"]


def problem_of(model: nn.Module, shape: tuple[int, ...], loss: str = "mean") -> Problem:
    """Profile a module of a test, without times."""
    workload = Workload(None, shape, loss=loss)
    trace = record(prepare(model, workload)).trace
    platform = Platform(trace.peak_memory, Fraction(1))
    return Problem("test", trace, platform, units=Units("ns", "B"), source=workload.source())


def serial_schedule(problem: Problem) -> Schedule:
    """Evict every gap, with the device waiting for every transfer."""
    trace = problem.trace
    now = 0
    starts, ends, transfers = [], [], []
    offloaded = set()

    def move(kind: Kind, number: int) -> None:
        nonlocal now
        end = now + problem.platform.transfer_time(trace.gap_size(number), kind)
        transfers.append(Transfer(kind, number, now, end))
        now = end

    for index, operation in enumerate(trace.operations):
        for number, gap in enumerate(trace.gaps):
            if gap.after == index:
                move(Kind.PREFETCH, number)
        starts.append(now)
        now += operation.duration
        ends.append(now)
        for number, gap in enumerate(trace.gaps):
            if gap.before == index and gap.tensor not in offloaded:
                offloaded.add(gap.tensor)
                move(Kind.OFFLOAD, number)
    return Schedule(starts, ends, transfers)


def real_recording(model: nn.Module, workload: Workload) -> tuple[StagesRecording, StagesRecorder]:
    """Run one step of the real network under the recorder."""
    import torch

    prepared = prepare(model, workload)
    recorder = StagesRecorder(prepared.staged())
    inputs, labels = prepared.batches.draw(torch.Generator().manual_seed(0))
    with recorder.active():
        recorder.step(inputs, labels).backward()
    return recorder.recording(), recorder
