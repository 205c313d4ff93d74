"""`CudaDevice` on a CUDA device."""

import gc
import threading
import time

import pytest
import torch
from torch import nn

from offcert.core.errors import OffcertError
from offcert.runtime.device.cuda import CudaDevice, cuda_device, versions
from offcert.runtime.device.interface import CopiedStorage
from offcert.runtime.device.pinned import CudaRegistrar, PinnedArena
from offcert.runtime.streaming.staging import Staged, Staging

pytestmark = pytest.mark.cuda

_MIB = 2**20


@pytest.fixture
def device():
    return CudaDevice("cuda", timed=True)


def _busy(cycles=200_000_000):
    """Let the current stream do nothing useful for about a tenth of a second."""
    torch.cuda._sleep(cycles)


def _numbers(size, device):
    whole = torch.arange(size // 8, device=device.tensors).view(torch.uint8)
    assert whole.numel() == size
    return whole


def test_bytes_come_back_as_they_went(device):
    size = 16 * _MIB
    original = _numbers(size, device)
    arena = device.arena(size + 64)
    device.out.wait(device.compute.record())
    device.copy_out([CopiedStorage(original, arena, 64)])
    device.compute.wait(device.out.record())
    fetched = device.allocate(size)
    device.back.wait(device.compute.record())
    device.copy_back([CopiedStorage(fetched, arena, 64)])
    device.compute.wait(device.back.record())
    assert torch.equal(original, fetched)
    device.synchronise()
    assert torch.equal(arena.view(64, size), original.cpu())
    arena.close()


def test_copies_are_handed_over_and_not_waited_for(device):
    size = 16 * _MIB
    arena = device.arena(size)
    data = device.allocate(size)
    device.synchronise()
    _busy()
    device.out.wait(device.compute.record())
    device.copy_out([CopiedStorage(data, arena, 0)])
    event = device.out.record()
    assert not event.reached
    device.synchronise()
    assert event.reached
    arena.close()


def test_a_copy_waits_for_the_operators_that_write_and_they_for_it(device):
    size = 8 * _MIB
    arena = device.arena(size)
    data = torch.zeros(size, dtype=torch.uint8, device=device.tensors)
    _busy()
    data.fill_(5)
    written = device.compute.record()
    device.out.wait(written)
    device.copy_out([CopiedStorage(data, arena, 0)])
    device.compute.wait(device.out.record())
    data.fill_(9)
    device.synchronise()
    assert arena.view(0, size).eq(5).all()
    arena.close()


def test_compute_is_the_stream_that_is_current(device):
    with torch.cuda.stream(torch.cuda.Stream()):
        _busy()
        event = device.compute.record()
    default = device.compute.record()
    torch.cuda.current_stream().synchronize()
    assert default.reached
    assert not event.reached
    device.synchronise()
    assert event.reached


def test_backward_hooks_run_in_the_stream_of_their_forward_pass(device):
    other = torch.cuda.Stream()
    seen = []
    weight = torch.randn(8, 8, device="cuda", requires_grad=True)
    with torch.cuda.stream(other):
        product = weight * 2
        product.register_hook(lambda grad: seen.append(device.compute.stream))
        loss = product.sum()
    loss.backward()
    device.synchronise()
    assert seen == [other]


@pytest.mark.parametrize("size", [4096, 3 * _MIB + 1, 9 * _MIB])
def test_an_arena_is_pinned_has_exactly_its_bytes_and_is_not_pinned_afterwards(device, size):
    before = torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else None
    arena = device.arena(size)
    view = arena.view(0, size)
    assert view.is_pinned()
    assert view.untyped_storage().nbytes() == size
    if before is not None:
        # PyTorch's own pinned memory, which is rounded up and kept, is not used.
        assert torch.cuda.host_memory_stats() == before
    arena.close()
    assert not view.is_pinned()


def test_copies_go_over_the_borders_of_chunks_and_are_not_waited_for(device):
    size, chunk = 3 * _MIB, _MIB
    registrar = CudaRegistrar(device.tensors, (device.out.stream, device.back.stream))
    arena = PinnedArena(size + chunk, registrar, chunk=chunk)
    original = _numbers(size, device)
    device.synchronise()
    _busy()
    device.out.wait(device.compute.record())
    device.copy_out([CopiedStorage(original, arena, chunk // 2)])
    copied = device.out.record()
    assert not copied.reached
    device.compute.wait(copied)
    fetched = device.allocate(size)
    device.back.wait(device.compute.record())
    device.copy_back([CopiedStorage(fetched, arena, chunk // 2)])
    returned = device.back.record()
    assert not returned.reached
    device.compute.wait(returned)
    assert torch.equal(original, fetched)
    views = [arena.view(at, 1) for at in range(0, size + chunk, chunk)]
    assert all(view.is_pinned() for view in views)
    arena.close()
    assert not any(view.is_pinned() for view in views)


def test_nobody_waits_for_a_file_that_copies_go_to(device, tmp_path):
    size = 8 * _MIB
    file = device.file(size, str(tmp_path))
    row = Staged("a", file, 0, size)
    staging = Staging(device, 2 * size, [[row]])
    # Kernels are loaded when they are first called, which may wait for the device.
    data = device.allocate(size).fill_(1)
    device.synchronise()
    _busy()
    data.fill_(5)
    device.out.wait(device.compute.record())
    staging.send([(row, data)])
    copied = device.out.record()
    # The device has not begun; who handed the copy over has gone on.
    assert not copied.reached
    device.compute.wait(copied)
    data.fill_(9)
    fetched = device.allocate(size)
    device.back.wait(device.compute.record())
    staging.bring([(row, fetched)])
    device.compute.wait(device.back.record())
    assert fetched.eq(5).all()
    staging.settle()
    assert file.view(0, size).eq(5).all()
    device.synchronise()
    staging.close()
    file.close()
    assert not any(each.name.startswith("offcert-") for each in threading.enumerate())


def test_an_arena_may_be_closed_with_copies_still_to_be_done(device):
    size = 64 * _MIB
    arena = device.arena(size)
    view = arena.view(0, size)
    data = torch.full((size,), 3, dtype=torch.uint8, device=device.tensors)
    device.synchronise()
    for _ in range(8):
        device.copy_out([CopiedStorage(data, arena, 0)])
    arena.close()
    assert view.eq(3).all()
    assert not view.is_pinned()


def test_an_arena_that_nobody_has_any_more_is_not_pinned(device):
    arena = device.arena(_MIB)
    view = arena.view(0, _MIB)
    del arena
    gc.collect()
    assert not view.is_pinned()
    # The same pages can be registered again.
    device.arena(_MIB).close()


def test_what_cannot_be_registered_is_refused_and_the_next_kernel_does_not_fail(device):
    arena = device.arena(4096)
    address = arena.view(0, 1).data_ptr()
    # The same memory twice is an error of CUDA's, which must not be found by whoever comes next.
    with pytest.raises(OffcertError, match="cannot be registered with cuda:0: CUDA error"):
        CudaRegistrar(device.tensors, ()).register(address, 4096)
    assert int(torch.ones(3, device="cuda").sum()) == 3
    arena.close()
    assert int(torch.ones(3, device="cuda").sum()) == 3


def test_times_are_those_of_the_stream(device):
    device.synchronise()
    begin = device.compute.record()
    _busy()
    end = device.compute.record()
    device.synchronise()
    begun = time.perf_counter_ns()
    inner = device.compute.record()
    _busy()
    last = device.compute.record()
    device.synchronise()
    waited = time.perf_counter_ns() - begun
    assert device.nanoseconds(begin, end) > 0
    assert 0 < device.nanoseconds(inner, last) <= waited


def test_memory_is_counted_with_its_peak(device):
    device.reset_peaks()
    before = device.memory()
    data = device.allocate(64 * _MIB)
    grown = device.memory()
    assert grown.allocated - before.allocated == 64 * _MIB
    del data
    after = device.memory()
    assert after.allocated == before.allocated
    assert after.peak_allocated - before.allocated == 64 * _MIB
    assert after.peak_reserved >= after.peak_allocated
    assert after.reserved >= after.allocated


def test_what_there_is_not_is_an_error_of_memory(device):
    with pytest.raises(torch.OutOfMemoryError):
        device.allocate(2**46)


def test_a_model_on_the_device_is_found():
    found = cuda_device(nn.Linear(2, 2, device="cuda"))
    assert found is not None
    assert found.tensors == torch.device("cuda", torch.cuda.current_device())
    assert versions(found.tensors)["device"] == found.name


def test_copies_are_refused_while_a_graph_is_captured(device):
    arena = device.arena(4096)
    data = device.allocate(4096)
    device.synchronise()
    with pytest.raises(OffcertError, match="while a CUDA graph is captured"):
        _copy_in_a_graph(device, CopiedStorage(data, arena, 0))
    device.synchronise()
    arena.close()


def _copy_in_a_graph(device, part):
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.ones(3, device="cuda")
        device.copy_out([part])
