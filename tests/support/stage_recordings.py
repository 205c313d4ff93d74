"""Recordings of real networks for the tests of stages."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from offcert.runtime.workloads.workload import Workload
from offcert_lab.stages.recording import StagesRecorder, prepare


def real_recording(model: nn.Module, workload: Workload) -> StagesRecorder:
    """Run one step of the real network under the recorder."""
    prepared = prepare(model, workload)
    recorder = StagesRecorder(replace(prepared.fake, root=prepared.traced), workload.loss)
    inputs, labels = prepared.batches.draw(torch.Generator().manual_seed(0))
    with recorder.active():
        recorder.step(inputs, labels).backward()
    return recorder
