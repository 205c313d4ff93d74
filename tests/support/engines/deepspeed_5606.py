"""DeepSpeed#5606: a bucket of gradients is filled again while it is being reduced.

The stream that reduces waits for the one that computes, and nobody waits the other way round.
"""

from typing import Any

import torch


def step(mended: bool) -> Any:
    reducing = torch.cuda.Stream()
    bucket = torch.empty(16, device="cuda")
    total = torch.zeros(16, device="cuda")
    for turn in range(3):
        gradient = torch.full((16,), float(turn), device="cuda")
        if mended:
            torch.cuda.current_stream().wait_stream(reducing)
        bucket.copy_(gradient)  # second
        reducing.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(reducing):
            total.add_(bucket)  # first
    torch.cuda.synchronize()
    return total
