"""trl#7195, the first of two: the computing stream is asked for once, where the engine is made.

The program then computes in another stream: the wait is for the wrong one.
"""

from typing import Any

import torch

from support.engines.small import batch, gradients, network


class Offload(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self, mended: bool) -> None:
        self.mended = mended
        self.computing = torch.cuda.current_stream()
        self.copying = torch.cuda.Stream()
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor: torch.Tensor) -> Any:
        if self.mended:
            self.computing = torch.cuda.current_stream()
        self.copying.wait_stream(self.computing)
        with torch.cuda.stream(self.copying):
            host = torch.empty(tensor.shape, pin_memory=True)
            host.copy_(tensor, non_blocking=True)  # second
        tensor.record_stream(self.copying)
        return host

    def unpack(self, host: torch.Tensor) -> torch.Tensor:
        self.copying.synchronize()
        return host.to("cuda")


def step(mended: bool) -> Any:
    model, x = network(), batch()
    offload, other = Offload(mended), torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        hidden = model[:2](x)
        with offload:
            loss = torch.sin(hidden * 2).mean()  # first
        loss.backward()
    torch.cuda.synchronize()
    return gradients(model)
