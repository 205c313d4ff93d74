"""Engines in which nothing is wrong: each of them waits for all that it has to."""

from typing import Any

import torch

from offcert.runtime.compiled.operators import OFFLOAD, RELOAD, WAIT
from support.engines.small import batch, gradients, network


def save_on_cpu() -> Any:
    """PyTorch's own hooks, with pinned memory and two steps of an optimiser."""
    model = network()
    optimiser = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimiser.zero_grad()
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = model(batch()).square().mean()
        loss.backward()
        optimiser.step()
    return model, loss.item()


class AsyncOperators(torch.autograd.graph.saved_tensors_hooks):
    """Saved tensors, moved by the operators of compiled plans."""

    def __init__(self) -> None:
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor: torch.Tensor) -> Any:
        host = OFFLOAD(tensor)
        return WAIT(host, None, tensor), tensor.device

    def unpack(self, packed: Any) -> torch.Tensor:
        host, device = packed
        return WAIT(RELOAD(host, device), None, host)


def compiled_operators() -> Any:
    """The operators that `offcert.backend` puts into graphs."""
    model = network()
    with AsyncOperators():
        loss = model(batch()).square().mean()
    loss.backward()
    return gradients(model)


def double_buffer() -> Any:
    """Two buffers of pinned memory and two of the device: one is filled while one is used."""
    copying = torch.cuda.Stream()
    hosts = [torch.empty(16, pin_memory=True) for _ in range(2)]
    devices = [torch.empty(16, device="cuda") for _ in range(2)]
    arrived = [torch.cuda.Event() for _ in range(2)]
    used = [torch.cuda.Event() for _ in range(2)]
    total = torch.zeros(16, device="cuda")
    copying.wait_stream(torch.cuda.current_stream())
    for turn in range(6):
        slot = turn % 2
        arrived[slot].synchronize()
        hosts[slot].fill_(float(turn))
        with torch.cuda.stream(copying):
            copying.wait_event(used[slot])
            devices[slot].copy_(hosts[slot], non_blocking=True)
            arrived[slot].record()
        torch.cuda.current_stream().wait_event(arrived[slot])
        total.add_(devices[slot])
        used[slot].record()
    return total.cpu()


def polled() -> Any:
    """A copy that the host asks for until it has arrived."""
    copying = torch.cuda.Stream()
    device = torch.ones(16, device="cuda")
    host = torch.empty(16, pin_memory=True)
    copying.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copying):
        host.copy_(device, non_blocking=True)
    event = copying.record_event()
    while not event.query():
        pass
    return host.sum().item()


def two_streams_backward() -> Any:
    """A forward pass in two streams; autograd waits in the backward pass where it must."""
    model, other = network(2), torch.cuda.Stream()
    hidden = model[:2](batch())
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        hidden.record_stream(other)
        loss = model[2:](hidden).square().mean()
    torch.cuda.current_stream().wait_stream(other)
    loss.backward()
    del loss, hidden
    for each in model.parameters():
        assert each.grad is not None
        each.grad.mul_(2)
    return gradients(model)


def checkpointed() -> Any:
    """Recomputation, whose saved tensors are on the host."""
    from torch.utils.checkpoint import checkpoint

    model = network()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        x = batch().requires_grad_()
        for layer in model:
            x = checkpoint(layer, x, use_reentrant=False)
    x.sum().backward()
    return gradients(model)


def emptied() -> Any:
    """Storages of the device that are emptied and filled again, as for sharded parameters."""
    copying = torch.cuda.Stream()
    weight = torch.ones(16, device="cuda")
    host = torch.empty(16, pin_memory=True)
    host.copy_(weight)
    total = torch.zeros(16, device="cuda")
    for _ in range(2):
        copying.wait_stream(torch.cuda.current_stream())
        weight.untyped_storage().resize_(0)
        weight.untyped_storage().resize_(64)
        with torch.cuda.stream(copying):
            weight.copy_(host, non_blocking=True)
        torch.cuda.current_stream().wait_stream(copying)
        total.add_(weight)
    return total.tolist()


def columns() -> Any:
    """Two streams that write columns of one tensor, none of which they share."""
    other = torch.cuda.Stream()
    board = torch.zeros(8, 8, device="cuda")
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        board[:, ::2].fill_(1)
    board[:, 1::2].fill_(2)
    torch.cuda.synchronize()
    return board


CLEAN = (
    save_on_cpu, compiled_operators, double_buffer, polled, two_streams_backward,
    checkpointed, emptied, columns,
)  # fmt: skip
