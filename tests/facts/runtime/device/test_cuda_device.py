"""`CudaDevice` without CUDA: in which order it calls the few functions that it uses."""

import threading
import time

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError, OffcertError
from offcert.runtime.device.cuda import CudaDevice, cuda_device, versions
from offcert.runtime.device.interface import CopiedStorage, Device, MemoryReading
from support.runtime.fake_cuda import Bytes, FakeCuda, Host


def test_each_direction_copies_in_a_stream_of_its_own_and_nothing_is_waited_for(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    device: Device = CudaDevice("cuda")
    host = Host(cuda)
    parts = [CopiedStorage(Bytes(cuda, f"tensor {n}", "cuda:0", 8), host, 8 * n) for n in range(2)]
    device.copy_out(parts)
    device.copy_back(parts[:1])
    assert cuda.log == [
        ("copy", "stream 0", "tensor 0", "host[0:8]"),
        ("copy", "stream 0", "tensor 1", "host[8:16]"),
        ("copy", "stream 1", "host[0:8]", "tensor 0"),
    ]
    assert cuda.current == "default"


def test_a_device_takes_its_two_streams_once(monkeypatch):
    cuda = FakeCuda(monkeypatch, devices=2)
    first, *others = [CudaDevice("cuda", timed=bool(number % 2)) for number in range(40)]
    assert len(cuda.streams) == 2
    assert all(each.out.stream is first.out.stream for each in others)
    assert all(each.back.stream is first.back.stream for each in others)
    assert first.out.stream is not first.back.stream
    assert [others[0].out.timed, others[1].out.timed] == [True, False]
    CudaDevice("cuda:1")
    assert len(cuda.streams) == 4


def test_no_copy_goes_from_one_registration_to_the_next(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    device = CudaDevice("cuda")
    part = CopiedStorage(Bytes(cuda, "tensor", "cuda:0", 20), Host(cuda, chunk=16), 8)
    device.copy_out([part])
    device.copy_back([part])
    assert [entry[2:] for entry in cuda.log] == [
        ("tensor[0:8]", "host[8:16]"),
        ("tensor[8:20]", "host[16:28]"),
        ("host[8:16]", "tensor[0:8]"),
        ("host[16:28]", "tensor[8:20]"),
    ]


def test_what_is_not_registered_yet_is_held_until_its_copy_has_ended(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    device = CudaDevice("cuda")
    host = Host(cuda, chunk=16, missing=(1,))
    part = CopiedStorage(Bytes(cuda, "tensor", "cuda:0", 30), host, 8)
    device.copy_out([part])
    device.copy_back([part])
    assert cuda.log == [
        ("copy", "stream 0", "tensor[0:8]", "host[8:16]"),
        ("hold", 1),
        ("copy", "stream 0", "tensor[8:24]", "host[16:32]"),
        ("settle", "stream 0"),
        ("let go", 1),
        ("copy", "stream 0", "tensor[24:30]", "host[32:38]"),
        ("copy", "stream 1", "host[8:16]", "tensor[0:8]"),
        ("hold", 1),
        ("copy", "stream 1", "host[16:32]", "tensor[8:24]"),
        ("settle", "stream 1"),
        ("let go", 1),
        ("copy", "stream 1", "host[32:38]", "tensor[24:30]"),
    ]


def test_an_arena_with_an_order_is_registered_by_threads_that_may(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    modes = []

    class Driver:
        def __init__(self, name):
            assert name == "libcuda.so.1"

        def cuThreadExchangeStreamCaptureMode(self, mode):  # noqa: N802
            modes.append((threading.current_thread().name, mode._obj.value))

    monkeypatch.setattr("offcert.runtime.device.pinned.ctypes.CDLL", Driver)
    monkeypatch.setattr("offcert.runtime.device.cuda.CHUNK", 4096)
    arena = CudaDevice("cuda").arena(9 * 4096, [(8 * 4096, 4096)])
    first = arena.view(0, 1).data_ptr()
    assert first + 8 * 4096 in cuda.registered
    while not arena.pinning.ended:
        time.sleep(0.001)
    assert sorted(cuda.registered) == [first + 4096 * number for number in range(9)]
    # Otherwise a graph that somebody captures meanwhile would be lost.
    assert modes
    assert all(name.startswith("offcert-register") and mode == 2 for name, mode in modes)
    arena.close()
    assert cuda.registered == {}


def test_what_a_driver_does_not_register_by_one_call_it_registers_in_chunks(monkeypatch):
    cuda = FakeCuda(monkeypatch, most=2 * 4096)
    monkeypatch.setattr("offcert.runtime.device.cuda.CHUNK", 2 * 4096)
    arena = CudaDevice("cuda").arena(5 * 4096 + 1)
    assert list(cuda.registered.values()) == [2 * 4096, 2 * 4096, 4096 + 1]
    first = arena.view(0, 1).data_ptr()
    assert list(cuda.registered) == [first, first + 2 * 4096, first + 4 * 4096]
    arena.close()
    assert cuda.registered == {}


def test_compute_is_whatever_stream_is_current_where_it_is_asked_for(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    device = CudaDevice("cuda:0")
    device.compute.record()
    with torch.cuda.stream(torch.cuda.Stream("cuda:0")):
        event = device.compute.record()
    device.out.wait(event)
    assert [entry[:2] for entry in cuda.log] == [
        ("record", "default"),
        ("record", "stream 2"),
        ("wait", "stream 0"),
    ]
    assert cuda.log[2][2] is cuda.log[1][2]


def test_events_take_times_only_where_asked_for(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    plain, timed = CudaDevice("cuda"), CudaDevice("cuda", timed=True)
    begin = timed.compute.record()
    cuda.now += 1_500
    end = timed.out.record()
    assert timed.nanoseconds(begin, end) == 1_500
    assert not plain.compute.record().event.timed
    with pytest.raises(OffcertError, match="recorded without times"):
        plain.nanoseconds(plain.out.record(), plain.out.record())
    assert not end.reached
    end.event.done = True
    assert end.reached


def test_a_plan_is_for_one_device(monkeypatch):
    cuda = FakeCuda(monkeypatch, devices=2)
    device = CudaDevice("cuda:0")
    part = CopiedStorage(Bytes(cuda, "elsewhere", "cuda:1"), Host(cuda), 0)
    for copy in (device.copy_out, device.copy_back):
        with pytest.raises(OffcertError, match="on cuda:1 cannot be moved by a plan for cuda:0"):
            copy([part])
    assert cuda.log == []
    with pytest.raises(InputError, match=r"there is no cuda:2; PyTorch finds 2 CUDA devices"):
        CudaDevice("cuda:2")
    with pytest.raises(InputError, match="cpu is not a CUDA device"):
        CudaDevice("cpu")


def test_graphs_that_are_captured_are_refused(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    device = CudaDevice("cuda")
    cuda.capturing = True
    with pytest.raises(OffcertError, match="while a CUDA graph is captured"):
        device.copy_out([])
    with pytest.raises(OffcertError, match="reduce-overhead"):
        device.copy_back([])


def test_memory_is_what_the_allocator_says(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    device = CudaDevice("cuda")
    assert device.memory() == MemoryReading(0, 0, 0, 0)
    cuda.stats = {
        "allocated_bytes": {"all": {"current": 1, "peak": 3}, "small_pool": {"current": 5}},
        "reserved_bytes": {"all": {"current": 2, "peak": 4}},
    }
    assert device.memory() == MemoryReading(1, 2, 3, 4)
    device.reset_peaks()
    device.synchronise()
    assert cuda.log == [("reset", "cuda:0"), ("synchronise", "cuda:0")]


def test_an_arena_is_unregistered_after_both_streams_have_ended(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    device = CudaDevice("cuda")
    arena = device.arena(1000)
    assert (arena.size, list(cuda.registered.values())) == (1000, [1000])
    arena.close()
    assert cuda.log == [
        ("device", "cuda:0"),
        ("register", 1000),
        ("settle", "stream 0"),
        ("settle", "stream 1"),
        ("device", "cuda:0"),
        ("unregister", 1000),
    ]


def test_what_cuda_does_not_register_is_said_with_its_error_which_does_not_stay(monkeypatch):
    cuda = FakeCuda(monkeypatch, error=2)
    device = CudaDevice("cuda")
    device.tensors = torch.device("cpu")
    kernels = []

    def launch(tensor, value):
        kernels.append(value)
        raise RuntimeError("CUDA error: out of memory\nand much more")

    monkeypatch.setattr(torch.Tensor, "add_", launch)
    with pytest.raises(OffcertError, match=r"CUDA error 2 \(CUDA error: out of memory\)$"):
        device.arena(1000)
    assert kernels == [1]
    assert cuda.registered == {}


def test_only_the_parent_unregisters_what_the_parent_has_registered(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    arena = CudaDevice("cuda").arena(8)
    monkeypatch.setattr("os.getpid", lambda: 1)
    arena.close()
    assert list(cuda.registered.values()) == [8]


def test_the_device_of_a_model(monkeypatch):
    FakeCuda(monkeypatch, devices=2)
    assert cuda_device(nn.Linear(2, 2)) is None
    assert cuda_device(nn.Linear(2, 2, device="meta")) is None

    class Placed(nn.Module):
        def __init__(self, *names):
            super().__init__()
            self.names = names

        def parameters(self, recurse=True):
            return [Bytes(None, "", name) for name in self.names]

    found = cuda_device(Placed("cuda:1", "cpu", "cuda:1"), timed=True)
    assert (str(found.tensors), found.timed) == ("cuda:1", True)
    with pytest.raises(InputError, match="on 2 devices, cuda:0, cuda:1; a plan is for one"):
        cuda_device(Placed("cuda:1", "cuda:0"))
    with pytest.raises(InputError, match="the model is on xpu:0"):
        cuda_device(Placed("xpu:0", "cuda:0"))


def test_names_and_versions(monkeypatch):
    FakeCuda(monkeypatch)
    known = versions(torch.device("cuda:0"))
    assert (known["device"], known["capability"]) == ("Fake cuda:0", "9.0")


def test_without_cuda_it_is_said(monkeypatch):
    FakeCuda(monkeypatch, devices=0)
    with pytest.raises(InputError, match="PyTorch finds no CUDA device"):
        CudaDevice("cuda")


def test_the_stream_of_operators_is_the_same_as_long_as_the_program_stays_in_it(monkeypatch):
    FakeCuda(monkeypatch)
    device = CudaDevice("cuda")
    first = device.compute
    assert first == device.compute
    assert hash(first) == hash(device.compute)
    assert first not in (device.out, "default")
    with torch.cuda.stream(torch.cuda.Stream("cuda:0")):
        assert device.compute != first
