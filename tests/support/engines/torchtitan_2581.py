"""torchtitan#2581: the current stream is asked for inside the block of the stream that copies.

That stream waits for itself. It may copy what has not been computed yet, to memory of the pool that
the copies back of the step before may still read.
"""

from typing import Any

import torch

from support.engines.small import batch, gradients, network


class Offload(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self, mended: bool) -> None:
        self.mended = mended
        self.out, self.back = torch.cuda.Stream(), torch.cuda.Stream()
        self.slab = torch.zeros(64, 32, pin_memory=True)
        self.used = 0
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor: torch.Tensor) -> Any:
        host = self.slab[self.used, : tensor.numel()].view(tensor.shape)
        self.used += 1
        computing = torch.cuda.current_stream()
        with torch.cuda.stream(self.out):
            self.out.wait_stream(computing if self.mended else torch.cuda.current_stream())
            host.copy_(tensor, non_blocking=True)  # second
        tensor.record_stream(self.out)
        return host

    def unpack(self, host: torch.Tensor) -> torch.Tensor:
        computing = torch.cuda.current_stream()
        self.back.wait_stream(self.out)
        device = torch.empty(host.shape, device="cuda")
        self.back.wait_stream(computing)
        with torch.cuda.stream(self.back):
            device.copy_(host, non_blocking=True)  # first
        computing.wait_stream(self.back)
        return device


def step(mended: bool) -> Any:
    model, offload = network(1), Offload(mended)
    weight = next(model.parameters())
    for _ in range(2):
        offload.used = 0
        x = torch.sin(batch())  # first
        with offload:
            loss = torch.sin(x * weight[:4]).mean()  # first
        loss.backward()
    return gradients(model)[:1]
