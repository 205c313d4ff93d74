"""The signature of a call of the model: a step that is called otherwise is another step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from offcert.runtime.torch_private import tree_flatten
from offcert.runtime.watch.saved_hooks import dtype_name
from offcert.runtime.watch.sharded import Parts

# A JSON value: lists of strings, numbers and lists.
Signature = list[Any]


def signature(parts: Parts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
    """Return the signature of a call, as a JSON value.

    It has the shapes, data types and kinds of devices of the inputs, the other arguments as far as
    they are plain values, the state of autocast, and which modules train and which parameters are
    trained.
    """
    leaves, _ = tree_flatten((args, dict(sorted(kwargs.items()))))
    devices = sorted({leaf.device.type for leaf in leaves if isinstance(leaf, torch.Tensor)})
    autocast = [
        [device, dtype_name(torch.get_autocast_dtype(device))]
        for device in devices
        if device != "meta" and torch.is_autocast_enabled(device)
    ]
    found = [
        list(map(_describe, leaves)),
        autocast,
        _runs([module.training for module in parts.modules]),
        _runs([parameter.requires_grad for parameter in parts.parameters]),
    ]
    # What it gathers, frees and reduces, if `fully_shard` was applied.
    return [*found, parts.sharded.flags()] if parts.sharded else found


def _describe(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        dtype = dtype_name(leaf.dtype)
        # Rows of nested tensors have no one length.
        shape = [0] * leaf.dim() if leaf.is_nested else list(map(int, leaf.shape))
        return [dtype, shape, leaf.device.type, leaf.requires_grad]
    if leaf is None or isinstance(leaf, bool | int | str):
        return repr(leaf)
    # Floats may be annealed, objects have addresses: what they change shows in what is saved.
    return type(leaf).__name__


def as_if_on(call: Signature, captured: str, here: str) -> Signature:
    """Return the signature that a call on a device `here` would have on another kind of device.

    A step that was captured on tensors without data, or on the CPU, is the same step on CUDA. What
    CUDA saves beyond that, if anything, shows when it is saved.
    """
    if captured == here:
        return call
    inputs, autocast, *rest = call
    kinds = {here: captured}
    moved = [
        [each[0], each[1], kinds.get(each[2], each[2]), each[3]] if isinstance(each, list) else each
        for each in inputs
    ]
    return [moved, [[kinds.get(kind, kind), dtype] for kind, dtype in autocast], *rest]


def covers(captured: Signature, call: Signature) -> bool:
    """Whether a call equals a captured one but for inputs that are smaller.

    Each tensor has at most the captured shape, dimension by dimension, and none is empty. Whole
    numbers, such as the time step of a diffusion, may be others; all else must be equal.
    """
    if captured == call:
        return True
    if captured[1:] != call[1:] or len(captured[0]) != len(call[0]):
        return False
    return all(map(_at_most, captured[0], call[0]))


def _at_most(captured: Any, found: Any) -> bool:
    if captured == found:
        return True
    if isinstance(captured, list) and isinstance(found, list):
        same = captured[0] == found[0] and captured[2:] == found[2:]
        return same and fits_into(found[1], captured[1])
    return _is_number(captured) and _is_number(found)


def fits_into(shape: Sequence[int], large: Sequence[int]) -> bool:
    """Whether a shape that is not empty is nowhere larger than another one."""
    return len(shape) == len(large) and all(
        0 < each <= most for each, most in zip(shape, large, strict=True)
    )


def volume(call: Signature) -> int:
    """Return how many elements the tensors have that the model is called with."""
    return sum(prod(each[1]) for each in call[0] if isinstance(each, list))


def _is_number(value: Any) -> bool:
    # The text of a whole number; that of a text has quotes.
    return isinstance(value, str) and value.removeprefix("-").isdecimal()


def _runs(flags: list[bool]) -> list[int]:
    """Return the lengths of the runs of equal flags, false first."""
    lengths = [0]
    value = False
    for flag in flags:
        if flag is not value:
            lengths.append(0)
            value = flag
        lengths[-1] += 1
    return lengths


_NAMES = (
    "inputs",
    "autocast",
    "modules in training mode",
    "trained parameters",
    "sharding (what fully_shard reduces, frees, and has accumulated)",
)
# Signatures hold runs of flags for these, false first.
_COUNTED = {"modules in training mode": "modules", "trained parameters": "parameters"}


def difference(expected: Signature, found: Signature) -> str | None:
    """Return in what a call differs from the one that was captured, or None."""
    if expected == found:
        return None
    if len(expected) != len(found):
        return "it is sharded by fully_shard otherwise"
    for name, before, now in zip(_NAMES, expected, found, strict=False):
        if before == now:
            continue
        if name == "inputs" and len(before) != len(now):
            return f"it has {len(now)} inputs instead of {len(before)}"
        if name in _COUNTED and sum(before) != sum(now):
            kind = _COUNTED[name]
            return f"the model has {sum(now)} {kind} instead of {sum(before)}"
        if name in _COUNTED:
            return f"it has {sum(now[1::2])} {name} instead of {sum(before[1::2])}"
        if name != "inputs":
            return f"its {name} is {_show(now)} instead of {_show(before)}"
        index = next(
            i for i, pair in enumerate(zip(before, now, strict=True)) if pair[0] != pair[1]
        )
        return f"input {index} is {_show(now[index])} instead of {_show(before[index])}"
    return "it is called otherwise"


def _show(value: Any) -> str:
    if isinstance(value, list) and len(value) == 4 and isinstance(value[1], list):
        return f"{'x'.join(map(str, value[1])) or 'scalar'} {value[0]} on {value[2]}"
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
