"""The few functions of ``torch.cuda`` that a `CudaDevice` calls, without CUDA, written down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from offcert.runtime.device.registration import stretches


class FakeCuda:
    """What is put in the place of ``torch.cuda``'s functions, and what they were called for.

    Of an arena it registers no more than ``most`` bytes by one call. Time stands still unless
    ``now`` is moved. What streams have been given is done only when
    somebody waits for them.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        devices: int = 1,
        error: int = 0,
        most: int | None = None,
    ) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.now = 0
        self.streams: list[Stream] = []
        self.registered: dict[int, int] = {}
        self.error = error
        self.most = most
        self.capturing = False
        self.stats: dict[str, Any] = {}
        self._current = [Stream(self, "default")]
        cudart = SimpleNamespace(
            cudaHostRegister=self._register, cudaHostUnregister=self._unregister
        )
        properties = SimpleNamespace(total_memory=2**34)
        for name, value in {
            "is_available": lambda: devices > 0,
            "device_count": lambda: devices,
            "current_device": lambda: 0,
            "get_device_name": lambda device: f"Fake {device}",
            "get_device_properties": lambda device: properties,
            "get_device_capability": lambda device: (9, 0),
            "Stream": lambda device: self._new_stream(),
            "Event": lambda enable_timing=False, blocking=False: Event(self, enable_timing),
            "current_stream": lambda device=None: self._current[-1],
            "stream": self._stream,
            "device": self._device,
            "synchronize": lambda device: self.log.append(("synchronise", str(device))),
            "is_current_stream_capturing": lambda: self.capturing,
            "memory_stats_as_nested_dict": lambda device: self.stats,
            "reset_peak_memory_stats": lambda device: self.log.append(("reset", str(device))),
            "empty_cache": lambda: self.log.append(("empty cache",)),
            "cudart": lambda: cudart,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        # Those of another fake, or of a real device.
        monkeypatch.setattr("offcert.runtime.device.cuda.STREAMS", {})

    @property
    def current(self) -> str:
        return self._current[-1].name

    def _new_stream(self) -> Stream:
        self.streams.append(Stream(self, f"stream {len(self.streams)}"))
        return self.streams[-1]

    @contextmanager
    def _stream(self, stream: Stream) -> Iterator[None]:
        self._current.append(stream)
        yield
        self._current.pop()

    @contextmanager
    def _device(self, device: torch.device) -> Iterator[None]:
        self.log.append(("device", str(device)))
        yield

    def _register(self, address: int, size: int, flags: int) -> int:
        assert flags == 1
        refused = self.error or (2 if self.most is not None and size > self.most else 0)
        if not refused:
            assert address not in self.registered
            self.registered[address] = size
            self.log.append(("register", size))
        return refused

    def _unregister(self, address: int) -> int:
        self.log.append(("unregister", self.registered.pop(address)))
        return 0


class Stream:
    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_event(self, event: Event) -> None:
        self.cuda.log.append(("wait", self.name, event))

    def synchronize(self) -> None:
        self.cuda.log.append(("settle", self.name))


class Event:
    def __init__(self, cuda: FakeCuda, timed: bool) -> None:
        self.cuda, self.timed, self.done = cuda, timed, False

    def record(self, stream: Stream) -> None:
        self.time = self.cuda.now
        self.cuda.log.append(("record", stream.name, self))

    def query(self) -> bool:
        return self.done

    def elapsed_time(self, end: Event) -> float:
        assert self.timed
        assert end.timed
        return (end.time - self.time) / 1e6


class Bytes:
    """Stands for bytes on a device or on the host; tells in which stream it is copied."""

    def __init__(
        self, cuda: FakeCuda, name: str, device: torch.device | str, size: int = 8
    ) -> None:
        self.cuda, self.name, self.device, self.size = cuda, name, torch.device(device), size

    def numel(self) -> int:
        return self.size

    def narrow(self, dim: int, start: int, length: int) -> Bytes:
        assert dim == 0
        assert start + length <= self.size
        name = f"{self.name}[{start}:{start + length}]"
        return Bytes(self.cuda, name, self.device, length)

    def copy_(self, source: Bytes, non_blocking: bool = False) -> None:
        assert non_blocking
        self.cuda.log.append(("copy", self.cuda.current, source.name, self.name))


class Host:
    """Stands for an arena that is registered in chunks, some of which are still to come."""

    def __init__(self, cuda: FakeCuda, chunk: int = 2**30, missing: tuple[int, ...] = ()) -> None:
        self.cuda, self.chunk, self.missing = cuda, chunk, missing

    def pending(self, offset: int) -> Any:
        number = offset // self.chunk
        return self._held(number) if number in self.missing else None

    @contextmanager
    def _held(self, number: int) -> Iterator[None]:
        self.cuda.log.append(("hold", number))
        yield
        self.cuda.log.append(("let go", number))

    def pieces(self, offset: int, size: int) -> Any:
        return stretches(offset, size, self.chunk)

    def view(self, offset: int, size: int) -> Bytes:
        return Bytes(self.cuda, f"host[{offset}:{offset + size}]", "cpu", size)
