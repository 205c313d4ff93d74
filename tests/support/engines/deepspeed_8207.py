"""DeepSpeed#8207: the optimiser on the host reads gradients before they have arrived.

Such copies are made ``non_blocking`` there, into pinned memory, and somebody has to wait for them,
as the review of DeepSpeed#501 says.
"""

from typing import Any

import torch


def step(mended: bool) -> Any:
    copying = torch.cuda.Stream()
    master = torch.zeros(16)
    landing = torch.empty(16, pin_memory=True)
    for turn in range(2):
        gradient = torch.full((16,), float(turn + 1), device="cuda")
        copying.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copying):
            landing.copy_(gradient, non_blocking=True)  # first
        arrived = copying.record_event()
        if mended:
            arrived.synchronize()
        master.sub_(landing, alpha=0.1)  # second
        torch.cuda.synchronize()
    return master
