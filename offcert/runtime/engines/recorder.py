"""Operators that an engine runs, seen below autograd, and entered in the machine's book.

Tensors of the simulated device lie in memory of the CPU; which storages stand for memory of the
device, or for pinned memory, is a table here. Operators run when they are called, so that the
program goes on with right values whatever it forgot to wait for.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from offcert.runtime.engines.lines import node, place
from offcert.runtime.engines.machine import Machine, UnseenError
from offcert.runtime.engines.memory import HOST, Geometry, Life
from offcert.runtime.engines.work import Reference

Storage = torch.UntypedStorage
# What PyTorch itself says, whatever a program is told meanwhile.
real_device: Callable[[torch.Tensor], torch.device] = torch._C.TensorBase.device.__get__

# Operators that give memory out and write nothing.
_ONLY_MEMORY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
_ONLY_MEMORY |= {"empty_permuted", "resize_", "set_", "_pin_memory", "_reshape_alias"}
# Operators that take indices from the host, and copy them.
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Arguments that operators write without saying so in their schema.
_WRITTEN = {"native_batch_norm": (3, 4), "cudnn_batch_norm": (3, 4)}
# Namespaces of operators that PyTorch implements, or that do nothing to tensors.
_KNOWN = {"aten", "prims", "prim", "profiler"}
_SYNCHRONISING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Recorder:
    """Who has which memory, and in which stream the calling thread is.

    Parameters
    ----------
    machine : Machine
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._known: dict[int, tuple[weakref.ref[Any], Life]] = {}
        self._local = threading.local()
        # Addresses and sizes of memory that the program has registered itself.
        self.registered: dict[int, int] = {}
        # From which sequence number of autograd on a stream was current.
        self._changes: list[tuple[int, int]] = [(0, 0)]

    # Streams.

    @property
    def stream(self) -> int:
        """The number of the stream that is current in the calling thread."""
        return int(getattr(self._local, "stream", 0))

    @stream.setter
    def stream(self, index: int) -> None:
        if index != self.stream and threading.current_thread() is threading.main_thread():
            self._changes.append((torch.autograd._get_sequence_nr(), index))
        self._local.stream = index

    def stream_of(self, sequence: int) -> int:
        """Return the stream that was current when autograd made the node of a number."""
        return self._changes[bisect_right(self._changes, (sequence, 2**30)) - 1][1]

    @property
    def one_stream(self) -> bool:
        """Whether there has never been another current stream."""
        return len(self._changes) == 1

    # Memory.

    def life(self, tensor: torch.Tensor) -> Life:
        """Return the life that a tensor's storage is in."""
        return self.life_of(tensor.untyped_storage())

    def life_of(self, storage: Storage) -> Life:
        """Return the life that a storage is in; one that nobody knows is the host's."""
        known = self._known.get(storage._cdata)
        if known is not None and known[0]() is storage:
            return known[1]
        where = "registered" if self.is_registered(storage) else "host"
        life = self.enter(storage, where)
        life.initial = _bytes(storage).clone()
        return life

    def where(self, tensor: torch.Tensor) -> str:
        """Return ``"device"``, ``"pinned"`` or ``"host"``."""
        if tensor.layout is not torch.strided or real_device(tensor).type != "cpu":
            return "host"
        storage = tensor.untyped_storage()
        known = self._known.get(storage._cdata)
        if known is not None and known[0]() is storage:
            where = known[1].where
        else:
            where = "registered" if self.is_registered(storage) else "host"
        return "pinned" if where == "registered" else where

    def is_registered(self, storage: Storage) -> bool:
        """Whether a storage lies in memory that the program has registered."""
        address = storage.data_ptr()
        return any(begin <= address < begin + size for begin, size in self.registered.items())

    def enter(self, storage: Storage, where: str, stream: int | None = None) -> Life:
        """Begin a life."""
        life = self.machine.allocate(
            where, storage.nbytes(), self.stream if stream is None else stream
        )
        key = storage._cdata

        def died(_: object, key: int = key, life: Life = life) -> None:
            with self.machine.lock:
                known = self._known.get(key)
                if known is not None and known[1] is life:
                    del self._known[key]
                self.machine.give_back(life, place())

        self._known[key] = weakref.ref(storage, died), life
        return life

    def empties(self, storage: Storage) -> None:
        """End the life of a storage whose bytes are given back while it lives on."""
        known = self._known.pop(storage._cdata, None)
        if known is not None:
            self.machine.give_back(known[1], place())

    def unregister(self, address: int) -> None:
        """Take note that memory is registered no more."""
        size = self.registered.pop(address)
        self.machine.register(-size)
        for reference, life in list(self._known.values()):
            storage = reference()
            inside = storage is not None and address <= storage.data_ptr() < address + size
            if inside and life.where == "registered":
                self.machine.released_on_host(life, place())
                life.where = "host"

    def living(self) -> list[Life]:
        """Return the lives that have not ended, in order."""
        found = [life for reference, life in self._known.values() if reference() is not None]
        return sorted(found, key=lambda life: life.number)

    def contents(self) -> dict[int, torch.Tensor]:
        """Return the bytes of all lives that have not ended, by their numbers."""
        found = {}
        for reference, life in list(self._known.values()):
            if (storage := reference()) is not None:
                found[life.number] = _bytes(storage).clone()
        return found

    # Operators.

    def uses(
        self, tensors: Sequence[torch.Tensor], writes: bool
    ) -> list[tuple[Life, Geometry, bool]]:
        """Return the accesses to tensors."""
        return [(self.life(each), Geometry.of(each), writes) for each in tensors]

    def referring(self, arguments: Any, constant: set[int]) -> Any:
        """Return arguments with references for tensors, and copies of those that are constant."""

        def refer(tensor: torch.Tensor) -> Any:
            if not _is_plain(tensor):
                return tensor
            if id(tensor) in constant:
                return tensor.detach().clone()
            return Reference.of(tensor, self.life(tensor))

        return tree_map_only(torch.Tensor, refer, arguments)

    def called(self, name: str) -> str:
        """Return what people call an operator that runs now."""
        running = node()
        return f"{name} in {running}" if running else name

    @contextmanager
    def seeing(self) -> Iterator[None]:
        """Record what the calling thread runs in the block."""
        with Seeing(self):
            yield


class Seeing(TorchDispatchMode):
    """Shows a recorder the operators of a thread."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and enter it."""
        kwargs = kwargs or {}
        namespace, _, name = func._schema.name.partition("::")
        if namespace not in _KNOWN:
            if not _in_python(func._schema.name):
                raise UnseenError(
                    f"the engine calls {namespace}::{name}, a kernel of C++ that the simulation "
                    "does not see"
                )
            with self:
                return func.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *args,
                                       **kwargs)
        with self.recorder.machine.lock:
            if name == "copy_" and namespace == "aten":
                return copy(self.recorder, *args, **kwargs)
            return _run(self.recorder, func, name, args, kwargs)


def _run(recorder: Recorder, func: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Run an operator where its tensors are, and enter its accesses."""
    tensors = [each for each in tree_iter((args, kwargs)) if isinstance(each, torch.Tensor)]
    if not all(map(_is_plain, tensors)):
        return func(*args, **kwargs)
    asked, kwargs = _asked_place(kwargs)
    if asked == "meta":
        return func(*args, **kwargs)
    wheres = {id(each): recorder.where(each) for each in tensors}
    on_device = asked == "device" or (asked is None and "device" in wheres.values())
    written = _written(func, name, args, kwargs)
    constant: set[int] = set()
    if on_device:
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
    new = [each for each in fresh if not _entered(recorder, each)]
    where = asked or ("device" if on_device else "host")
    entered: set[int] = set()
    for each in new:
        storage = each.untyped_storage()
        if storage._cdata not in entered and name != "lift_fresh":
            entered.add(storage._cdata)
            recorder.enter(storage, where)
    if name in _ONLY_MEMORY or not (written or fresh or observed):
        return result
    if name.endswith("_like") or name.startswith("new_"):
        # They read sizes only.
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
        recorder.machine.host_waits(recorder.machine.record(stream))
    return result


def _accesses(
    recorder: Recorder,
    tensors: Sequence[torch.Tensor],
    written: set[int],
    fresh: Sequence[torch.Tensor],
    constant: set[int],
) -> list[tuple[Life, Geometry, bool]]:
    read = [each for each in tensors if id(each) not in written and id(each) not in constant]
    found = recorder.uses(read, False)
    found += recorder.uses([each for each in tensors if id(each) in written], True)
    return found + recorder.uses(fresh, True)


def _result(
    recorder: Recorder, tensor: torch.Tensor, fresh: Sequence[torch.Tensor]
) -> Reference | None:
    if not any(each is tensor for each in fresh):
        return None
    return Reference.of(tensor, recorder.life(tensor))


def _entered(recorder: Recorder, tensor: torch.Tensor) -> bool:
    known = recorder._known.get(tensor.untyped_storage()._cdata)
    return known is not None and known[0]() is tensor.untyped_storage()


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and real_device(tensor).type == "cpu"


def _asked_place(kwargs: Any) -> tuple[str | None, Any]:
    """Return where an operator is told to put its result, and its arguments without that."""
    device, pinned = kwargs.get("device"), kwargs.get("pin_memory")
    if device is None and not pinned:
        return None, kwargs
    device = torch.device("cpu" if device is None else device)
    if device.type == "meta":
        return "meta", kwargs
    require_device(device)
    changed = dict(kwargs)
    if "device" in changed:
        changed["device"] = torch.device("cpu")
    if "pin_memory" in changed:
        changed["pin_memory"] = False
    if device.type == "cuda":
        return "device", changed
    return "pinned" if pinned else "host", changed


def require_device(device: torch.device) -> None:
    """Refuse devices that are not there."""
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and (device.index or 0) > 0):
        raise UnseenError(f"the engine uses {device}; the simulated machine has cpu and cuda:0")


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


def _adopt(recorder: Recorder, tensor: torch.Tensor) -> None:
    """Let memory be the device's that an operator of it uses.

    PyTorch's own C++ makes small tensors where it believes its inputs to be, which here is the CPU.
    A program that mixed devices itself would be refused by CUDA.
    """
    life = recorder.life(tensor)
    if life.where == "host":
        life.where = "device"
        life.stream = recorder.stream


def _host_reads(recorder: Recorder, tensor: torch.Tensor, name: str) -> None:
    recorder.machine.give(
        HOST, recorder.called(name), place(), recorder.uses([tensor], False), _nothing, (), {}
    )


def _nothing() -> None:
    pass


def _in_python(name: str) -> bool:
    """Whether an operator of somebody's own is written in Python."""
    from torch._library.custom_ops import OPDEFS

    path = name.replace("::", "/") + "/"
    return name in OPDEFS or any(key.startswith(path) for key in torch.library._impls)


def _bytes(storage: Storage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)


# Copies.


def copy(
    recorder: Recorder, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """Copy as CUDA does, and enter what waits for what."""
    if not (_is_plain(target) and _is_plain(source)):
        return torch.ops.aten.copy_.default(target, source, non_blocking)
    to, of = recorder.where(target), recorder.where(source)
    called = recorder.called("copy_")
    if to != "device" and of != "device":
        _enter_copy(recorder, HOST, called, target, source)
    elif to == of:
        _enter_copy(recorder, recorder.stream, called, target, source)
    elif to == "device":
        _to_device(recorder, target, source, non_blocking)
    else:
        _to_host(recorder, target, source, non_blocking)
    return torch.ops.aten.copy_.default(target, source)


def _to_device(
    recorder: Recorder, target: torch.Tensor, source: torch.Tensor, non_blocking: bool
) -> None:
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
        recorder.machine.host_waits(recorder.machine.record(recorder.stream))


def _to_host(
    recorder: Recorder, target: torch.Tensor, source: torch.Tensor, non_blocking: bool
) -> None:
    called = recorder.called("copy to the host")
    pinned = recorder.where(target) == "pinned"
    if not (non_blocking and pinned and target.is_contiguous()):
        # Through contiguous memory, for which the host waits; then the host copies.
        staged = _staging(recorder, source)
        _enter_copy(recorder, recorder.stream, called, staged, source)
        recorder.machine.host_waits(recorder.machine.record(recorder.stream))
        _enter_copy(recorder, HOST, called, target, staged)
        return
    recorder.life(target).recorded.add(recorder.stream)
    _enter_copy(recorder, recorder.stream, called, target, source)


def _staging(recorder: Recorder, like: torch.Tensor) -> torch.Tensor:
    staged = torch.empty_like(like, memory_format=torch.contiguous_format)
    recorder.enter(staged.untyped_storage(), "host")
    return staged


def _enter_copy(
    recorder: Recorder, stream: int, called: str, target: torch.Tensor, source: torch.Tensor
) -> None:
    uses = [*recorder.uses([source], False), *recorder.uses([target], True)]
    run: Callable[..., Any] = torch.ops.aten.copy_.default
    args = recorder.referring((target, source), set())
    recorder.machine.give(stream, called, place(), uses, run, args, {}, results=[None])
