"""`TrainingStep`: a model and how to run one training step of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError


@dataclass(frozen=True)
class TrainingStep:
    """One training step of the user's own code: forward pass, loss and backward pass.

    For example::

        TrainingStep(
            model,
            lambda model, batch: criterion(model(batch["pixels"]), batch["labels"]),
            {"pixels": torch.randn(8, 3, 64, 64), "labels": torch.zeros(8, dtype=torch.int64)},
        )

    Parameters
    ----------
    model : nn.Module
        Its own forward pass is what can be offloaded from.
    run : callable
        Called as ``run(model, batch)``. If it returns a tensor, ``backward()`` is called on that;
        one that runs the backward pass itself returns None. Several calls of the model, control
        flow and losses of any kind are fine.
    batch : object
        Tensors in tuples, lists and dictionaries, or a callable that makes them. On fake tensors
        the callable is called where tensors have no data, so the batch takes no memory.
    optimiser : torch.optim.Optimizer, optional
        Only to count the bytes of its state.
    source : mapping, optional
        How to build the step again: what `source` of an
        `offcert.runtime.workloads.workload.Workload` is.
    tensors : str
        ``"fake"``: capture it on tensors without data, which takes neither memory nor a GPU.
        ``"real"``: capture it as it runs, for programs that do something else where they see that
        there is no data (models of `transformers` make masks that they otherwise leave out).
        ``"auto"``: on fake ones, and on real ones if that fails, as it must if the program looks at
        values.
    here : bool
        Whether it is trained on the device where the model is. Fake tensors then say of attention
        with dropout what that device computes, not what the card does whose times are given.
    again : bool
        Whether modules may run again in the backward pass: not where something that the hooks of
        autograd do not see keeps what they have computed.
    """

    model: nn.Module
    run: Callable[[Any, Any], torch.Tensor | None]
    batch: Any = ()
    optimiser: torch.optim.Optimizer | None = None
    source: dict[str, Any] = field(default_factory=dict)
    tensors: str = "auto"
    here: bool = False
    again: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise InputError(f"step.model must be an nn.Module, not {type(self.model).__name__}")
        if not callable(self.run):
            raise InputError(f"step.run must be callable, not {type(self.run).__name__}")
        if self.tensors not in ("auto", "fake", "real"):
            raise InputError(f'tensors must be "auto", "fake" or "real", not {self.tensors!r}')

    def make_batch(self) -> Any:
        """Return the batch, calling what makes it if it is a callable."""
        return self.batch() if callable(self.batch) else self.batch

    def execute(self, batch: Any) -> torch.Tensor | None:
        """Run the forward and the backward pass; return the loss, if `run` does.

        Raises
        ------
        InputError
            If `run` returns something else than a tensor that depends on a parameter, or None.
        """
        loss = self.run(self.model, batch)
        if loss is None:
            return None
        if not isinstance(loss, torch.Tensor):
            raise InputError(
                f"step.run must return the loss or None, not {type(loss).__name__}: return "
                "output.loss, for example"
            )
        if not loss.requires_grad:
            raise InputError("no parameter of the model requires a gradient")
        loss.backward()
        return loss.detach()
