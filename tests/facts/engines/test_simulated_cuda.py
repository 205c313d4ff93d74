"""CUDA as an engine finds it on the simulated machine: places, copies, waits, memory, refusals."""

import threading
from contextlib import suppress

import pytest
import torch

import offcert
from offcert_lab.engines import Fault, UnseenError, audit_engine


def audited(function, **options):
    return audit_engine(function, **options)


def faults(function):
    return [each.fault for each in audited(function, orders=2).findings]


def seen(look):
    """Return what a function sees in an audit that finds nothing."""
    values = []
    found = audited(lambda: values.append(look()), orders=0)
    assert found.clean, str(found)
    return values[0]


# Places.


def test_tensors_say_that_they_are_on_the_device():
    def look():
        x = torch.ones(2, device="cuda")
        model = torch.nn.Linear(2, 2).cuda()
        return (
            x.device, x.is_cuda, x.get_device(), (x + 1).device, x.cpu().device,
            x.to("cpu").is_cuda,
            model.weight.device, model(x).device, torch.tensor([1.0], device="cuda").device,
            x.untyped_storage().device, torch.cuda.is_available(), torch.zeros_like(x).is_cuda,
        )  # fmt: skip

    cuda, cpu = torch.device("cuda", 0), torch.device("cpu")
    assert seen(look) == (
        cuda, True, 0, cuda, cpu, False, cuda, cuda, cuda, cuda, True, True
    )  # fmt: skip


def test_afterwards_everything_means_what_it_did():
    names = [(torch.cuda, "Stream"), (torch.Tensor, "device"), (torch.Tensor, "to")]
    names += [(torch, "tensor"), (torch.UntypedStorage, "resize_"), (threading.Thread, "run")]
    before = [getattr(owner, name) for owner, name in names]
    found = audited(lambda: 1 / 0)
    assert not found.clean
    assert "test_simulated_cuda.py:" in found.failed
    assert found.failed.endswith("the engine fails with ZeroDivisionError: division by zero")
    assert [getattr(owner, name) for owner, name in names] == before
    assert torch.ones(1).device.type == "cpu"


def test_pinned_memory_is_known():
    def look():
        pinned = torch.empty(4, pin_memory=True)
        copied = torch.ones(4, device="cuda").to("cpu", non_blocking=True)
        return (
            pinned.is_pinned(), torch.empty(4).is_pinned(), torch.ones(4).pin_memory().is_pinned(),
            pinned[1:].is_pinned(), copied.is_pinned(),
            torch.ones(2, device="cuda").cpu().is_pinned(),
        )  # fmt: skip

    assert seen(look) == (True, False, True, True, True, False)


def test_gradients_go_back_to_the_host():
    def look():
        x = torch.ones(3, requires_grad=True)
        (x.cuda() * 2).sum().backward()
        return x.grad.device.type, x.grad.tolist()

    assert seen(look) == ("cpu", [2.0, 2.0, 2.0])


def test_arrays_of_numpy_are_for_the_host():
    assert "Use Tensor.cpu()" in audited(lambda: torch.ones(2, device="cuda").numpy()).failed


# Copies: which of them the host waits for.


def read_back(to_host, wait=lambda: None):
    def program():
        device = torch.ones(8, device="cuda")
        host = to_host(device)
        wait()
        return host.sum().item()

    return faults(program)


def into_pinned(device, **options):
    return torch.empty(8, pin_memory=True).copy_(device, **options)


def test_the_host_reads_what_has_not_arrived():
    assert read_back(lambda x: into_pinned(x, non_blocking=True)) == [Fault.HOST_READ]
    assert read_back(lambda x: x.to("cpu", non_blocking=True)) == [Fault.HOST_READ]


def test_the_host_has_waited():
    assert read_back(lambda x: into_pinned(x, non_blocking=True), torch_synchronises) == []
    assert read_back(into_pinned) == []
    assert read_back(lambda x: x.cpu()) == []
    assert read_back(lambda x: torch.empty(8).copy_(x, non_blocking=True)) == []
    # Through other strides, or another type on the host.
    strided = torch.Tensor.t
    assert (
        read_back(lambda x: strided(pinned_square()).copy_(x.view(2, 4), non_blocking=True)) == []
    )


def torch_synchronises():
    torch.cuda.synchronize()


def pinned_square():
    return torch.empty(4, 2, pin_memory=True)


def changed(host, change=lambda host: host.zero_(), wait=lambda: None):
    def program():
        source = host()
        device = torch.empty(8, device="cuda")
        device.copy_(source.view(-1)[:8], non_blocking=True)
        wait()
        change(source)
        return device

    return faults(program)


def test_host_memory_that_changes_under_its_copy():
    def pinned():
        return torch.ones(8).pin_memory()

    assert changed(pinned) == [Fault.HOST_CHANGED]
    assert changed(pinned, wait=torch_synchronises) == []
    assert changed(lambda: torch.ones(8)) == []
    # To read it does no harm.
    assert changed(pinned, lambda host: host.sum()) == []
    # Another half of the same memory is in nobody's way.
    half = lambda: torch.ones(16).pin_memory()  # noqa: E731
    assert changed(half, lambda host: host[8:].zero_()) == []
    assert changed(half, lambda host: host[7:].zero_()) == [Fault.HOST_CHANGED]


def test_an_order_shows_the_wrong_value():
    def program():
        host = torch.full((4,), 2.0).pin_memory()
        device = host.to("cuda", non_blocking=True)
        host.fill_(3.0)
        return device.sum().item()

    (found,) = audited(program).findings
    assert found.shown.endswith("gives 12 and not 8")
    assert found.second.operation == "fill_"
    assert "the host must wait for the default stream" in found.missing


# Streams.


def test_columns_that_overlap_race():
    def program(step):
        other = torch.cuda.Stream()
        board = torch.zeros(8, 8, device="cuda")
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            board[:, ::step].fill_(1)
        board[:, 1::2].fill_(2)
        torch.cuda.synchronize()
        return board

    assert faults(lambda: program(2)) == []
    assert faults(lambda: program(3)) == [Fault.RACE]


def test_an_event_is_of_the_time_when_it_was_recorded():
    def program(late):
        other, event = torch.cuda.Stream(), torch.cuda.Event()
        x = torch.zeros(4, device="cuda")
        if not late:
            event.record()
        x.add_(1)
        if late:
            event.record()
        other.wait_event(event)
        with torch.cuda.stream(other):
            y = x * 2
        torch.cuda.synchronize()
        return y

    assert faults(lambda: program(True)) == []
    assert faults(lambda: program(False)) == [Fault.RACE]


def test_an_event_that_is_asked_for_is_late_and_early():
    answers = []

    def program():
        host = torch.empty(4, pin_memory=True)
        host.copy_(torch.ones(4, device="cuda"), non_blocking=True)
        event = torch.cuda.current_stream().record_event()
        answers.append(event.query())
        # Whoever is told yes may read; the other branch forgets to wait.
        return host.tolist()

    found = audited(program, orders=2)
    assert answers == [False, True]
    assert (found.runs, [each.fault for each in found.findings]) == (2, [Fault.HOST_READ])


def test_events_have_times():
    def look():
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.ones(2_500_000, dtype=torch.uint8).pin_memory().to("cuda", non_blocking=True)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    # Read and written, 25 bytes a nanosecond.
    assert seen(look) == pytest.approx(0.2)


def test_threads_of_the_host_are_seen():
    def program():
        host = torch.empty(4, pin_memory=True)
        host.copy_(torch.ones(4, device="cuda"), non_blocking=True)
        thread = threading.Thread(target=host.zero_)
        thread.start()
        thread.join()

    assert faults(program) == [Fault.HOST_READ]


# Memory.


def test_memory_of_another_stream_may_still_be_in_use():
    def program(wait):
        other = torch.cuda.Stream()
        (torch.ones(4, device="cuda") * 2).sum()
        made = torch.empty(4, device="cuda")
        if wait:
            other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            made.zero_()
        torch.cuda.synchronize()
        return made

    assert faults(lambda: program(True)) == []
    assert faults(lambda: program(False)) == [Fault.ALLOCATED]


def test_peaks():
    def program():
        first = torch.empty(1000, dtype=torch.uint8, device="cuda")
        second = torch.empty(500, dtype=torch.uint8, device="cuda")
        other = torch.cuda.Stream()
        first.record_stream(other)
        del first
        third = torch.empty(1500, dtype=torch.uint8, device="cuda")
        torch.empty(1000, dtype=torch.uint8, pin_memory=True)
        return second, third, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()

    values = []
    peaks = audited(lambda: values.append(program()), orders=0).peaks
    # In blocks of 512 bytes: 1024 + 512, then 512 + 1536; pinned in powers of two.
    assert (peaks.device, peaks.pinned, peaks.reserved) == (2048, 1024, 2**21)
    assert values[0][2:] == (2048, 2048)
    # The stream that was recorded had nothing to do.
    assert peaks.device_late == 2048


def test_what_is_recorded_comes_back_when_the_host_has_waited():
    def program(wait):
        other = torch.cuda.Stream()
        for _ in range(3):
            made = torch.zeros(512, dtype=torch.uint8, device="cuda")
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                made.add_(1)
            made.record_stream(other)
            del made
            if wait:
                other.synchronize()

    late = audited(lambda: program(False), orders=2)
    prompt = audited(lambda: program(True), orders=2)
    assert late.clean
    assert prompt.clean
    assert (late.peaks.device, late.peaks.device_late) == (512, 1536)
    assert (prompt.peaks.device, prompt.peaks.device_late) == (512, 512)


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("unregister", [False, True])
def test_registered_memory_must_outlive_its_copies(wait, unregister):
    def program():
        device, host = torch.ones(4, device="cuda"), torch.zeros(4)
        address = host.data_ptr()
        torch.cuda.cudart().cudaHostRegister(address, 16, 0)
        assert host.is_pinned()
        host.copy_(device, non_blocking=True)
        if wait:
            torch.cuda.synchronize()
        if unregister:
            torch.cuda.cudart().cudaHostUnregister(address)
        del host

    assert faults(program) == ([] if wait else [Fault.HOST_RELEASED])


def test_what_engines_ask_cuda_for_is_there():
    def look():
        generator = torch.Generator(device="cuda").manual_seed(1)
        drawn = torch.rand(3, device="cuda", generator=generator)
        with torch.cuda.nvtx.range("a"), torch.cuda.device(0), torch.device("cuda"):
            torch.cuda.nvtx.mark("b")
            made = torch.ones(3)
        taken = torch.cuda.memory_stats()["allocated_bytes.all.current"]
        return drawn.is_cuda, made.is_cuda, taken, torch.cuda.current_stream().query()

    assert seen(look) == (True, True, 1024, False)


# Refusals.


def capture():
    torch.cuda.CUDAGraph()


def compiled():
    torch.compile(torch.nn.Linear(2, 2))


def another_device():
    torch.ones(2).to("cuda:1")


def guarded():
    """Whoever guards all that it does is refused nonetheless."""
    with suppress(Exception):
        torch.ones(2, device="cuda:1")


def kernel_of_an_extension():
    torch.ops.quantized.add(torch.ones(1), torch.ones(1), 1.0, 0)


def collective():
    torch.distributed.all_reduce(torch.ones(2, device="cuda"))


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (capture, "CUDAGraph"),
        (compiled, "torch.compile"),
        (another_device, "cuda:1"),
        (guarded, "cuda:1"),
        (kernel_of_an_extension, "quantized::add"),
    ],
)
def test_what_is_not_seen_is_refused_by_name(function, name):
    with pytest.raises(UnseenError, match=name) as caught:
        audited(function)
    assert "test_simulated_cuda.py" in str(caught.value)


def test_collectives_are_refused_by_name():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with pytest.raises(UnseenError, match="c10d::allreduce_"):
            audited(collective)
    finally:
        torch.distributed.destroy_process_group()


def test_orders_are_counted():
    with pytest.raises(offcert.InputError, match="orders is -1"):
        audited(lambda: None, orders=-1)
