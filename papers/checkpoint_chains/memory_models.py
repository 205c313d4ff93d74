"""The costs of checkpoints in the memory models of the papers, term by term.

Data of a chain are ``d_0 … d_n``, in bytes; ``d_0`` is the input, ``d_n`` the output, both are
checkpoints. Between two neighbouring checkpoints `h` and `i` lies the *segment* ``d_{h+1} …
d_{i-1}``. These functions say what the equations say, nothing more clever: they are what the
algorithms are tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from offcert.heuristics.checkpoint.live import chen_memory, require_checkpoints

MemoryModel = Callable[[Sequence[int], Sequence[int]], int]


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


MEMORY_MODELS: dict[str, MemoryModel] = {
    "static": static_memory,
    "dynamic": dynamic_memory,
    "reforwarding": reforwarding_memory,
    "chen": chen_memory,
}
