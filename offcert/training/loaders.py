"""Steps to plan for before anything runs: those of the longest samples of a loader.

In a loop with an `accelerate.Accelerator` whose `prepare` has prepared model and loader::

    example = longest_step(model, loader)
    with offload(model, "auto", memory="50%", example=example):
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.capture.borrowed import random_state_kept
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.workloads.standard_step import device_of
from offcert.runtime.workloads.turns import moved_to


def longest_step(
    model: nn.Module, loader: Any, loss: Callable[[nn.Module, Any], torch.Tensor] | None = None
) -> TrainingStep:
    """Return the step that a loop makes of the longest samples of a loader, to be planned for.

    The loader's order and the random states stay as they are. `loss` returns the loss of a model
    and a batch; by default that in the model's output, as models of `transformers` have it.
    """
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    if not isinstance(size, int):
        raise InputError("loader must have a batch size, and has none")
    with random_state_kept():
        batch = longest_batch(loader, size, without_lengths=True)
    if batch is None:
        raise InputError("loader must have a data set with a length and numbered samples")
    device = device_of(model)
    moved = batch.to(device) if hasattr(batch, "to") else moved_to(batch, device)
    return TrainingStep(model, loss or _own_loss, moved)


def _own_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    if not isinstance(batch, Mapping):
        raise InputError("loss must be given where batches are no mappings")
    found = getattr(model(**batch), "loss", None)
    if not isinstance(found, torch.Tensor):
        raise InputError("loss must be given where the model's output has none")
    return found


def longest_batch(
    loader: Any, size: int, *, most: int = 2048, without_lengths: bool = False
) -> Any:
    """Return the batch that a loader makes of the longest samples of its data set.

    Of more than `most` samples, so many at equal distances are looked at. None where the data set
    has no length, or samples have none, unless those count as equally long (`without_lengths`).
    """
    data = loader.dataset
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        return None
    count = len(data)
    numbers = range(0, count, max(1, -(-count // most)))
    sizes = {number: _length(data[number]) for number in numbers}
    if not sizes or not (without_lengths or any(sizes.values())):
        return None
    size = min(count, size)
    longest = sorted(sizes, key=lambda number: -sizes[number])[:size]
    longest += longest[:1] * (size - len(longest))
    return loader.collate_fn([data[number] for number in longest])


def _length(sample: Any) -> int:
    """Return the length of the longest part of a sample; 0 if it has none."""
    parts = sample.values() if isinstance(sample, Mapping) else ()
    return max(
        (len(part) for part in parts if getattr(part, "__len__", None) and _dim(part)), default=0
    )


def _dim(part: Any) -> int:
    return part.dim() if isinstance(part, torch.Tensor) else 1
