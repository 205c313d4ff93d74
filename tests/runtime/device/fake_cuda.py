"""The few functions of ``torch.cuda`` that a `CudaDevice` calls, without CUDA, written down."""

from contextlib import contextmanager
from types import SimpleNamespace

import torch


class FakeCuda:
    """What is put in the place of ``torch.cuda``'s functions, and what they were called for.

    Time stands still unless ``now`` is moved. What streams have been given is done only when
    somebody waits for them.
    """

    def __init__(self, monkeypatch, devices=1, error=0):
        self.log = []
        self.now = 0
        self.streams = []
        self.registered = {}
        self.error = error
        self.capturing = False
        self.stats = {}
        self._current = [Stream(self, "default")]
        cudart = SimpleNamespace(
            cudaHostRegister=self._register, cudaHostUnregister=self._unregister
        )
        properties = SimpleNamespace(
            pci_domain_id=0, pci_bus_id=0x1A, pci_device_id=0, total_memory=2**34
        )
        for name, value in {
            "is_available": lambda: devices > 0,
            "device_count": lambda: devices,
            "current_device": lambda: 0,
            "get_device_name": lambda device: f"Fake {device}",
            "get_device_properties": lambda device: properties,
            "get_device_capability": lambda device: (9, 0),
            "Stream": lambda device: self._new_stream(),
            "Event": lambda enable_timing=False: Event(self, enable_timing),
            "current_stream": lambda device=None: self._current[-1],
            "stream": self._stream,
            "device": self._device,
            "synchronize": lambda device: self.log.append(("synchronise", str(device))),
            "is_current_stream_capturing": lambda: self.capturing,
            "memory_stats_as_nested_dict": lambda device: self.stats,
            "reset_peak_memory_stats": lambda device: self.log.append(("reset", str(device))),
            "cudart": lambda: cudart,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)

    @property
    def current(self):
        return self._current[-1].name

    def _new_stream(self):
        self.streams.append(Stream(self, f"stream {len(self.streams)}"))
        return self.streams[-1]

    @contextmanager
    def _stream(self, stream):
        self._current.append(stream)
        yield
        self._current.pop()

    @contextmanager
    def _device(self, device):
        self.log.append(("device", str(device)))
        yield

    def _register(self, address, size, flags):
        if not self.error:
            assert address not in self.registered
            self.registered[address] = size
            self.log.append(("register", size))
        return self.error

    def _unregister(self, address):
        self.log.append(("unregister", self.registered.pop(address)))
        return 0


class Stream:
    def __init__(self, cuda, name):
        self.cuda, self.name = cuda, name

    def wait_event(self, event):
        self.cuda.log.append(("wait", self.name, event))

    def synchronize(self):
        self.cuda.log.append(("settle", self.name))


class Event:
    def __init__(self, cuda, timed):
        self.cuda, self.timed, self.done = cuda, timed, False

    def record(self, stream):
        self.time = self.cuda.now
        self.cuda.log.append(("record", stream.name, self))

    def query(self):
        return self.done

    def elapsed_time(self, end):
        assert self.timed
        assert end.timed
        return (end.time - self.time) / 1e6


class Bytes:
    """Stands for bytes on a device or on the host; tells in which stream it is copied."""

    def __init__(self, cuda, name, device, size=8):
        self.cuda, self.name, self.device, self.size = cuda, name, torch.device(device), size

    def numel(self):
        return self.size

    def copy_(self, source, non_blocking=False):
        assert non_blocking
        self.cuda.log.append(("copy", self.cuda.current, source.name, self.name))


class Host:
    """Stands for an arena."""

    def __init__(self, cuda):
        self.cuda = cuda

    def view(self, offset, size):
        return Bytes(self.cuda, f"host[{offset}:{offset + size}]", "cpu", size)
