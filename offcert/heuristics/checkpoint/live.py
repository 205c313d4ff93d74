"""A set of checkpoints as a program that the runtime can carry out, and the bytes it holds.

From checkpoint `h` to the next, `i`, the stages ``h … i-1`` are one segment, as under
``torch.utils.checkpoint``: its input stays; when its backward pass begins, *all* its stages run
again. Two stretches are no segments, as running them again would bring nothing back that is gone:

- the last one, which is needed backward as soon as it has run forward;
- a single stage that keeps nothing but its output, as both its ends are stored.

Beside it stand the costs of checkpoints in the memory models of the papers, term by term. Data of a
chain are ``d_0 … d_n``, in bytes; ``d_0`` is the input, ``d_n`` the output, both are checkpoints.
Between two neighbouring checkpoints `h` and `i` lies the *segment* ``d_{h+1} … d_{i-1}``. These
functions say what the equations say, nothing more clever: they are what the algorithms are tested
against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.program import Program, Segment
from offcert.core.trace import require_integer

MemoryModel = Callable[[Sequence[int], Sequence[int]], int]


def require_checkpoints(count: int, checkpoints: Sequence[int]) -> None:
    """Raise unless these are checkpoints of `count` data."""
    for index, checkpoint in enumerate(checkpoints):
        require_integer(checkpoint, f"checkpoints[{index}]", 0)
        if index and checkpoint <= checkpoints[index - 1]:
            raise InputError(
                f"checkpoints must increase, but {checkpoint} follows {checkpoints[index - 1]}"
            )
    if len(checkpoints) < 2 or checkpoints[0] != 0 or checkpoints[-1] != count - 1:
        raise InputError(
            f"checkpoints must begin with 0 and end with {count - 1}, not be {list(checkpoints)}"
        )


def static_memory(sizes: Sequence[int], checkpoints: Sequence[int]) -> int:
    """Return the bytes of all checkpoints and of the largest segment (selection paper, Eq. 6)."""
    require_checkpoints(len(sizes), checkpoints)
    stored = sum(sizes[checkpoint] for checkpoint in checkpoints)
    return stored + max(sum(sizes[h + 1 : i]) for h, i in pairwise(checkpoints))


def dynamic_memory(
    sizes: Sequence[int], checkpoints: Sequence[int], gradients: Sequence[int] | None = None
) -> int:
    """Return the most bytes while any segment is served backward (selection paper, Eq. 9).

    While the segment from `h` to `i` is: the checkpoints up to `i`, the segment, and a buffer as
    large as the largest gradient of the segment and its left checkpoint. Gradients are as large as
    the data, unless they are given: the published numbers of the plain AlexNet need one of 0 bytes
    for the input.
    """
    require_checkpoints(len(sizes), checkpoints)
    gradients = sizes if gradients is None else gradients
    return max(
        sum(sizes[checkpoint] for checkpoint in checkpoints if checkpoint <= i)
        + sum(sizes[h + 1 : i])
        + max(gradients[h:i])
        for h, i in pairwise(checkpoints)
    )


def reforwarding_memory(sizes: Sequence[int], checkpoints: Sequence[int]) -> int:
    """Return the bytes of stored vertices and of the largest local re-forward (Feng, Eq. 1).

    Source and target are stored in every solution; as for graphs, they are not counted. With them
    it is `static_memory`.
    """
    require_checkpoints(len(sizes), checkpoints)
    stored = sum(sizes[checkpoint] for checkpoint in checkpoints[1:-1])
    return stored + max(sum(sizes[h + 1 : i]) for h, i in pairwise(checkpoints))


def chen_memory(sizes: Sequence[int], checkpoints: Sequence[int]) -> int:
    """Return the bytes stored between segments, and of the largest segment with its end.

    Chen et al. 2016, Algorithm 3: the sum of its two outputs, the last segment among them. A
    segment counts with the checkpoint that ends it (``temp`` there). The input is not counted, and
    the output is part of the last segment.
    """
    require_checkpoints(len(sizes), checkpoints)
    stored = sum(sizes[checkpoint] for checkpoint in checkpoints[1:-1])
    return stored + max(sum(sizes[h + 1 : i + 1]) for h, i in pairwise(checkpoints))


MEMORY_MODELS: dict[str, MemoryModel] = {
    "static": static_memory,
    "dynamic": dynamic_memory,
    "reforwarding": reforwarding_memory,
    "chen": chen_memory,
}


def checkpoint_program(chain: CheckpointChain, checkpoints: Sequence[int]) -> Program:
    """Return the program that stores a set of checkpoints, and runs again what lies between."""
    require_checkpoints(len(chain.output), checkpoints)
    return Program(
        Segment(h, i - 1)
        for h, i in pairwise(checkpoints)
        if i < len(chain) and (i > h + 1 or chain.extra[h])
    )


def checkpoint_execution(chain: CheckpointChain, checkpoints: Sequence[int]) -> Execution:
    """Return the execution of `checkpoint_program` in which nothing unread is kept."""
    network = chain.network()
    strategy = checkpoint_program(chain, checkpoints).strategy(network)
    return strategy.without_unread(network).expand(network)


def live_bytes(chain: CheckpointChain, checkpoints: Sequence[int]) -> int:
    """Return the most bytes that are live on the device at once, exactly: the peak of the trace."""
    return checkpoint_execution(chain, checkpoints).trace.peak_memory


def recomputed_time(chain: CheckpointChain, checkpoints: Sequence[int]) -> int:
    """Return the ticks that running stages again takes."""
    program = checkpoint_program(chain, checkpoints)
    return sum(sum(chain.forward[each.first : each.last + 1]) for each in program.segments)
