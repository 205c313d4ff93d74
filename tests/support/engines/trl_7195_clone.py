"""trl#7195, the second of two: what is saved is cloned in the stream that copies.

The backward pass finds the clone in the stash and reads it in the stream that computes, which has
waited for nothing; and the clone's memory belongs to the stream that copies.
"""

from typing import Any

import torch

from support.engines.small import batch, gradients, network


class Offload(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self, mended: bool) -> None:
        self.mended = mended
        self.copying = torch.cuda.Stream()
        self.stash: dict[int, Any] = {}
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor: torch.Tensor) -> Any:
        if self.mended:
            tensor = tensor.clone()
        self.copying.wait_stream(torch.cuda.current_stream())
        tensor.record_stream(self.copying)
        with torch.cuda.stream(self.copying):
            if not self.mended:
                tensor = tensor.clone()  # first
            host = torch.empty(tensor.shape, pin_memory=True)
            host.copy_(tensor, non_blocking=True)
        number = len(self.stash)
        self.stash[number] = tensor, host
        return number

    def unpack(self, number: int) -> torch.Tensor:
        return self.stash[number][0]


def step(mended: bool) -> Any:
    model, offload = network(1), Offload(mended)
    with offload:
        loss = torch.sin(model(batch())).mean()
    loss.backward()  # second
    torch.cuda.synchronize()
    return gradients(model)
