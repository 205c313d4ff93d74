"""The link of the device at hand, its memory and its name."""

from __future__ import annotations

import os
import statistics
import time
from fractions import Fraction

import torch

from offcert.runtime.store import HostStore

_COPY_BYTES = 64 * 2**20


def bandwidths(device: torch.device, repetitions: int = 5) -> tuple[Fraction, Fraction]:
    """Return bytes per nanosecond to the host and to the device, as the runtime copies.

    Parameters
    ----------
    device : torch.device
        A CUDA device, or the CPU, whose "link" is the copy to a memory-mapped file.
    repetitions : int
        Copies to take the median of, after one to warm up.
    """
    on_device = torch.zeros(_COPY_BYTES, dtype=torch.uint8, device=device)
    on_host = HostStore(_COPY_BYTES, pinned=device.type == "cuda").view(0, _COPY_BYTES)
    out = copy_time(on_device, on_host, repetitions)
    back = copy_time(on_host, on_device, repetitions)
    return Fraction(_COPY_BYTES, out), Fraction(_COPY_BYTES, back)


def copy_time(source: torch.Tensor, target: torch.Tensor, repetitions: int) -> int:
    """Return the nanoseconds that one copy takes, at least one."""
    times = []
    for _ in range(repetitions + 1):
        begun = time.perf_counter_ns()
        target.copy_(source)
        if source.is_cuda or target.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter_ns() - begun)
    return max(1, round(statistics.median(times[1:])))


def memory_and_name(device: torch.device) -> tuple[int, str]:
    """Return the bytes of the device's memory, and what it is called."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1], torch.cuda.get_device_name(device)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "cpu"
