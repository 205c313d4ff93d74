"""DeepSpeed#8186, the first of three: states leave while the optimiser may still write them.

The copies out run in a stream of their own, which does not wait for the optimiser's.
"""

from typing import Any

import torch


def step(mended: bool) -> Any:
    copying = torch.cuda.Stream()
    moment, host = torch.zeros(16, device="cuda"), torch.empty(16, pin_memory=True)
    torch.cuda.synchronize()
    for turn in range(2):
        moment.mul_(0.9).add_(turn + 1.0)  # first
        if mended:
            copying.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copying):
            host.copy_(moment, non_blocking=True)  # second
        torch.cuda.synchronize()
    return host
