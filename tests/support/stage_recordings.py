"""Recordings of real networks for the tests of stages."""

from __future__ import annotations

import torch
from torch import nn

from offcert.runtime.workloads.workload import Workload
from offcert_lab.stages.recording import StagesRecorder, StagesRecording, prepare
from offcert_lab.stages.staged import StagedModel


def real_recording(model: nn.Module, workload: Workload) -> tuple[StagesRecording, StagesRecorder]:
    """Run one step of the real network under the recorder."""
    prepared = prepare(model, workload)
    recorder = StagesRecorder(StagedModel(prepared.fake.bind(prepared.traced), workload.loss))
    inputs, labels = prepared.batches.draw(torch.Generator().manual_seed(0))
    with recorder.active():
        recorder.step(inputs, labels).backward()
    return recorder.recording(), recorder
