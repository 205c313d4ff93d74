"""DeepSpeed#8186, the third of three: a state comes back over an activation that is still in use.

Its memory comes from the computing stream, where the backward pass has just dropped an activation.
Kernels before may still read that; the stream that copies does not wait for them.
"""

from typing import Any

import torch


def step(mended: bool) -> Any:
    copying, computing = torch.cuda.Stream(), torch.cuda.current_stream()
    host = torch.full((16,), 5.0, pin_memory=True)
    gradient = torch.zeros(16, device="cuda")
    activation = torch.ones(16, device="cuda")
    torch.cuda.synchronize()
    gradient.add_(activation)  # first
    del activation
    moment = torch.empty(16, device="cuda")
    if mended:
        copying.wait_stream(computing)
    with torch.cuda.stream(copying):
        moment.copy_(host, non_blocking=True)  # second
    computing.wait_stream(copying)
    gradient.sub_(moment)
    torch.cuda.synchronize()
    return gradient
