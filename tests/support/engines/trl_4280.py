"""trl#4280 (the thread could not be read): what came back is dropped before its use has ended.

It was allocated in the stream that copies, so the next copy back may get its memory at once.
"""

import torch

from support.engines.small import batch, gradients, network


class Offload(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self, mended):
        self.mended = mended
        self.copying = torch.cuda.Stream()
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor):
        self.copying.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copying):
            host = tensor.to("cpu", non_blocking=True)
        tensor.record_stream(self.copying)
        return host

    def unpack(self, host):
        computing = torch.cuda.current_stream()
        with torch.cuda.stream(self.copying):
            device = host.to("cuda", non_blocking=True)  # second
        computing.wait_stream(self.copying)
        if self.mended:
            device.record_stream(computing)
        return device


def step(mended):
    model, offload = network(), Offload(mended)
    x = batch()
    torch.cuda.synchronize()
    with offload:
        loss = model(x).square().mean()
    loss.backward()  # first
    return gradients(model)
