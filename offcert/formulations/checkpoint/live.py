"""A set of checkpoints as a program that the runtime can carry out, and the bytes it holds.

From checkpoint `h` to the next, `i`, the stages ``h … i-1`` are one segment, as under
``torch.utils.checkpoint``: its input stays; when its backward pass begins, *all* its stages run
again. Two stretches are no segments, as running them again would bring nothing back that is gone:

- the last one, which is needed backward as soon as it has run forward;
- a single stage that keeps nothing but its output, as both its ends are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.execution import Execution
from offcert.core.program import Program, Segment
from offcert.formulations.checkpoint.memory_models import require_checkpoints


def checkpoint_program(chain: CheckpointChain, checkpoints: Sequence[int]) -> Program:
    """Return the program that stores a set of checkpoints, and runs again what lies between.

    Parameters
    ----------
    chain : CheckpointChain
        Stage `i` makes ``a_{i+1}`` of ``a_i``.
    checkpoints : sequence of int
        Indices of the stored ``a``, increasing, from 0 to the number of stages.

    Raises
    ------
    InputError
        If these are no checkpoints of the chain.
    """
    require_checkpoints(len(chain.output), checkpoints)
    return Program(
        Segment(h, i - 1)
        for h, i in pairwise(checkpoints)
        if i < len(chain) and (i > h + 1 or chain.extra[h])
    )


def checkpoint_execution(chain: CheckpointChain, checkpoints: Sequence[int]) -> Execution:
    """Return the execution of `checkpoint_program` in which nothing unread is kept.

    Raises
    ------
    InputError
        If these are no checkpoints of the chain.
    """
    network = chain.network()
    strategy = checkpoint_program(chain, checkpoints).strategy(network)
    return strategy.without_unread(network).expand(network)


def live_bytes(chain: CheckpointChain, checkpoints: Sequence[int]) -> int:
    """Return the most bytes that are live on the device at once, exactly: the peak of the trace.

    Raises
    ------
    InputError
        If these are no checkpoints of the chain.
    """
    return checkpoint_execution(chain, checkpoints).trace.peak_memory


def recomputed_time(chain: CheckpointChain, checkpoints: Sequence[int]) -> int:
    """Return the ticks that running stages again takes.

    Raises
    ------
    InputError
        If these are no checkpoints of the chain.
    """
    program = checkpoint_program(chain, checkpoints)
    return sum(sum(chain.forward[each.first : each.last + 1]) for each in program.segments)
