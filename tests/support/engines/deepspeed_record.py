"""DeepSpeed#8186, another of three: a buffer is dropped that another stream still copies from.

The thread could not be read; DeepSpeed#7965 describes this: the result of a reduction is used in
the stream that reduces, which its storage was never recorded for.
"""

from typing import Any

import torch


def step(mended: bool) -> Any:
    reducing = torch.cuda.Stream()
    target = torch.zeros(16, device="cuda")
    for turn in range(3):
        flat = torch.full((16,), float(turn), device="cuda")  # second
        reducing.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(reducing):
            target.add_(flat)  # first
        if mended:
            flat.record_stream(reducing)
        del flat
    torch.cuda.synchronize()
    return target
