"""axolotl#3833, at the root of trl#7195: what came back is dropped before its use has ended.

It was allocated in the stream that copies, so the next copy back may get its memory at once.
"""

from typing import Any

import torch

from support.engines.small import batch, gradients, network


class Offload(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self, mended: bool) -> None:
        self.mended = mended
        self.copying = torch.cuda.Stream()
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor: torch.Tensor) -> Any:
        self.copying.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copying):
            host = tensor.to("cpu", non_blocking=True)
        tensor.record_stream(self.copying)
        return host

    def unpack(self, host: torch.Tensor) -> torch.Tensor:
        computing = torch.cuda.current_stream()
        with torch.cuda.stream(self.copying):
            device = host.to("cuda", non_blocking=True)  # second
        computing.wait_stream(self.copying)
        if self.mended:
            device.record_stream(computing)
        return device


def step(mended: bool) -> Any:
    model, offload = network(), Offload(mended)
    x = batch()
    torch.cuda.synchronize()
    with offload:
        loss = model(x).square().mean()
    loss.backward()  # first
    return gradients(model)
