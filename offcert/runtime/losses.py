"""Losses by name, for networks that are profiled from the command line."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from offcert.core.errors import InputError

Loss = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]


def _cross_entropy(output: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    if labels is None:
        raise InputError('the loss "cross-entropy" needs labels')
    return cross_entropy(output.flatten(0, -2), labels.flatten())


def _mean(output: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    return output.mean()


LOSSES: dict[str, Loss] = {"cross-entropy": _cross_entropy, "mean": _mean}


def loss_function(name: str) -> Loss:
    """Return a loss by name.

    ``"cross-entropy"`` takes the output's last dimension as the logits of the classes and labels
    of the shape of the other dimensions; ``"mean"`` averages the output and takes no labels.

    Raises
    ------
    InputError
        If there is no such loss.
    """
    if name not in LOSSES:
        known = " or ".join(f'"{known}"' for known in LOSSES)
        raise InputError(f"loss must be {known}, not {name!r}")
    return LOSSES[name]
