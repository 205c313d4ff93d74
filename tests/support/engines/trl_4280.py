"""trl#4280: a step of which something is never differentiated leaves the engine in the one before.

The hooks number what they save, and forget a number when it is asked for. The next forward pass
finds numbers that nobody has asked for, and gives up. No wait is missing: it fails by itself.
"""

from typing import Any

import torch

from support.engines.small import batch, gradients, network


class Offload(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self, mended: bool) -> None:
        self.mended = mended
        self.numbers: dict[int, torch.Tensor] = {}
        self.forward = False
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor: torch.Tensor) -> Any:
        if not self.forward:
            if self.mended:
                self.numbers = {}
            if self.numbers:
                raise ValueError(f"{len(self.numbers)} tensors were never asked for")  # fails
            self.forward = True
        number = len(self.numbers)
        self.numbers[number] = tensor.cpu()
        return number

    def unpack(self, number: int) -> torch.Tensor:
        self.forward = False
        return self.numbers.pop(number).cuda()


def step(mended: bool) -> Any:
    model, offload = network(), Offload(mended)
    for _ in range(2):
        with offload:
            loss = model(batch()).square().mean()
            # Of the batch's accuracy, say; nobody calls `backward` on it.
            beside = torch.sin(loss * 2)
        loss.backward()
        del beside
    return gradients(model)
