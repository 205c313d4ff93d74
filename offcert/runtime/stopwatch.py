"""Marks in time, on the CPU's clock or on the stream's."""

from __future__ import annotations

import time

import torch

Mark = int | torch.cuda.Event


def mark(device: torch.device) -> Mark:
    """Return now: nanoseconds, or an event in the current stream of a CUDA device."""
    if device.type != "cuda":
        return time.perf_counter_ns()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def nanoseconds(begun: Mark, ended: Mark) -> int:
    """Return the time between two marks; those of a stream must have been reached."""
    if isinstance(begun, int) and isinstance(ended, int):
        return ended - begun
    assert isinstance(begun, torch.cuda.Event)
    assert isinstance(ended, torch.cuda.Event)
    return round(begun.elapsed_time(ended) * 1e6)
