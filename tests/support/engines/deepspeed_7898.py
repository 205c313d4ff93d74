"""DeepSpeed#7898: who reduces gradients waits for the default stream, whatever stream made them.

Autograd runs each backward operator in the stream of its forward operator, here another one.
"""

from typing import Any

import torch

from support.engines.small import batch, network


def step(mended: bool) -> Any:
    model = network(1)
    reducing, other = torch.cuda.Stream(), torch.cuda.Stream()
    reduced = []

    def reduce(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        made = torch.cuda.current_stream() if mended else torch.cuda.default_stream()
        reducing.wait_stream(made)
        with torch.cuda.stream(reducing):
            reduced.append(parameter.grad / 2)  # second
        parameter.grad.record_stream(reducing)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce)
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        loss = model(batch()).square().mean()
    torch.cuda.current_stream().wait_stream(other)
    loss.backward()  # first
    torch.cuda.synchronize()
    return reduced
