"""Methods of tensors and storages whose answer depends on where these are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from offcert_lab.engines.cuda_names import Stream, recorder
from offcert_lab.engines.findings import place
from offcert_lab.engines.memory import HOST
from offcert_lab.engines.recorder import real_device, require_device

_DEVICE = torch.device("cuda", 0)
_ORIGINAL: dict[str, Callable[..., Any]] = {
    name: getattr(Tensor, name) for name in ("to", "cpu", "numpy", "tolist", "__repr__")
}
_MAKERS: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name) for name in ("tensor", "as_tensor", "asarray")
}
_STORAGE: dict[str, Callable[..., Any]] = {
    name: getattr(torch.UntypedStorage, name) for name in ("resize_", "copy_", "__deepcopy__")
}
_STORAGE_DEVICE = torch.UntypedStorage.device


def is_on_device(tensor: Tensor) -> bool:
    """Whether a tensor is on the simulated device."""
    return recorder().where(tensor) == "device"


def device(tensor: Tensor) -> torch.device:
    """Return ``Tensor.device``."""
    return _DEVICE if is_on_device(tensor) else real_device(tensor)


def get_device(tensor: Tensor) -> int:
    """Return ``Tensor.get_device()``."""
    return 0 if is_on_device(tensor) else -1


def is_pinned(tensor: Tensor, device: Any = None) -> bool:
    """Whether a tensor is in pinned memory."""
    return recorder().where(tensor) == "pinned"


def pin_memory(tensor: Tensor, device: Any = None) -> Tensor:
    """Return ``Tensor.pin_memory()``."""
    if is_on_device(tensor):
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be")
    return tensor if is_pinned(tensor) else _moved(tensor, "pinned", None, False, None)


class _Moved(torch.autograd.Function):
    """A copy to elsewhere, whose gradient goes back."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, *how: Any) -> Tensor:
        """Copy."""
        ctx.back = recorder().where(tensor), tensor.dtype
        return _copied(tensor, *how)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Copy the gradient to where the tensor was."""
        where, dtype = ctx.back
        where = "device" if where == "device" else "host"
        return _copied(gradient, where, dtype, False, None), None, None, None, None


def _moved(tensor: Tensor, where: str, dtype: Any, non_blocking: bool, layout: Any) -> Tensor:
    if torch.is_grad_enabled() and tensor.requires_grad:
        result: Tensor = _Moved.apply(tensor, where, dtype, non_blocking, layout)
        return result
    return _copied(tensor, where, dtype, non_blocking, layout)


def _copied(tensor: Tensor, where: str, dtype: Any, non_blocking: bool, layout: Any) -> Tensor:
    place_of = "cuda" if where == "device" else "cpu"
    made = torch.empty_like(
        tensor.detach(),
        dtype=dtype,
        device=place_of,
        pin_memory=where == "pinned",
        memory_format=torch.preserve_format if layout is None else layout,
    )
    return made.copy_(tensor.detach(), non_blocking=non_blocking)


def to(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return ``Tensor.to(...)``."""
    always = kwargs.pop("copy", False)
    first = args[0] if args else kwargs.get("other")
    if isinstance(first, Tensor):
        rest = {"non_blocking": args[1]} if len(args) > 1 else {}
        kwargs.pop("other", None)
        return to(tensor, first.device, first.dtype, copy=always, **rest, **kwargs)
    if len(args) == 4 or (args and isinstance(args[0], torch.dtype) and len(args) == 3):
        args, always = args[:-1], args[-1]
    target, dtype, non_blocking, layout = torch._C._nn._parse_to(*args, **kwargs)
    here = _DEVICE.type if is_on_device(tensor) else real_device(tensor).type
    if target is not None and target.type != "meta":
        require_device(recorder(), target)
    if target is None or target.type == here or "meta" in (target.type, here):
        kept: dict[str, Any] = {"copy": always, "non_blocking": non_blocking}
        if layout is not None:
            kept["memory_format"] = layout
        if target is not None and target.type == "meta":
            kept["device"] = target
        found: Tensor = _ORIGINAL["to"](tensor, dtype=dtype or tensor.dtype, **kept)
        return found
    where = "device" if target.type == "cuda" else "pinned" if non_blocking else "host"
    return _moved(tensor, where, dtype, non_blocking, layout)


def cpu(tensor: Tensor, memory_format: Any = None) -> Tensor:
    """Return ``Tensor.cpu()``."""
    return to(tensor, "cpu", **({} if memory_format is None else {"memory_format": memory_format}))


def cuda(
    tensor: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Tensor:
    """Return ``Tensor.cuda()``."""
    target = torch.device("cuda", device) if isinstance(device, int) else device or "cuda"
    more = {} if memory_format is None else {"memory_format": memory_format}
    return to(tensor, target, non_blocking=non_blocking, **more)


def record_stream(tensor: Tensor, stream: Stream) -> None:
    """Do as ``Tensor.record_stream``."""
    recorder().life(tensor).recorded.add(stream.stream_id)


def numpy(tensor: Tensor, *, force: bool = False) -> Any:
    """Return ``Tensor.numpy()``."""
    if is_on_device(tensor):
        if not force:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
                "tensor to host memory first."
            )
        return cpu(tensor.detach()).numpy()
    _host_reads(tensor, "numpy")
    return _ORIGINAL["numpy"](tensor, force=force)


def tolist(tensor: Tensor) -> Any:
    """Return ``Tensor.tolist()``."""
    if is_on_device(tensor):
        return _ORIGINAL["tolist"](cpu(tensor.detach()))
    _host_reads(tensor, "tolist")
    return _ORIGINAL["tolist"](tensor)


def shown(tensor: Tensor, *, tensor_contents: Any = None) -> str:
    """Return ``repr(tensor)``, for which the host reads it, and waits if it is on the device."""
    if tensor.numel() and not tensor.is_meta and type(tensor) in (Tensor, torch.nn.Parameter):
        if is_on_device(tensor):
            with torch.no_grad():
                cpu(tensor.detach())
        else:
            _host_reads(tensor, "print")
    text: str = _ORIGINAL["__repr__"](tensor, tensor_contents=tensor_contents)
    return text


def _host_reads(tensor: Tensor, name: str) -> None:
    known = recorder()
    with known.machine.lock:
        uses = known.uses([tensor], False)
        args = known.referring((tensor,), set())
        known.machine.give(HOST, name, place(), uses, torch.clone, args, {}, observed=True)


def makers() -> dict[str, Callable[..., Any]]:
    """Return functions that make tensors of data, by name: they do so on the host, and move."""

    def made_by(name: str) -> Callable[..., Any]:
        def make(data: Any, *args: Any, **kwargs: Any) -> Tensor:
            target = kwargs.pop("device", None)
            pinned = kwargs.pop("pin_memory", False)
            grad = kwargs.pop("requires_grad", False)
            if isinstance(data, Tensor) and name != "tensor":
                found = data
            else:
                found = _MAKERS[name](data, *args, **kwargs)
            if name != "tensor" and kwargs.get("dtype") is not None:
                found = found.to(kwargs["dtype"])
            if target is not None:
                found = found.to(torch.device(target))
            found = pin_memory(found) if pinned else found
            return found.requires_grad_() if grad else found

        return make

    return {name: made_by(name) for name in _MAKERS}


# Storages.


def storage_device(storage: torch.UntypedStorage) -> torch.device:
    """Return ``UntypedStorage.device``."""
    known = recorder()
    if _STORAGE_DEVICE.__get__(storage).type == "cpu" and known.life_of(storage).where == "device":
        return _DEVICE
    found: torch.device = _STORAGE_DEVICE.__get__(storage)
    return found


def resize_storage(storage: torch.UntypedStorage, size: int) -> Any:
    """Do as ``UntypedStorage.resize_``: zero bytes are given back, others are memory anew."""
    known = recorder()
    with known.machine.lock:
        if int(size) == storage.nbytes():
            return storage
        life = known.life_of(storage)
        known.empties(storage)
        _STORAGE["resize_"](storage, int(size))
        known.enter(storage, life.where)
        return storage


def copy_storage(
    storage: torch.UntypedStorage, source: torch.UntypedStorage, non_blocking: Any = None
) -> Any:
    """Do as ``UntypedStorage.copy_``."""
    whole = [torch.empty(0, dtype=torch.uint8).set_(each) for each in (storage, source)]
    whole[0].copy_(whole[1], non_blocking=bool(non_blocking))
    return storage


def deepcopy_storage(storage: torch.UntypedStorage, memo: dict[int, Any]) -> Any:
    """Return a copy of a storage, which is where that is."""
    known = recorder()
    if storage._cdata in memo:
        return memo[storage._cdata]
    whole = torch.empty(0, dtype=torch.uint8).set_(storage)
    with known.machine.lock:
        found = torch.empty_like(whole)
    copied = found.copy_(whole).untyped_storage()
    memo[storage._cdata] = copied
    return copied
