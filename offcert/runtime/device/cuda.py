"""A CUDA device: one stream for copies in each direction beside that of the operators.

Operators run in the stream that is current where they are called: the default one, or one that the
program has chosen; in a backward pass, which runs in threads of autograd's, the one in which the
forward pass of the same operator ran. PyTorch's allocator hands memory out and takes it back in the
order of that stream, so nothing here ever asks it to remember the streams that copy
(``record_stream``): whoever drops a tensor lets ``compute`` wait first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError, OffcertError
from offcert.core.platform import Kind
from offcert.runtime.device.host import ThreadClerk
from offcert.runtime.device.interface import (
    CopiedStorage,
    DeviceEvent,
    GraphCaptureError,
    MemoryReading,
)
from offcert.runtime.device.pinned import (
    CHUNK,
    CudaRegistrar,
    FileArena,
    PageableArena,
    PinnedArena,
)

# Nanoseconds in a millisecond. By definition.
_MILLISECOND = 10**6
# Cycles of a multiprocessor in a nanosecond, at most; of slower ones a hold lasts longer. Assumed.
_CYCLES_PER_NS = 2


class CudaEvent:
    """A point in the work of a stream."""

    __slots__ = ("event",)

    def __init__(self, event: torch.cuda.Event) -> None:
        self.event = event

    @property
    def reached(self) -> bool:
        """Whether all that came before it is known to have ended."""
        return bool(self.event.query())

    def wait_here(self) -> None:
        """Let the calling thread wait for it, without the interpreter's lock."""
        self.event.synchronize()


class CudaStream:
    """Work that is done in the order in which it was given.

    If it is `timed`, its events know when they were reached, which costs the device a little.
    """

    __slots__ = ("stream", "timed")

    def __init__(self, stream: torch.cuda.Stream, timed: bool = False) -> None:
        self.stream, self.timed = stream, timed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CudaStream) and bool(self.stream == other.stream)

    def __hash__(self) -> int:
        return hash(self.stream)

    def record(self) -> CudaEvent:
        """Return an event after all that the stream has been given so far."""
        # Blocking: a thread that waits for it sleeps, and does not keep a processor busy.
        event = torch.cuda.Event(enable_timing=self.timed, blocking=True)
        event.record(self.stream)
        return CudaEvent(event)

    def wait(self, event: DeviceEvent) -> None:
        """Let work that is given from now on begin only after an event of any CUDA stream."""
        assert isinstance(event, CudaEvent)
        self.stream.wait_event(event.event)


class CudaDevice:
    """One CUDA device.

    Without a number, the current one. If there is none, an `InputError` says so. If it is `timed`,
    events know when they were reached, so that `nanoseconds` can be asked for. PyTorch's allocator
    gives out its memory in multiples of a granule.
    """

    # Given by PyTorch: `kMinBlockSize` in c10/cuda/CUDACachingAllocator.
    granule = 512

    def __init__(self, device: torch.device | str = "cuda", *, timed: bool = False) -> None:
        self.tensors = _existing(torch.device(device))
        self.name = str(torch.cuda.get_device_name(self.tensors))
        self.timed = timed
        out, back = _streams(self.tensors)
        self.out = CudaStream(out, timed)
        self.back = CudaStream(back, timed)

    @property
    def compute(self) -> CudaStream:
        """The stream in which the calling thread's operators run."""
        return CudaStream(torch.cuda.current_stream(self.tensors), self.timed)

    def allocate(self, size: int) -> torch.Tensor:
        """Return bytes of the device, given out in the order of ``compute``."""
        return torch.empty(size, dtype=torch.uint8, device=self.tensors)

    def arena(self, size: int, order: Sequence[tuple[int, int]] | None = None) -> PinnedArena:
        """Return memory of the host, registered with the device."""
        registrar = CudaRegistrar(self.tensors, (self.out.stream, self.back.stream))
        return PinnedArena(size, registrar, chunk=CHUNK, order=order)

    def pageable(self, size: int) -> PageableArena:
        """Return memory of the host that is not registered."""
        return PageableArena(size)

    def file(self, size: int, directory: str | None = None) -> FileArena:
        """Return memory of the host in a file, which the device knows nothing of."""
        return FileArena(size, directory)

    def clerk(self, kind: Kind) -> ThreadClerk:
        """Return a thread that copies between memory of the host and files."""
        # A thread begins with the first device of all, of which it would make a context.
        return ThreadClerk(f"offcert-{kind}", partial(torch.cuda.set_device, self.tensors))

    def copy_out(self, parts: Sequence[CopiedStorage]) -> None:
        """Let ``out`` copy storages to the host, as one transfer."""
        self._copy(parts, self.out.stream, out=True)

    def copy_back(self, parts: Sequence[CopiedStorage]) -> None:
        """Let ``back`` copy storages from the host, as one transfer."""
        self._copy(parts, self.back.stream, out=False)

    def _copy(
        self, parts: Sequence[CopiedStorage], stream: torch.cuda.Stream, *, out: bool
    ) -> None:
        self._require(parts)
        with torch.cuda.stream(stream):
            for data, host, pending in (pair for part in parts for pair in _pairs(part)):
                source, target = (data, host) if out else (host, data)
                # Where the host's memory must not be registered meanwhile, the copy is waited for.
                with pending or nullcontext():
                    target.copy_(source, non_blocking=True)
                    if pending is not None:
                        stream.synchronize()

    def require_movable(self) -> None:
        """Raise a `GraphCaptureError` while the current stream's work becomes a CUDA graph.

        A stream that waits for an event of it is captured, too, so nobody may by then.
        """
        if torch.cuda.is_current_stream_capturing():
            # A graph would copy from and to the same addresses again, whatever is there by then.
            raise GraphCaptureError(
                "tensors cannot be moved by a plan while a CUDA graph is captured; leave out "
                'torch.cuda.graph, or the mode "reduce-overhead" of torch.compile'
            )

    def _require(self, parts: Sequence[CopiedStorage]) -> None:
        for part in parts:
            if part.data.device != self.tensors:
                raise OffcertError(
                    f"a tensor on {part.data.device} cannot be moved by a plan for {self.tensors}: "
                    "a plan is for one device"
                )
        self.require_movable()

    def hold(self, duration: int) -> None:
        """Let ``compute`` count cycles for about so many nanoseconds, if this PyTorch can do that.

        Kernels are queued meanwhile, up to a thousand or so; then the host waits.
        """
        sleep = getattr(torch.cuda, "_sleep", None)
        if sleep is not None:
            sleep(_CYCLES_PER_NS * duration)

    def ran(self, *durations: int) -> None:
        """Do nothing: the device takes its own time."""

    def nanoseconds(self, begin: DeviceEvent, end: DeviceEvent) -> int:
        """Return the time between two events that have been reached, if the device takes times."""
        if not self.timed:
            raise OffcertError("the events of this device were recorded without times")
        assert isinstance(begin, CudaEvent)
        assert isinstance(end, CudaEvent)
        return round(begin.event.elapsed_time(end.event) * _MILLISECOND)

    def synchronise(self) -> None:
        """Wait until all streams have done all they were given."""
        torch.cuda.synchronize(self.tensors)

    def memory(self) -> MemoryReading:
        """Return the bytes that PyTorch's allocator has given and reserved, now and at most."""
        # Not `memory_stats`, which takes longer than many operators do.
        known = torch.cuda.memory_stats_as_nested_dict(self.tensors)
        if not known:
            return MemoryReading(0, 0, 0, 0)
        given, held = known["allocated_bytes"]["all"], known["reserved_bytes"]["all"]
        # PyTorch's own allocator knows it, others that can be put in its place may not.
        asked = known.get("requested_bytes", {}).get("all", {"current": 0, "peak": 0})
        now, most = given["current"], given["peak"]
        reserved = held["current"], held["peak"]
        return MemoryReading(now, reserved[0], most, reserved[1], asked["current"], asked["peak"])

    def release(self) -> None:
        """Give back what PyTorch's allocator keeps for tensors to come, on all devices."""
        torch.cuda.empty_cache()

    def reset_peaks(self) -> None:
        """Begin anew to look for the most bytes."""
        torch.cuda.reset_peak_memory_stats(self.tensors)


# Of each device, once: PyTorch has 32 of each, and hands out the same ones again after that, to the
# program as to us.
STREAMS: dict[torch.device, tuple[torch.cuda.Stream, torch.cuda.Stream]] = {}


def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Return the streams that copy to the host and from it, so that neither waits for the other."""
    known = STREAMS.get(device)
    if known is None:
        made = torch.cuda.Stream(device), torch.cuda.Stream(device)
        known = STREAMS.setdefault(device, made)
    return known


_Pair = tuple[torch.Tensor, torch.Tensor, AbstractContextManager[Any] | None]


def _pairs(part: CopiedStorage) -> Iterator[_Pair]:
    """Yield bytes of device and host that one call copies, and what is held meanwhile."""
    whole, arena = part.data.numel(), part.arena
    for begin, size in arena.pieces(part.offset, whole):
        data = part.data if size == whole else part.data.narrow(0, begin - part.offset, size)
        yield data, arena.view(begin, size), arena.pending(begin)


def cuda_device(model: nn.Module, *, timed: bool = False) -> CudaDevice | None:
    """Return the CUDA device that a model is on; None if it is on none.

    If it is on several devices, or on another kind than CUDA's and the CPU, an `InputError` says
    so.
    """
    tensors = [*model.parameters(), *model.buffers()]
    devices = sorted({str(tensor.device) for tensor in tensors} - {"meta"})
    others = [name for name in devices if not name.startswith(("cpu", "cuda"))]
    if others:
        raise InputError(f"the model is on {others[0]}; plans are for CUDA devices and the CPU")
    found = [name for name in devices if name.startswith("cuda")]
    if len(found) > 1:
        raise InputError(
            f"the model is on {len(found)} devices, {', '.join(found)}; a plan is for one of them"
        )
    return CudaDevice(found[0], timed=timed) if found else None


def versions(device: torch.device) -> dict[str, Any]:
    """Return device, memory and versions that a measurement depends on, as a JSON value."""
    known: Any = torch.cuda.get_device_properties(device)
    return {
        "device": str(torch.cuda.get_device_name(device)),
        "capability": ".".join(map(str, torch.cuda.get_device_capability(device))),
        "memory": int(known.total_memory),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def _existing(device: torch.device) -> torch.device:
    if device.type != "cuda":
        raise InputError(f"{device} is not a CUDA device")
    if not torch.cuda.is_available():
        raise InputError(f"{device} cannot be used: PyTorch finds no CUDA device")
    number = torch.cuda.current_device() if device.index is None else device.index
    count = torch.cuda.device_count()
    if number >= count:
        raise InputError(f"there is no cuda:{number}; PyTorch finds {count} CUDA devices")
    return torch.device("cuda", number)
