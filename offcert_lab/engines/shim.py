"""Names of PyTorch that mean the simulated machine while an engine is audited.

Streams in backward passes are as autograd's engine chooses them. It runs each node in the stream
that was current when the node was made, lets that wait for the streams in which the node's
gradients were computed, records these gradients for it, and lets the caller's stream wait at the
end for all streams in which gradients were accumulated.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from offcert.runtime.simulated.streams import SimulatedEvent
from offcert_lab.engines import cuda_names, tensor_names
from offcert_lab.engines.findings import place
from offcert_lab.engines.machine import UnseenError
from offcert_lab.engines.operators import Seeing
from offcert_lab.engines.recorder import EngineRecorder

# Before the audit, which puts another one in its place.
_RUN: Callable[..., Any] = torch.autograd.graph._engine_run_backward
# The number that autograd gives to all nodes that accumulate gradients, and more. Given by PyTorch.
_ACCUMULATES = 2**63


def run_with(recorder: EngineRecorder) -> Callable[..., Any]:
    """Return the function that runs backward passes, for a recorder."""

    def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        roots = [_root(each) for each in outputs]
        nodes = _nodes(roots)
        streams = _streams(recorder, nodes)
        if recorder.one_stream or set(streams.values()) <= {recorder.stream}:
            return _RUN(outputs, *args, **kwargs)
        return _Pass(recorder, roots, nodes, streams).run(outputs, *args, **kwargs)

    return run


def _root(output: Any) -> Any:
    if not isinstance(output, torch.Tensor):
        return output.node
    return torch.autograd.graph.get_gradient_edge(output).node


def _nodes(roots: Iterable[Any]) -> list[Any]:
    found, stack = [], [root for root in roots if root is not None]
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        found.append(node)
        stack += [after for after, _ in node.next_functions if after is not None]
    return found


def _streams(recorder: EngineRecorder, nodes: list[Any]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    first: dict[Any, int] = {}
    for node in nodes:
        number = node._sequence_nr()
        if number < _ACCUMULATES:
            found[node] = recorder.stream_of(number)
            for after, _ in node.next_functions:
                if after is not None:
                    first[after] = min(first.get(after, number), number)
    for node in nodes:
        if node not in found:
            # The node was made when its parameter was first used.
            found[node] = recorder.stream_of(first.get(node, 0))
    return found


class _Pass:
    """One backward pass in several streams."""

    def __init__(
        self, recorder: EngineRecorder, roots: list[Any], nodes: list[Any], streams: dict[Any, int]
    ) -> None:
        self.recorder = recorder
        self.nodes = nodes
        self.streams = streams
        self.caller = recorder.stream
        begin = recorder.machine.streams[self.caller].record()
        self.before: dict[Any, list[SimulatedEvent]] = {node: [] for node in nodes}
        for root in roots:
            self.before[root].append(begin)
        self.leaves: list[SimulatedEvent] = []

    def run(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Run it."""
        handles = []
        for node in self.nodes:
            handles.append(node.register_prehook(self._begins(node)))
            handles.append(node.register_hook(self._ended(node)))
        try:
            return _RUN(outputs, *args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
            self.recorder.stream = self.caller
            for event in self.leaves:
                self.recorder.machine.streams[self.caller].wait(event)

    def _begins(self, node: Any) -> Callable[..., None]:
        def begins(gradients: Any) -> None:
            stream = self.streams[node]
            self.recorder.stream = stream
            for event in self.before[node]:
                if event.stream.index != stream:
                    self.recorder.machine.streams[stream].wait(event)
            for gradient in gradients:
                if gradient is not None:
                    self.recorder.life(gradient).recorded.add(stream)

        return begins

    def _ended(self, node: Any) -> Callable[..., None]:
        def ended(*gradients: Any) -> None:
            event = self.recorder.machine.streams[self.streams[node]].record()
            for after, _ in node.next_functions:
                if after in self.before:
                    self.before[after].append(event)
            if not any(after is not None for after, _ in node.next_functions):
                self.leaves.append(event)

        return ended


# Bytes of the simulated device, of which nothing ever runs out. Arbitrary.
_MEMORY = 2**50
_MISSING = object()


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise cuda_names.recorder().machine.refusal(name, place())

    return refuse


class _RefusedClass:
    """A class that cannot be made here."""

    name = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refused(self.name)()


def _refused_class(name: str) -> type:
    return type(name.rsplit(".", 1)[-1], (_RefusedClass,), {"name": name})


class _Generator(torch.Generator):
    """A generator of random numbers: those of the device are drawn on the CPU."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


def _always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _names(recorder: EngineRecorder) -> Iterator[tuple[Any, str, Any]]:
    """Yield the names that get another meaning: an object, an attribute, and its value."""
    yield from _of_cuda(recorder)
    yield from _of_accelerators()
    yield from _of_tensors()
    yield torch, "Generator", _Generator
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        yield torch.cuda.nvtx, name, _always(0)
    yield torch.cuda.nvtx, "range", lambda *text, **more: nullcontext()
    for module in (torch.autograd, torch.autograd.graph):
        yield module, "_engine_run_backward", run_with(recorder)
    yield threading.Thread, "run", _run_seeing(recorder)
    # Whoever hides operators from dispatch modes hides them from this one, too.
    yield torch._C, "_DisableTorchDispatch", nullcontext
    yield torch, "compile", _refused("torch.compile")
    yield torch.cuda, "graph", _refused_class("torch.cuda.graph")
    yield torch.cuda, "CUDAGraph", _refused_class("torch.cuda.CUDAGraph")
    yield torch.cuda, "make_graphed_callables", _refused("torch.cuda.make_graphed_callables")
    yield torch.cuda, "ExternalStream", _refused_class("torch.cuda.ExternalStream")
    yield (
        torch.utils,
        "dlpack",
        SimpleNamespace(to_dlpack=_refused("dlpack"), from_dlpack=_refused("dlpack")),
    )


def _of_cuda(recorder: EngineRecorder) -> Iterator[tuple[Any, str, Any]]:
    machine = recorder.machine
    values: dict[str, Any] = {
        "Stream": cuda_names.Stream,
        "Event": cuda_names.Event,
        "StreamContext": cuda_names.StreamContext,
        "stream": cuda_names.StreamContext,
        "current_stream": cuda_names.current_stream,
        "default_stream": cuda_names.default_stream,
        "set_stream": cuda_names.set_stream,
        "synchronize": cuda_names.synchronize,
        "is_available": _always(True),
        "is_initialized": _always(True),
        "_lazy_init": _always(None),
        "init": _always(None),
        "device_count": _always(1),
        "current_device": _always(0),
        "set_device": _always(None),
        "_exchange_device": _always(0),
        "_maybe_exchange_device": _always(0),
        "is_current_stream_capturing": _always(False),
        "get_device_name": _always("simulated device"),
        "get_device_capability": _always((9, 0)),
        "get_device_properties": _always(
            SimpleNamespace(name="simulated device", total_memory=_MEMORY, major=9, minor=0)
        ),
        "mem_get_info": lambda *device: (_MEMORY - machine.allocated, _MEMORY),
        "memory_allocated": lambda *device: machine.allocated,
        "max_memory_allocated": lambda *device: machine.peaks.device,
        "memory_reserved": lambda *device: machine.peaks.reserved,
        "max_memory_reserved": lambda *device: machine.peaks.reserved,
        "reset_peak_memory_stats": lambda *device: machine.reset_peaks(),
        "reset_max_memory_allocated": lambda *device: machine.reset_peaks(),
        "memory_stats_as_nested_dict": lambda *device: _statistics(recorder),
        "memory_stats": lambda *device: _flat(_statistics(recorder)),
        "memory_summary": lambda *device, **more: str(machine.peaks),
        "empty_cache": _always(None),
        "_sleep": _always(None),
        "ipc_collect": _always(None),
        "is_bf16_supported": _always(True),
        "get_rng_state": lambda *device: torch.get_rng_state(),
        "set_rng_state": lambda state, *device: torch.set_rng_state(state),
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "cudart": lambda: _cudart(recorder),
    }
    for name, value in values.items():
        yield torch.cuda, name, value
    yield torch.cuda.random, "get_rng_state", values["get_rng_state"]
    yield torch.cuda.random, "set_rng_state", values["set_rng_state"]
    for name in ("Stream", "Event"):
        yield torch.cuda.streams, name, values[name]


def _of_accelerators() -> Iterator[tuple[Any, str, Any]]:
    yield torch, "Stream", cuda_names.Stream
    yield torch, "Event", cuda_names.Event
    values = {
        "is_available": _always(True),
        "device_count": _always(1),
        "current_accelerator": lambda *check, **option: torch.device("cuda"),
        "current_device_index": _always(0),
        "set_device_index": _always(None),
        "current_stream": cuda_names.current_stream,
        "set_stream": cuda_names.set_stream,
        "synchronize": cuda_names.synchronize,
    }
    for name, value in values.items():
        yield torch.accelerator, name, value


def _of_tensors() -> Iterator[tuple[Any, str, Any]]:
    own = tensor_names
    values: dict[str, Any] = {
        "device": property(own.device),
        "is_cuda": property(own.is_on_device),
        "is_cpu": property(lambda tensor: own.device(tensor).type == "cpu"),
        "get_device": own.get_device,
        "is_pinned": own.is_pinned,
        "pin_memory": own.pin_memory,
        "to": own.to,
        "cpu": own.cpu,
        "cuda": own.cuda,
        "numpy": own.numpy,
        "tolist": own.tolist,
        "__repr__": own.shown,
        "record_stream": own.record_stream,
    }
    for name, value in values.items():
        yield torch.Tensor, name, value
    for name, value in own.makers().items():
        yield torch, name, value
    storages: dict[str, Any] = {
        "device": property(own.storage_device),
        "is_cuda": property(lambda storage: own.storage_device(storage).type == "cuda"),
        "resize_": own.resize_storage,
        "copy_": own.copy_storage,
        "__deepcopy__": own.deepcopy_storage,
    }
    for name, value in storages.items():
        yield torch.UntypedStorage, name, value


def _statistics(recorder: EngineRecorder) -> dict[str, Any]:
    machine = recorder.machine
    peaks = machine.peaks
    return {
        "allocated_bytes": {"all": {"current": machine.allocated, "peak": peaks.device}},
        "reserved_bytes": {"all": {"current": peaks.reserved, "peak": peaks.reserved}},
        "requested_bytes": {"all": {"current": machine.requested, "peak": machine.peak_requested}},
    }


def _flat(nested: dict[str, Any]) -> dict[str, int]:
    """Return statistics by names with dots, as ``memory_stats`` does; others are zero."""
    found: defaultdict[str, int] = defaultdict(int)
    for name, of in nested.items():
        found |= {f"{name}.all.{what}": value for what, value in of["all"].items()}
    return found


def _cudart(recorder: EngineRecorder) -> Any:
    """Return the runtime of CUDA, as far as it registers memory of the host."""

    def register(address: int, size: int, flags: int) -> int:
        with recorder.machine.lock:
            recorder.register(address, size)
        return 0

    def unregister(address: int) -> int:
        with recorder.machine.lock:
            recorder.unregister(address)
        return 0

    return SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=unregister)


def _run_seeing(recorder: EngineRecorder) -> Callable[[threading.Thread], None]:
    original = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        with Seeing(recorder):
            original(thread)

    return run


@contextmanager
def simulated(recorder: EngineRecorder) -> Iterator[None]:
    """Let the names mean the machine of a recorder in the block, and record what runs there."""
    if cuda_names.running:
        raise UnseenError("an audit of an engine runs in this process already")
    with ExitStack() as stack:
        cuda_names.running.append(recorder)
        stack.callback(cuda_names.running.clear)
        for owner, name, value in list(_names(recorder)):
            before = owner.__dict__.get(name, _MISSING)
            setattr(owner, name, value)
            stack.callback(_put_back, owner, name, before)
        stack.enter_context(Seeing(recorder))
        yield


def _put_back(owner: Any, name: str, before: Any) -> None:
    if before is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
