"""The tail of a language model, head and loss, in chunks of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from offcert.core.errors import InputError
from offcert.core.trace import require_integer

# Labels of tokens that do not count: given by PyTorch, for whose losses it is the default.
_IGNORED = -100


def chunked_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    chunks: int,
    *,
    bias: Tensor | None = None,
    items: Tensor | int | None = None,
) -> Tensor:
    """Return the mean cross-entropy of a linear head, without all logits at once.

    What the head makes of a chunk of tokens becomes gradients before the next chunk is begun, so
    that the forward pass leaves no logits behind; nothing is computed twice. Loss and gradients are
    those of ``cross_entropy(linear(hidden, weight, bias), labels)`` up to rounding, not bitwise:
    the gradient of the weight is added up in the chunks' order, in the weight's data type.

    Parameters
    ----------
    hidden : Tensor
        Input of the head, (..., features).
    weight, bias : Tensor
        Of the head, (words, features) and (words,).
    labels : Tensor
        The right words, (...); tokens with the label -100 do not count.
    chunks : int
        In how many parts, of as many tokens each, but for the last.
    items : Tensor or int, optional
        Divisor of the sum of losses, instead of the number of tokens that count.

    Raises
    ------
    InputError
        If `chunks` is not positive, or there is not a label for each token.
    """
    require_integer(chunks, "chunks", 1)
    if labels.shape != hidden.shape[:-1]:
        raise InputError(
            f"labels must have the shape {tuple(hidden.shape[:-1])}, one for each token, not "
            f"{tuple(labels.shape)}"
        )
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    rows, words = hidden.flatten(0, -2), labels.flatten()
    with torch.autocast(kind, enabled=False):
        loss: Tensor = _Tail.apply(rows.to(dtype), weight, bias, words, chunks, items)
    return loss


class _Tail(torch.autograd.Function):
    """Makes the gradients while it computes the loss."""

    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        chunks: int,
        items: Tensor | int | None,
    ) -> Tensor:
        """Return the loss; keep the gradients that are wanted."""
        matrix = weight.to(hidden.dtype)
        shift = None if bias is None else bias.to(hidden.dtype)
        wanted = context.needs_input_grad[:3]
        made = [
            torch.zeros_like(tensor) if asked and tensor is not None else None
            for asked, tensor in zip(wanted, (hidden, weight, bias), strict=True)
        ]
        counted = labels != _IGNORED
        whole = counted.sum() if items is None else items
        loss = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        size = -(-len(hidden) // chunks)
        for begin in range(0, len(hidden), size):
            part = slice(begin, begin + size)
            logits = functional.linear(hidden[part], matrix, shift).to(loss.dtype)
            chances = functional.log_softmax(logits, -1)
            del logits
            column, counts = labels[part].clamp(min=0).unsqueeze(1), counted[part].unsqueeze(1)
            loss -= (chances.gather(1, column) * counts).sum() / whole
            # Of log-probabilities and labels becomes the gradient of the logits.
            chances.exp_().scatter_add_(1, column, -torch.ones_like(column, dtype=loss.dtype))
            gradient = chances.mul_(counts / whole).to(hidden.dtype)
            del chances
            _add(made, part, gradient, hidden, matrix)
            del gradient
        context.made = made
        return loss

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients, times that of the loss."""
        made, context.made = context.made, None
        found = (None if each is None else each.mul_(gradient) for each in made)
        return (*found, None, None, None)


def _add(
    made: list[Tensor | None], part: slice, gradient: Tensor, hidden: Tensor, matrix: Tensor
) -> None:
    """Add the gradients by a chunk's logits to those of the head's input and weights."""
    of_hidden, of_weight, of_bias = made
    if of_hidden is not None:
        torch.mm(gradient, matrix, out=of_hidden[part])
    if of_weight is not None and of_weight.dtype == gradient.dtype:
        of_weight.addmm_(gradient.T, hidden[part])
    elif of_weight is not None:
        of_weight += gradient.T @ hidden[part]
    if of_bias is not None:
        of_bias += gradient.sum(0)


class _Passing(nn.Module):
    """A head that hands on what it takes where its loss computes it in chunks."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.weight = head.weight
        self.bias = head.bias
        self.handed: Tensor | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        """Return `hidden` as it is; without gradients, what the head makes of it."""
        if not torch.is_grad_enabled():
            return functional.linear(hidden, self.weight, self.bias)
        self.handed = hidden
        return hidden


def with_tail_chunks(model: nn.Module, chunks: int) -> nn.Module:
    """Let a language model of `transformers` compute its head and its loss in chunks of tokens.

    Its output then has a loss as before, up to rounding, but, where gradients are wanted, what the
    head takes instead of logits. It keeps its parameters and their names. The model itself is
    returned; see `chunked_loss`.

    Raises
    ------
    InputError
        If it has no linear head `lm_head` with the loss of `transformers` for causal models, or,
        when it is called, if it changes the logits before the loss.
    """
    require_integer(chunks, "chunks", 1)
    head, kind = getattr(model, "lm_head", None), type(model).__name__
    causal = kind.endswith(("ForCausalLM", "LMHeadModel"))
    if not causal or type(head) is not nn.Linear or not hasattr(model, "loss_function"):
        raise InputError(f"tail_chunks: {kind} is no language model with a linear head lm_head")
    passing = _Passing(head)
    model.loss_function = _ChunkedLoss(passing, model.loss_function, chunks)  # type: ignore[assignment]
    model.lm_head = passing
    return model


@dataclass
class _ChunkedLoss:
    """The loss of a model whose head hands on what it takes; copied together with the model."""

    passing: _Passing
    plain: Any
    chunks: int

    def __call__(
        self,
        logits: Tensor,
        labels: Tensor,
        vocab_size: int,
        num_items_in_batch: Tensor | int | None = None,
        **others: Any,
    ) -> Tensor:
        """Return the loss, of logits or of what the head would make them from."""
        passing = self.passing
        handed, passing.handed = passing.handed, None
        if handed is None:
            loss: Tensor = self.plain(logits, labels, vocab_size, num_items_in_batch, **others)
            return loss
        if handed is not logits or others:
            raise InputError(
                "tail_chunks: the model does more between its head and its loss than a "
                "cross-entropy"
            )
        # A token is to tell the next one.
        following = functional.pad(labels, (0, 1), value=_IGNORED)[..., 1:]
        weight, bias = passing.weight, passing.bias
        items = num_items_in_batch
        return chunked_loss(logits, weight, following, self.chunks, bias=bias, items=items)
