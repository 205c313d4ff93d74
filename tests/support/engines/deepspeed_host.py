"""DeepSpeed#8186, the third: the optimiser on the host reads gradients before they have arrived.

The thread could not be read; DeepSpeed#8207 makes such copies ``non_blocking``, into pinned memory,
and DeepSpeed#501 asks in its review who waits for them.
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
