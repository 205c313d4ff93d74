"""DeepSpeed#8186, the second of three: memory of a state that came back is given away early.

It was allocated in the stream that copies, and the optimiser uses it in another one, for which it
was never recorded: once dropped, the next state that comes back may get its memory.
"""

from typing import Any

import torch


def step(mended: bool) -> Any:
    copying, computing = torch.cuda.Stream(), torch.cuda.current_stream()
    hosts = [torch.full((16,), float(turn), pin_memory=True) for turn in range(3)]
    weight = torch.zeros(16, device="cuda")
    for host in hosts:
        with torch.cuda.stream(copying):
            moment = host.to("cuda", non_blocking=True)  # second
        computing.wait_stream(copying)
        weight.sub_(moment)  # first
        if mended:
            moment.record_stream(computing)
        del moment
    torch.cuda.synchronize()
    return weight
