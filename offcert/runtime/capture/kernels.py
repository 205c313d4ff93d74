"""Fake tensors: twins of others, without data, and where they are wrong about the CPU's kernels.

A fake tensor's operators follow rules that were written by hand. Some of them, under mixed
precision, give other types than the kernels do, or refuse what the kernels accept; others do not
say how large a storage is, or that there is one. The trace then has other bytes than the step, and
a plan for it cannot be followed. `tests/facts/runtime/capture/test_discovered_kernels.py` compares
the modules of `torch.nn` on fake and on real tensors, to find the operators that need a rule.

What the recurrent kernels of CUDA devices reserve for their backward pass is known to the libraries
alone (cuDNN, MIOpen): they are refused on fake tensors, so that such a step is captured on real
ones. Other kernels of CUDA devices have no rules here: what they save beyond what was foreseen
shows when a step saves it.

On tensors without data a collective gives what it would have made room for, and no process hears of
it. A sharded step that is captured on real tensors is run by all processes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from offcert.core.errors import InputError
from offcert.runtime.hardware import Hardware
from offcert.runtime.hardware.attention import kernel_of
from offcert.runtime.hardware.model import MATH
from offcert.runtime.torch_private import (
    FakeTensor,
    FakeTensorMode,
    TorchDispatchMode,
    undispatched,
    work_done,
)
from offcert.runtime.watch.sharded import Parts, is_distributed


class FakeTwins:
    """Fake twins of real tensors, one for each, so that what is tied stays tied.

    They live under `mode`. Real tensors that a step meets elsewhere get twins, too.
    """

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake twin of a tensor; no data is copied."""
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._twins.get(id(tensor))
        if known is None:
            # The original is kept, too: its address must not be used again.
            known = self._twins[id(tensor)] = (tensor, self._make(tensor))
        return known[1]

    def _make(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "meta":
            made: torch.Tensor = self.mode.from_tensor(tensor)
            if made.is_leaf:
                # A step begins without gradients; it would add to a twin of the one that is there.
                made.grad = None
            return made
        with self.mode:
            empty = torch.empty_strided(
                tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu"
            )
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(empty, requires_grad=tensor.requires_grad)
        return empty.requires_grad_(tensor.requires_grad)


class Unsent(TorchDispatchMode):
    """Lets collectives of `torch.distributed` do nothing; enter it within the fake mode."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return the tensors that a collective writes to, and a handle that says it is done."""
        if func.namespace != "c10d":
            return func(*args, **(kwargs or {}))
        if func.name() not in _WRITTEN:
            raise InputError(
                f"what {func.overloadpacket} does is not known without data: capture the step with "
                'tensors="real", in all processes'
            )
        return args[0], work_done()


# Collectives whose first argument is what they write to, and return.
_WRITTEN = ("c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "c10d::allreduce_")


def require_gathered(parts: Parts) -> None:
    """Raise an `InputError` if parameters are `DTensor`s that the step does not gather.

    Such operators consist of others on this process, which are looked for on fake tensors of the
    size of all parts: in a capture without data nobody can tell them from those of the step.
    """
    shards = {id(each.sharded_param) for each in parts.sharded.parameters}
    if any(is_distributed(each) and id(each) not in shards for each in parts.parameters):
        raise InputError(
            "parameters of the model are DTensors (tensor parallelism), whose operators are not "
            'known without data: capture the step with tensors="real", in all processes'
        )


aten = torch.ops.aten

Rule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class CpuKernels(TorchDispatchMode):
    """Corrects fake tensors where operators of the CPU differ; enter it within the fake mode."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` by its rule here, if it has one."""
        kwargs = kwargs or {}
        if func.overloadpacket in _UNKNOWN:
            raise InputError(
                f"what {func.overloadpacket} reserves for its backward pass is not known from "
                'tensors without data: capture the step with tensors="real", on its device'
            )
        rule = _RULES.get(func.overloadpacket)
        if rule is None or args[0].device.type != "cpu":
            return func(*args, **kwargs)
        return rule(func, args, kwargs)


class AttentionKernels(TorchFunctionMode):
    """Attention as a card computes it: by a kernel that keeps no scores, or by products.

    A kernel draws dropout anew in the backward pass and keeps 16 bytes for that. The kernel of
    the CPU has no dropout, and attention would become products there. So this leaves dropout out,
    of `scaled_dot_product_attention` alone, unless that kernel has been switched off. Where the
    card has no kernel for the tensors (`offcert.runtime.hardware.attention.kernel_of`), the CPU's
    is not used either.
    """

    def __init__(self, card: Hardware) -> None:
        super().__init__()
        self._card = card

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func`, without dropout if it is attention by a kernel."""
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention or not torch.backends.cuda.flash_sdp_enabled():
            return func(*args, **kwargs)
        given = dict(zip(_OF_ATTENTION, args, strict=False)) | kwargs
        query, key, value = (given[name] for name in _OF_ATTENTION[:3])
        masked, causal = given.get("attn_mask") is not None, bool(given.get("is_causal"))
        kind = query.device.type
        mixed = torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if mixed else query.dtype
        if kernel_of(self._card, query, key, value, dtype, masked, causal) == MATH:
            with sdpa_kernel(SDPBackend.MATH):
                return func(**given)
        return func(**given | {"dropout_p": 0.0})


_OF_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def _is_mixed(tensor: torch.Tensor, parameters: Any) -> bool:
    return any(p is not None and p.dtype != tensor.dtype for p in parameters)


def _as_type(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if tensor.dtype == dtype:
        return tensor
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=dtype, device=tensor.device)


def _normalisation(first: int, end: int) -> Rule:
    """Return the rule of a normalisation whose parameters are `first` to `end` of its arguments."""

    def rule(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out, mean, deviation = func(*args, **kwargs)
        if _is_mixed(args[0], args[first:end]):
            # Statistics are of the type of the parameters, not of the input.
            mean, deviation = _as_type(mean, torch.float32), _as_type(deviation, torch.float32)
        return out, mean, deviation

    return rule


def _group_norm_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    gradient, *others = func(*args, **kwargs)
    if gradient is not None:
        gradient = _as_type(gradient, args[1].dtype)
    return (gradient, *others)


def _grouped_product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Experts on the CPU are not only of bfloat16."""
    left, right = args[:2]
    if left.dtype == right.dtype == torch.bfloat16 or right.dtype != left.dtype:
        return func(*args, **kwargs)
    ends = args[2] if len(args) > 2 else kwargs.get("offs")
    dtype = args[4] if len(args) > 4 else kwargs.get("out_dtype")
    if left.dim() == right.dim() == 2:
        # One product for each group of columns.
        assert ends is not None
        shape = [ends.size(0), left.size(0), right.size(1)]
    elif left.dim() == 3 and right.dim() == 2:
        shape = [left.size(1), right.size(1)]
    else:
        shape = [*left.shape[:-1], right.size(-1)]
    return torch.empty(shape, dtype=dtype or left.dtype, device=left.device)


def _over(tensor: torch.Tensor, elements: int) -> torch.Tensor:
    """Return a tensor like another one, over a storage of so many elements at least."""
    if tensor.untyped_storage().nbytes() >= elements * tensor.itemsize:
        return tensor
    whole = torch.empty(elements, dtype=tensor.dtype, device=tensor.device)
    return whole.as_strided(tensor.size(), tensor.stride())


def _reduced_loss(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The storage of the mean or sum is that of the losses of all elements."""
    elements = torch.broadcast_shapes(args[0].shape, args[1].shape).numel()
    loss = func(*args, **kwargs)
    if func.overloadpacket is aten.soft_margin_loss:
        loss = _as_type(loss, args[0].dtype)
    return _over(loss, elements)


def _as_input(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A loss's gradient is of the type of its input."""
    return _as_type(func(*args, **kwargs), args[1].dtype)


def _columns_to_image(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The image lies in a storage that had the size of the columns."""
    return _over(func(*args, **kwargs), args[0].numel())


def _embedding_bag(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """To whose bag each index belongs is found with one element more."""
    out, bags, *others = func(*args, **kwargs)
    indices = args[1].numel()
    return (out, _over(bags, indices + 1) if bags.numel() == indices else bags, *others)


def _recurrent_layer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make the reserve of a recurrent layer as large as the library does that computes it.

    It depends on the processor, too; so the layer is run once, on zeros of these sizes.
    """
    *outputs, workspace = func(*args, **kwargs)
    if not torch.is_grad_enabled():
        return (*outputs, workspace)
    described = tuple(_Like.of(each) for each in args)
    size = _kept_by(func, described)
    return (*outputs, torch.empty(size, dtype=workspace.dtype, device=workspace.device))


def _recurrent_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gradients are float32, and both biases get one of their own, a vector.

    So it is in all versions; before torch 2.13, fake tensors have the inputs' types, and a layer
    without biases gets the gradients of biases that are shaped like its weights.
    """
    gradients = [torch.empty_like(each, dtype=torch.float32) for each in func(*args, **kwargs)]
    gradients[3:5] = [each.new_empty(each.shape[0]) for each in gradients[3:5]]
    return tuple(gradients)


class _Like(NamedTuple):
    """A tensor without its values, or another argument."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None
    value: Any = None

    @classmethod
    def of(cls, value: Any) -> _Like:
        """Return shape and dtype of a tensor, or the value of another argument."""
        if isinstance(value, torch.Tensor):
            return cls(tuple(map(int, value.shape)), value.dtype)
        return cls((), None, tuple(value) if isinstance(value, list) else value)

    def made(self) -> Any:
        """Return an argument like it."""
        return self.value if self.dtype is None else torch.zeros(self.shape, dtype=self.dtype)


@cache
def _kept_by(func: Any, described: tuple[_Like, ...]) -> int:
    """Return the bytes that an operator keeps, as it says of zeros; once for all such calls."""
    # Without gradients it keeps nothing.
    with undispatched(), torch.enable_grad():
        kept = func(*(each.made() for each in described))[-1]
    return 0 if kept is None else int(kept.numel())


# Their reserves are empty on fake tensors.
_UNKNOWN = (aten._cudnn_rnn, aten.miopen_rnn)

_RULES: dict[Any, Rule] = {
    aten.native_layer_norm: _normalisation(2, 4),
    aten.native_group_norm: _normalisation(1, 3),
    aten.native_batch_norm: _normalisation(1, 5),
    aten.native_group_norm_backward: _group_norm_backward,
    aten._grouped_mm: _grouped_product,
    aten.mkldnn_rnn_layer: _recurrent_layer,
    aten.mkldnn_rnn_layer_backward: _recurrent_backward,
    aten._embedding_bag: _embedding_bag,
    aten.col2im: _columns_to_image,
    aten.mse_loss: _reduced_loss,
    aten.smooth_l1_loss: _reduced_loss,
    aten.soft_margin_loss: _reduced_loss,
    aten.binary_cross_entropy: _reduced_loss,
    aten.mse_loss_backward: _as_input,
    aten.smooth_l1_loss_backward: _as_input,
    aten.huber_loss_backward: _as_input,
    aten.soft_margin_loss_backward: _as_input,
}
