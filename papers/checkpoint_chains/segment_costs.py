"""Every memory model of chains in one form: bytes of checkpoints, and of what lies between two.

A model says for neighbouring checkpoints `h` and `i` what the stretch between them takes by itself.
In *static* models all checkpoints are there all the time, and the largest stretch beside them. In
the others the checkpoints before `h` are, and the peak is the largest sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.core.trace import require_integer


@dataclass(frozen=True)
class SegmentCosts:
    """A memory model on a chain.

    Attributes
    ----------
    stored : tuple of int, length n+1
        Bytes of each datum if it is a checkpoint.
    between : tuple of tuple of int
        ``between[h][i - h - 1]``: bytes of the stretch from checkpoint `h` to the next, `i`.
    static : bool
        Whether all checkpoints count with every stretch; else those before its left one do.
    """

    stored: tuple[int, ...]
    between: tuple[tuple[int, ...], ...]
    static: bool

    def memory(self, checkpoints: Sequence[int]) -> int:
        """Return the bytes that checkpoints from 0 to n take."""
        stretches = [self.between[h][i - h - 1] for h, i in pairwise(checkpoints)]
        if self.static:
            return sum(self.stored[each] for each in checkpoints) + max(stretches)
        before = accumulate((self.stored[each] for each in checkpoints), initial=0)
        return max(sum(each) for each in zip(before, stretches, strict=False))

    @property
    def most(self) -> int:
        """Bytes that no choice of checkpoints exceeds."""
        return sum(self.stored) + max(map(max, self.between))


def static_costs(sizes: Sequence[int]) -> SegmentCosts:
    """Return Eq. (6) of the selection paper on sizes ``d_0 … d_n`` in bytes.

    Raises
    ------
    InputError
        If these are fewer than two, or no sizes.
    """
    require_sizes(sizes)
    count = len(sizes)
    between = (tuple(accumulate(sizes[h + 1 : count - 1], initial=0)) for h in range(count - 1))
    return SegmentCosts(tuple(sizes), tuple(between), True)


def dynamic_costs(sizes: Sequence[int], gradients: Sequence[int] | None = None) -> SegmentCosts:
    """Return Eq. (9) of the selection paper; `gradients` as for `memory_models.dynamic_memory`.

    Raises
    ------
    InputError
        If there are fewer than two sizes, these are no sizes, or not as many gradients.
    """
    gradients = require_sizes(sizes, gradients)
    rows = []
    for h in range(len(sizes) - 1):
        data = accumulate(sizes[h:])
        next(data)
        rows.append(tuple(map(sum, zip(data, accumulate(gradients[h:], max), strict=False))))
    return SegmentCosts(tuple(sizes), tuple(rows), False)


def live_costs(chain: CheckpointChain) -> SegmentCosts:
    """Return the live bytes of `checkpoint_program`, operation by operation."""
    count = len(chain.output)
    rows = (tuple(_live(chain, h, i) for i in range(h + 1, count)) for h in range(count - 1))
    return SegmentCosts(chain.output, tuple(rows), False)


def _live(chain: CheckpointChain, h: int, i: int) -> int:
    """Return the most bytes beside the checkpoints before `h` while stages ``h … i-1`` run."""
    output, gradient = chain.output, chain.gradient
    last = i == len(chain)
    again = not last and (i > h + 1 or chain.extra[h] > 0)
    demands = []
    for k in range(h, i):
        held = sum(output[h : k + 2]) + sum(chain.extra[h : k + 1])
        if again:
            demands.append(held + gradient[i] + chain.forward_workspace[k])
            passed = {h, k, k + 1}
            demands.append(sum(output[j] for j in passed) + chain.forward_workspace[k])
        else:
            demands.append(held + chain.forward_workspace[k])
        demands.append(held + gradient[k + 1] + gradient[k] + chain.backward_workspace[k])
    return max(demands)


def require_sizes(sizes: Sequence[int], gradients: Sequence[int] | None = None) -> Sequence[int]:
    """Return the sizes of gradients, by default those of the data, if all are sizes.

    Raises
    ------
    InputError
        If there are fewer than two data, a size is no integer or negative, or there are not as many
        gradients.
    """
    gradients = sizes if gradients is None else gradients
    if len(sizes) < 2:
        raise InputError(f"sizes must have at least 2 entries, not {len(sizes)}")
    if len(gradients) != len(sizes):
        raise InputError(f"gradients must have {len(sizes)} entries, not {len(gradients)}")
    for name, values in (("sizes", sizes), ("gradients", gradients)):
        for index, size in enumerate(values):
            require_integer(size, f"{name}[{index}]", 0)
    return gradients
