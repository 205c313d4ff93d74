"""Sub-batches: a batch in parts, whose gradients add up to those of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.core.trace import require_integer
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.torch_private import tree_flatten, tree_unflatten


@dataclass(frozen=True)
class SubBatch:
    """Part of a batch.

    Attributes
    ----------
    batch : object
        Of the same form as the whole.
    size : int
        How many of its items.
    share : float
        Its part of the whole batch, by items. A loss that is a mean over items, times this, has
        gradients that add up to those of the mean over the whole batch.
    first, last : bool
        Whether it is the first or the last part.
    """

    batch: Any
    size: int
    share: float
    first: bool
    last: bool

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss to call ``backward()`` on, of a loss that is a mean over the items."""
        return loss * self.share


def sub_batches(batch: Any, size: int, *, dim: int = 0) -> Iterator[SubBatch]:
    """Divide a batch, so that a step can be executed part by part.

    Gradients of the parts are accumulated by PyTorch, in the parts' order::

        with offcert.offload(model, certificates) as training:
            for batch in batches:
                for part in offcert.sub_batches(batch, 16):
                    part.scaled(criterion(model(part.batch["x"]), part.batch["y"])).backward()
                optimiser.step()
                optimiser.zero_grad()

    A plan belongs to a size: make one for each that occurs (`sub_batch_steps`). A last part that is
    smaller and has no plan keeps its tensors, which the report says. Parts are views; nothing is
    copied. Gradients are bitwise those of the same loop without a plan. They are those of the whole
    batch up to rounding, unless something in the network looks at several items: a batch
    normalisation takes its statistics from each part, and updates its running ones once a part.

    Parameters
    ----------
    batch : object
        Tensors in tuples, lists and dictionaries, all with as many items in dimension `dim`. What
        is no tensor, or has no dimension, goes into every part as it is.
    size : int
        Items in a part; the last one has what is left.
    dim : int
        The dimension along which items lie.

    Yields
    ------
    SubBatch
        In order.

    Raises
    ------
    InputError
        If tensors have different numbers of items, or there are none.
    """
    require_integer(size, "size", 1)
    leaves, form = tree_flatten(batch)
    items = _items(leaves, dim)
    # Checked now, not when the first part is asked for.
    return _parts(leaves, form, items, size, dim)


def _parts(leaves: list[Any], form: Any, items: int, size: int, dim: int) -> Iterator[SubBatch]:
    for begin in range(0, items, size):
        count = min(size, items - begin)
        part = [leaf.narrow(dim, begin, count) if _divided(leaf) else leaf for leaf in leaves]
        yield SubBatch(
            tree_unflatten(part, form), count, count / items, begin == 0, begin + count == items
        )


def sub_batch_steps(step: TrainingStep, size: int, *, dim: int = 0) -> list[TrainingStep]:
    """Return the steps to capture so that there is a plan for every part of a step's batch.

    One step of `size` items, and one of what is left if that is smaller; ``offcert.offload`` takes
    a certificate of each. Their losses are scaled as `SubBatch.scaled` does, if `step.run` returns
    one.

    Raises
    ------
    InputError
        As `sub_batches`.
    """
    parts = {part.size: part for part in sub_batches(step.make_batch(), size, dim=dim)}
    return [
        replace(step, run=partial(_scaled, step, part), batch=part.batch) for part in parts.values()
    ]


def _scaled(step: TrainingStep, part: SubBatch, model: Any, batch: Any) -> torch.Tensor | None:
    """Return the loss of a step as the training loop scales it, if the step returns a loss."""
    loss = step.run(model, batch)
    return part.scaled(loss) if isinstance(loss, torch.Tensor) else loss


def _divided(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0


def _items(leaves: list[Any], dim: int) -> int:
    """Return the number of items that all tensors have."""
    counts = set()
    for leaf in filter(_divided, leaves):
        if not -leaf.dim() <= dim < leaf.dim():
            raise InputError(
                f"a tensor of the batch has {leaf.dim()} dimensions, and none is {dim}"
            )
        counts.add(leaf.shape[dim])
    if not counts:
        raise InputError("the batch must hold a tensor that can be divided")
    if len(counts) > 1:
        found = " and ".join(map(str, sorted(counts)))
        raise InputError(f"the tensors of the batch must have as many items each, not {found}")
    (items,) = counts
    if items == 0:
        raise InputError("the batch must not be empty")
    return int(items)
