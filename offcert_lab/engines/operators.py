"""Operators that an engine runs, seen below autograd, as works of the simulated machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from offcert_lab.engines.findings import place
from offcert_lab.engines.memory import HOST, Geometry, Reference, Stay
from offcert_lab.engines.recorder import EngineRecorder, is_on_cpu, require_device


def copy(
    recorder: EngineRecorder, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """Copy as CUDA does, and enter what waits for what."""
    if not (is_on_cpu(target) and is_on_cpu(source)):
        return torch.ops.aten.copy_.default(target, source, non_blocking)
    to, of = recorder.where(target), recorder.where(source)
    called = recorder.called("copy_")
    if to != "device" and of != "device":
        _enter_copy(recorder, HOST, called, target, source)
    elif to == of:
        _enter_copy(recorder, recorder.stream, called, target, source)
    elif to == "device":
        to_device(recorder, target, source, non_blocking)
    else:
        _to_host(recorder, target, source, non_blocking)
    return torch.ops.aten.copy_.default(target, source)


def to_device(
    recorder: EngineRecorder, target: torch.Tensor, source: torch.Tensor, non_blocking: bool
) -> None:
    """Enter a copy from the host to the device."""
    called = recorder.called("copy to the device")
    asynchronous = non_blocking and recorder.where(source) == "pinned"
    if asynchronous and source.is_contiguous():
        recorder.life(source).recorded.add(recorder.stream)
        _enter_copy(recorder, recorder.stream, called, target, source)
        return
    # The host copies to memory of the driver's, or to contiguous memory, before the call returns.
    staged = _staging(recorder, source)
    _enter_copy(recorder, HOST, called, staged, source)
    _enter_copy(recorder, recorder.stream, called, target, staged)
    if not non_blocking:
        recorder.machine.streams[recorder.stream].record().wait_here()


def _to_host(
    recorder: EngineRecorder, target: torch.Tensor, source: torch.Tensor, non_blocking: bool
) -> None:
    called = recorder.called("copy to the host")
    pinned = recorder.where(target) == "pinned"
    if not (non_blocking and pinned and target.is_contiguous()):
        # Through contiguous memory, for which the host waits; then the host copies.
        staged = _staging(recorder, source)
        _enter_copy(recorder, recorder.stream, called, staged, source)
        recorder.machine.streams[recorder.stream].record().wait_here()
        _enter_copy(recorder, HOST, called, target, staged)
        return
    recorder.life(target).recorded.add(recorder.stream)
    _enter_copy(recorder, recorder.stream, called, target, source)


def _staging(recorder: EngineRecorder, like: torch.Tensor) -> torch.Tensor:
    staged = torch.empty_like(like, memory_format=torch.contiguous_format)
    recorder.enter(staged.untyped_storage(), "host")
    return staged


def _enter_copy(
    recorder: EngineRecorder, stream: int, called: str, target: torch.Tensor, source: torch.Tensor
) -> None:
    uses = [*recorder.uses([source], False), *recorder.uses([target], True)]
    run: Callable[..., Any] = torch.ops.aten.copy_.default
    args = recorder.referring((target, source), set())
    recorder.machine.give(stream, called, place(), uses, run, args, {}, results=[None])


# Operators that give memory out and write nothing.
_ONLY_MEMORY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
_ONLY_MEMORY |= {"empty_permuted", "resize_", "set_", "_pin_memory", "_reshape_alias"}
# Operators that take indices from the host, and copy them.
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Arguments that operators write without saying so in their schema. Given by PyTorch.
_WRITTEN = {"native_batch_norm": (3, 4), "cudnn_batch_norm": (3, 4)}
# Namespaces of operators that PyTorch implements, or that do nothing to tensors.
_KNOWN = {"aten", "prims", "prim", "profiler"}
_SYNCHRONISING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Seeing(TorchDispatchMode):
    """Shows a recorder the operators of a thread."""

    def __init__(self, recorder: EngineRecorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and enter it."""
        kwargs = kwargs or {}
        namespace, _, name = func._schema.name.partition("::")
        if namespace not in _KNOWN:
            key = _python_key(self.recorder, func._schema.name, (args, kwargs))
            if key is None:
                what = f"{namespace}::{name}, a kernel of C++"
                raise self.recorder.machine.refusal(what, place())
            with self:
                return func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)
        if "device" in kwargs and kwargs["device"] is not None:
            require_device(self.recorder, torch.device(kwargs["device"]))
        with self.recorder.machine.lock:
            if name == "copy_" and namespace == "aten":
                return copy(self.recorder, *args, **kwargs)
            return _run(self.recorder, func, name, args, kwargs)


def _run(recorder: EngineRecorder, func: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Run an operator where its tensors are, and enter its accesses."""
    tensors = [each for each in tree_iter((args, kwargs)) if isinstance(each, torch.Tensor)]
    if not all(map(is_on_cpu, tensors)):
        return func(*args, **kwargs)
    asked, kwargs = _asked_place(kwargs)
    if asked == "meta":
        return func(*args, **kwargs)
    wheres = {id(each): recorder.where(each) for each in tensors}
    if name == "_to_copy":
        if asked == "device" and wheres[id(args[0])] != "device":
            return _moved(recorder, func, args, kwargs)
        # PyTorch's C++ has meant the place where the tensor is; `Tensor.to` comes another way.
        asked = None
    on_device = asked == "device" or (asked is None and "device" in wheres.values())
    written = _written(func, name, args, kwargs)
    constant: set[int] = set()
    of_sizes = name in _ONLY_MEMORY or name.endswith("_like") or name.startswith("new_")
    if on_device and not of_sizes:
        for each in tensors:
            if wheres[id(each)] != "device" and (each.dim() == 0 or name in _INDEXING):
                constant.add(id(each))
            elif wheres[id(each)] != "device":
                _adopt(recorder, each)
    inputs = {each.untyped_storage()._cdata for each in tensors}
    random = _random_state(func, kwargs)
    template = (args, kwargs)
    references = recorder.referring(template, constant)
    observed = torch.Tag.data_dependent_output in func.tags
    result = func(*args, **kwargs)
    outputs = [each for each in tree_iter(result) if isinstance(each, torch.Tensor)]
    fresh = [each for each in outputs if each.untyped_storage()._cdata not in inputs]
    new = [each for each in fresh if not recorder.knows(each.untyped_storage())]
    where = asked or ("device" if on_device else "host")
    entered: set[int] = set()
    for each in new:
        storage = each.untyped_storage()
        if storage._cdata not in entered and name != "lift_fresh":
            entered.add(storage._cdata)
            recorder.enter(storage, where)
    if name in _ONLY_MEMORY or not (written or fresh or observed):
        return result
    if of_sizes:
        tensors = []
    uses = _accesses(recorder, tensors, written, fresh, constant)
    stream = recorder.stream if on_device else HOST
    recorder.machine.give(
        stream,
        recorder.called(name),
        place(),
        uses,
        func,
        *references,
        results=[_result(recorder, each, fresh) for each in outputs],
        random=random,
        observed=observed,
    )
    for each in tensors:
        if id(each) in constant:
            _host_reads(recorder, each, name)
    if on_device and _SYNCHRONISING & set(func.tags):
        recorder.machine.streams[stream].record().wait_here()
    return result


def _moved(recorder: EngineRecorder, func: Any, args: tuple[Any, ...], kwargs: Any) -> torch.Tensor:
    """Run an operator that copies a tensor of the host to the device."""
    result: torch.Tensor = func(*args, **kwargs)
    recorder.enter(result.untyped_storage(), "device")
    to_device(recorder, result, args[0], bool(kwargs.get("non_blocking")))
    return result


def _accesses(
    recorder: EngineRecorder,
    tensors: Sequence[torch.Tensor],
    written: set[int],
    fresh: Sequence[torch.Tensor],
    constant: set[int],
) -> list[tuple[Stay, Geometry, bool]]:
    read = [each for each in tensors if id(each) not in written and id(each) not in constant]
    found = recorder.uses(read, False)
    found += recorder.uses([each for each in tensors if id(each) in written], True)
    return found + recorder.uses(fresh, True)


def _result(
    recorder: EngineRecorder, tensor: torch.Tensor, fresh: Sequence[torch.Tensor]
) -> Reference | None:
    if not any(each is tensor for each in fresh):
        return None
    return Reference.of(tensor, recorder.life(tensor))


def _asked_place(kwargs: Any) -> tuple[str | None, Any]:
    """Return the place where an operator is to put its result, and its other arguments."""
    device, pinned = kwargs.get("device"), kwargs.get("pin_memory")
    if device is None and not pinned:
        return None, kwargs
    device = torch.device("cpu" if device is None else device)
    if device.type == "meta":
        return "meta", kwargs
    changed = dict(kwargs)
    if "device" in changed:
        changed["device"] = torch.device("cpu")
    if "pin_memory" in changed:
        changed["pin_memory"] = False
    if device.type == "cuda":
        return "device", changed
    return "pinned" if pinned else "host", changed


def _written(func: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> set[int]:
    """Return which tensors an operator writes in place, by identity."""
    found: set[int] = set()
    undeclared = _WRITTEN.get(name, ())
    for number, argument in enumerate(func._schema.arguments):
        info = argument.alias_info
        if not (info is not None and info.is_write) and number not in undeclared:
            continue
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        found |= {id(each) for each in tree_iter(value) if isinstance(each, torch.Tensor)}
    return found


def _random_state(func: Any, kwargs: Any) -> torch.Tensor | None:
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return None
    generator = kwargs.get("generator")
    return torch.get_rng_state() if generator is None else generator.get_state()


def _adopt(recorder: EngineRecorder, tensor: torch.Tensor) -> None:
    """Let memory be the device's that an operator of it uses.

    PyTorch's own C++ makes small tensors where it believes its inputs to be, which here is the CPU.
    A program that mixed devices itself would be refused by CUDA.
    """
    life = recorder.life(tensor)
    if life.where in ("pinned", "registered"):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found cuda:0 and cpu!"
        )
    if life.where == "host":
        life.where = "device"
        life.stream = recorder.stream


def _host_reads(recorder: EngineRecorder, tensor: torch.Tensor, name: str) -> None:
    recorder.machine.give(
        HOST, recorder.called(name), place(), recorder.uses([tensor], False), _nothing, (), {}
    )


def _nothing() -> None:
    pass


def _python_key(recorder: EngineRecorder, name: str, arguments: Any) -> Any:
    """Return the key by which somebody's own operator reaches its code in Python; None if never."""
    tensors = [each for each in tree_iter(arguments) if isinstance(each, torch.Tensor)]
    on_device = any(recorder.where(each) == "device" for each in tensors)
    keys = ("CUDA",) if on_device else ("CPU",)
    for key in (*keys, "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
        if f"{name.replace('::', '/')}/{key}" in torch.library._impls:
            return torch._C.DispatchKey.CUDA if key == "CUDA" else torch._C.DispatchKey.CPU
    return None
