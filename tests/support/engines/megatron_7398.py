"""Megatron-LM#7398: a copy back that the backward pass starts itself waits for no copy out.

The bulk path waits for the event of the group; the path for a tensor whose turn has come does not.
"""

from typing import Any

import torch

from support.engines.small import batch, gradients, network


class Offload(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self, mended: bool) -> None:
        self.mended = mended
        self.out = torch.cuda.Stream()
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor: torch.Tensor) -> Any:
        self.out.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.out):
            host = torch.empty(tensor.shape, pin_memory=True)
            host.copy_(tensor, non_blocking=True)  # first
        tensor.record_stream(self.out)
        return host, self.out.record_event()

    def unpack(self, packed: Any) -> torch.Tensor:
        host, event = packed
        if self.mended:
            torch.cuda.current_stream().wait_event(event)
        return host.to("cuda", non_blocking=True)  # second


def step(mended: bool) -> Any:
    model, offload = network(), Offload(mended)
    with offload:
        loss = model(batch()).square().mean()
    loss.backward()
    return gradients(model)
