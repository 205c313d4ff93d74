"""Measuring a step on a device with streams: a simulated one, whose times are known."""

from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from offcert.core.errors import InputError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Trace
from offcert.questions.schedule.plan import Plan
from offcert.runtime.capture import Clock, capture
from offcert.runtime.hardware import hardware
from offcert.runtime.hardware.bandwidth import LinkReading, Rates, read_link, with_link
from offcert.runtime.plan.predict import predict
from offcert.runtime.profiling.measured_step import captured_on_device, measure_step
from offcert.runtime.profiling.profile import profile
from offcert.runtime.profiling.timing import RepeatedStep
from offcert.runtime.simulated import SimulatedDevice
from offcert.runtime.streaming.step_events import Stopwatch
from offcert.runtime.watch.tracker import LiveBytes
from offcert_lab.engines.allocator import CachingAllocator
from support.runtime.captured import mean_step

_T4 = hardware("t4")


def _step():
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 128), nn.LayerNorm(128))
    return mean_step(model, 32, 64)


def _device(link="duplex", **options):
    return SimulatedDevice(Platform(0, Fraction(12), link, Fraction(10)), **options)


def _close(found, expected):
    # A copy lasts a whole number of nanoseconds, one in a hundred thousand.
    return abs(found / expected - 1) < Fraction(1, 10**4)


@pytest.mark.parametrize("link", list(Link))
def test_what_is_measured_is_what_the_device_does(link):
    step, device = _step(), _device(link, strict=True)
    captured, found = measure_step(step, Clock.MODULES, device, _T4, repetitions=1)
    assert found.trace.durations == capture(step, hardware=_T4).trace.durations
    platform = found.platform(2**20)
    assert platform.link is link
    assert _close(platform.rate(Kind.OFFLOAD), 12)
    assert _close(platform.rate(Kind.PREFETCH), 10)
    assert (found.device, found.memory) == ("simulated", _T4.memory)
    assert captured.tensors == "real"
    details = found.details
    assert details["link"]["computing_ns"] == details["link"]["copying_ns"]
    assert details["unforeseen"] == details["not_saved"] == {"storages": 0, "bytes": 0}
    assert device.races == []
    assert device.pinned_bytes == 0


def test_a_problem_has_the_rates_and_says_what_else_was_measured():
    problem = profile(_step(), measure=True, device=_device("simplex"), hardware="t4")
    assert problem.platform.link is Link.SIMPLEX
    assert _close(problem.platform.rate(Kind.PREFETCH), 10)
    assert problem.source["measured"] is True
    assert problem.source["hardware"] == "simulated"
    assert set(problem.source["measurement"]["link"]) == {
        "alone",
        "together",
        "computing",
        "computing_ns",
        "copying_ns",
        "arena",
    }


def test_a_device_is_for_measuring_by_the_clock_of_modules():
    with pytest.raises(InputError, match="a device is for measuring"):
        profile(_step(), hardware="t4", device=_device())
    with pytest.raises(InputError, match="from a hardware model"):
        profile(_step(), measure=True, device=_device())


def _rates(out, back):
    return Rates(Fraction(out), Fraction(back))


@pytest.mark.parametrize(
    ("together", "computing", "link", "rates", "busy"),
    [
        (None, None, Link.SIMPLEX, (12, 10), None),
        ((6, 5), None, Link.SIMPLEX, (12, 10), None),
        ((12, 5), None, Link.SIMPLEX, (12, 10), None),
        ((9, 8), None, Link.DUPLEX, (12, 10), (9, 8)),
        ((9, 8), (8, 7), Link.DUPLEX, (12, 10), (8, 7)),
        # What chance makes quicker at once than alone is the best that was seen.
        ((9, 8), (8, 11), Link.DUPLEX, (12, 11), (8, 11)),
        ((6, 5), (11, 9), Link.SIMPLEX, (12, 10), None),
    ],
)
def test_bounds_count_on_the_best_rates_and_schedules_on_those_of_both_directions_at_once(
    together, computing, link, rates, busy
):
    reading = LinkReading(
        _rates(12, 10), together and _rates(*together), computing and _rates(*computing)
    )
    assert (reading.link, reading.rates) == (link, _rates(*rates))
    assert reading.busy == (busy and _rates(*busy))
    assert reading.to_json()["alone"] == [12 * 10**9, 10 * 10**9]
    platform = with_link(Trace([Operation("f", 1)], []), reading, 99, "card").platform(7)
    assert [platform.rate(kind) for kind in Kind] == list(rates)
    assert [platform.rate(kind, busy=True) for kind in Kind] == list(busy or rates)


class Disturbed:
    """A device on which a copy takes twice as long if it begins while operators run."""

    tensors = torch.device("cpu")

    def __init__(self, fast=1000):
        self.fast = fast
        self.busy = range(0)
        self.out, self.back = _Queue(self), _Queue(self)
        self.compute = SimpleNamespace(record=lambda: 0)

    def arena(self, size):
        # What has been measured before is over.
        self.out.copies = self.back.copies = 0
        return SimpleNamespace(close=lambda: None, where="on node 1")

    def allocate(self, size):
        return torch.empty(size, dtype=torch.uint8)

    def copy_out(self, parts):
        self.out.copies += 1

    def copy_back(self, parts):
        self.back.copies += 1

    def synchronise(self):
        pass

    def nanoseconds(self, begin, end):
        return self._time(end) - self._time(begin)

    def _time(self, event):
        if isinstance(event, int):
            return event
        time = 0
        for _ in range(event[1]):
            time += self.fast * (2 if time in self.busy else 1)
        return time


class _Queue:
    def __init__(self, device):
        self.copies = 0

    def record(self):
        return self, self.copies

    def wait(self, event):
        pass


def test_only_copies_that_run_while_operators_do_tell_of_interference():
    device = Disturbed()

    def compute():
        device.busy = range(3000, 13_000)
        return [(3000, 6000), (7000, 13_000)]

    size = 2**20
    found = read_link(device, compute, 9_000)
    assert found.alone == found.together == _rates(Fraction(size, 1000), Fraction(size, 1000))
    assert found.computing == _rates(Fraction(size, 2000), Fraction(size, 2000))
    # What lies between two steps is not computing.
    assert (found.computing_ns, found.copying_ns) == (9_000, 9_000)
    assert found.to_json()["arena"] == "on node 1"


def test_copies_that_end_before_the_operators_do_not_tell_how_these_are_slowed_down():
    device = Disturbed()

    def compute():
        device.busy = range(10**6)
        return [(0, 10**6)]

    found = read_link(device, compute, 10)
    assert found.computing.out == Fraction(2**20, 2000)
    assert found.copying_ns is None


class Unforeseen(nn.Module):
    """Saves one tensor more where tensors have data, as kernels of some devices do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        x = self.layer(x)
        if not isinstance(x, FakeTensor):
            mask = torch.ones(x.shape, dtype=torch.float64)
            x = (x * mask).float()
        return torch.relu(x)


def test_what_only_real_tensors_save_is_in_the_problem_and_counted():
    step = mean_step(nn.Sequential(Unforeseen(), nn.Linear(16, 4)), 8, 16)
    captured, details = captured_on_device(step, Clock.MODULES, _T4)
    assert details["unforeseen"]["storages"] == 1
    assert details["unforeseen"]["bytes"] == 8 * 16 * 8
    assert details["not_saved"] == {"storages": 0, "bytes": 0}
    assert any(s.place.dtype == "float64" for s in captured.storages)
    # The plan may move it: it is a tensor of the trace.
    extra = next(s.tensor for s in captured.storages if s.place.dtype == "float64")
    assert captured.trace.tensors[extra].size == 8 * 16 * 8


def test_a_step_that_looks_at_values_is_captured_as_it_runs():
    model = nn.Linear(4, 4)

    class Looking(nn.Module):
        def forward(self, x):
            y = model(x)
            return y if float(y.detach().sum()) > -1e9 else -y

    looking = Looking()
    looking.inner = model
    captured, details = captured_on_device(mean_step(looking, 2, 4), Clock.MODULES, _T4)
    assert captured.tensors == "real"
    assert details == {}


@pytest.mark.parametrize("granularity", [1, 512, 4096])
def test_workspaces_are_what_the_allocator_gives_out_beyond_what_is_planned(granularity):
    step, device = _step(), _device(allocator=CachingAllocator(None, "a", granularity))
    captured = capture(step, hardware=_T4, tensors="real")
    tracker = LiveBytes()
    device.watch(tracker)
    with tracker:
        tracker.start()
        repeated = RepeatedStep(step, captured, device)
        timed = repeated.timed(1)
        run = repeated.run(allocator=True)
    batch = captured.uncounted["batch"]
    assert timed.resident == batch if granularity == 1 else timed.resident > batch
    assert timed.memory.peak_allocated == max(r.peak_allocated for r in run.readings[1:])
    planned = predict(timed.trace, Plan()).peaks
    gradients = captured.uncounted["gradients"]
    beside = timed.resident + gradients
    taken = [reading.peak_allocated for reading in run.readings[1:]]
    # Never less than what was taken, what is rounded up included.
    assert all(plan + beside >= took for plan, took in zip(planned, taken, strict=True))
    # Gradients are not scratch; the capture takes them for that.
    found = [operation.workspace for operation in timed.trace.operations]
    seen = [operation.workspace for operation in captured.trace.operations]
    rounding = 0 if granularity == 1 else 4 * granularity
    assert all(one <= other + rounding for one, other in zip(found, seen, strict=True))
    assert sum(found) < sum(seen)
    assert any(found)


def test_where_memory_is_not_told_workspaces_stay_those_of_the_capture():
    step = _step()
    captured = capture(step, hardware=_T4, tensors="real")
    assert RepeatedStep(step, captured, _device()).timed(1).trace == captured.trace


def test_too_little_memory_to_measure_is_said():
    step = _step()
    captured = capture(step, hardware=_T4, tensors="real")
    device = _device(memory=captured.trace.peak_memory // 2)
    tracker = LiveBytes()
    device.watch(tracker)
    with tracker:
        tracker.start()
        with pytest.raises(InputError, match="too little memory to measure the step"):
            RepeatedStep(step, captured, device).timed(1)
        with pytest.raises(InputError, match="too little memory to measure the step"):
            measure_step(step, Clock.MODULES, device, _T4)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in step.model.modules())


def test_marks_on_a_device_are_events_of_its_operators():
    device = _device()
    watch = Stopwatch(device)
    marks = [watch.mark()]
    for duration in (3, 5):
        device.ran(duration)
        marks.append(watch.mark())
    assert watch.between(marks) == [3, 5]
    host = Stopwatch(None)
    assert host.between([1, 5, 6]) == [4, 1]
