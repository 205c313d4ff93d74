"""Times of operations by kernels: what the device did, not what it waited for."""

import json

import pytest
import torch

from offcert.runtime.profiling.kernels import (
    Kernel,
    kernel_times,
    mark,
    read_profile,
    times_by_kernels,
)


def test_a_device_that_is_behind_its_host_takes_all_the_time():
    # All launched by 20; the gaps between kernels are the device's own.
    kernels = [Kernel(1, 10, 30), Kernel(5, 32, 40), Kernel(12, 41, 60)]
    assert kernel_times([0, 10, 20], kernels) == [20 + 10, 20]


def test_what_is_waited_for_is_no_time_of_the_device():
    # The second is launched at 50, ten after the first has ended, and begins three later.
    kernels = [Kernel(1, 10, 40), Kernel(50, 53, 60), Kernel(58, 62, 70)]
    assert kernel_times([0, 45, 80], kernels) == [30, 7 + 10]


def test_an_operation_without_kernels_takes_no_time():
    assert kernel_times([0, 10, 20, 30], [Kernel(1, 5, 9), Kernel(21, 25, 27)]) == [4, 0, 2]


def test_kernels_of_two_streams_take_their_time_once():
    kernels = [Kernel(1, 10, 40), Kernel(2, 15, 30), Kernel(3, 35, 50)]
    assert kernel_times([0, 5], kernels) == [40]


def test_what_comes_before_the_first_operation_or_after_the_last_is_none_of_it():
    kernels = [Kernel(1, 2, 5), Kernel(11, 12, 20), Kernel(31, 32, 40)]
    assert kernel_times([10, 30], kernels) == [8]


EVENTS = [
    {"cat": "user_annotation", "name": "offcert: an operation begins", "ts": 0.5, "dur": 0.1},
    {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "args": {"correlation": 7}},
    {"cat": "cuda_driver", "name": "cuLaunchKernel", "ts": 3, "args": {"correlation": 8}},
    {"cat": "user_annotation", "name": "offcert: an operation begins", "ts": 5, "dur": 0.1},
    {"cat": "kernel", "name": "second", "ts": 12.25, "dur": 2, "args": {"correlation": 8}},
    {"cat": "kernel", "name": "first", "ts": 10, "dur": 2.5, "args": {"correlation": 7}},
    {"cat": "kernel", "name": "of a graph", "ts": 30, "dur": 2, "args": {"correlation": 9}},
    {"cat": "gpu_user_annotation", "name": "offcert: an operation begins", "ts": 9},
    {"cat": "user_annotation", "name": "another", "ts": 6},
    {"name": "process_name", "ph": "M"},
]


def test_a_profile_is_read_in_nanoseconds_and_by_launches():
    marks, kernels = read_profile(EVENTS)
    assert marks == [500, 5000]
    assert kernels == [Kernel(1000, 10000, 12500), Kernel(3000, 12250, 14250)]
    assert kernel_times(marks, kernels) == [4250]


def test_marks_are_found_in_a_profile_of_this_pytorch(tmp_path):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            with mark():
                pass
            torch.ones(2).exp()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    marks, kernels = read_profile(events)
    assert len(marks) == 3
    assert kernels == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are kernels to see")
def test_where_nobody_sees_kernels_nobody_is_asked():
    assert times_by_kernels(lambda: pytest.fail("the step was run"), 3) is None
