"""torchtune#1867: what came back outlives the node it came back for, in a view of it.

The engine keeps it until the node's use has ended, by an event. A view that the backward pass of
recomputed layers has saved is used after that, and dropped with the memory of the stream that
copies.
"""

from typing import Any

import torch


class Offload:
    def __init__(self, mended: bool) -> None:
        self.mended = mended
        self.copying = torch.cuda.Stream()
        self.kept: list[Any] = []

    def back(self, host: torch.Tensor) -> torch.Tensor:
        computing = torch.cuda.current_stream()
        for event, _ in self.kept:
            self.copying.wait_event(event)
        self.kept.clear()
        with torch.cuda.stream(self.copying):
            device = host.to("cuda", non_blocking=True)  # second
        computing.wait_stream(self.copying)
        if self.mended:
            device.record_stream(computing)
        return device

    def used(self, device: torch.Tensor) -> None:
        self.kept.append((torch.cuda.current_stream().record_event(), device))


def step(mended: bool) -> Any:
    offload = Offload(mended)
    hosts = [torch.full((16,), float(turn)).pin_memory() for turn in range(3)]
    total, view = torch.zeros(16, device="cuda"), None
    for host in hosts:
        device = offload.back(host)
        total.add_(device)
        offload.used(device)
        if view is not None:
            total.mul_(view)  # first
        view = device.view(4, 4).view(16)
        del device
    torch.cuda.synchronize()
    return total
