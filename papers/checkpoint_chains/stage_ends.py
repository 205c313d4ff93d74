"""Memory as the selection paper measured it: bytes at the end of each backward operation.

The paper looks at the allocator "at the end of every stage" (§5.1.2), so what an operation takes
only while it runs is not seen. When the backward operation of a layer has ended, there are the
checkpoints up to its segment, the segment's data before it with all that their layers keep, and the
gradients of its input and of its output. On chains that keep what PyTorch keeps, that gives the
differences of the paper's Table 2, those on AlexNet too, on which Eq. (9) is 19 % off.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.heuristics.checkpoint.live import require_checkpoints


def stage_end_bytes(chain: CheckpointChain, checkpoints: Sequence[int]) -> int:
    """Return the most bytes at the end of any stage's backward operation.

    Never more than `offcert.heuristics.checkpoint.live.live_bytes`, which counts while they run.

    Parameters
    ----------
    chain : CheckpointChain
        With what its stages keep beside their outputs.
    checkpoints : sequence of int
        Increasing, from 0 to the number of stages; ``(0, n)`` is plain training.

    Raises
    ------
    InputError
        If these are no checkpoints of the chain.
    """
    require_checkpoints(len(chain.output), checkpoints)
    most = stored = 0
    for h, i in pairwise(checkpoints):
        stored += chain.output[h]
        segment = 0
        for k in range(h, i):
            gradients = chain.gradient[k] + chain.gradient[k + 1]
            most = max(most, stored + segment + gradients)
            segment += chain.output[k + 1] + chain.extra[k]
    return most
