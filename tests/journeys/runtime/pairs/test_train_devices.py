"""Training by a plan on devices: simulated streams, the CPU's clock, the host's memory."""

import copy
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.placement.problem import Placement, PlacementProblem
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Transfer
from offcert.questions.schedule.simulate import simulate
from offcert.report.training_figure import trace_of
from offcert.runtime.device.pinned import SplitArena
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.pairs.step_pair import Pair
from offcert.runtime.pairs.train import _shown, train
from offcert.runtime.pairs.train_device import TrainDevice
from offcert.runtime.plan.host_layout import HostLayout
from offcert.runtime.plan.predict import predict
from offcert.runtime.profiling.profile import profile
from offcert.runtime.simulated import SimulatedDevice
from offcert.runtime.streaming.copies import StreamCopies
from offcert.runtime.streaming.stream_mover import StreamMover
from offcert.runtime.streaming.synchronous import forecast_at_once
from offcert.runtime.watch.entries import StorageEntry
from offcert.runtime.workloads.turns import Turns
from support.runtime.captured import evict_everything


class Layers(nn.Sequential):
    """A few layers; they may keep more than they kept when they were captured."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(24, 24), nn.Sigmoid(), nn.Dropout(0.2), nn.Linear(24, 24), nn.Tanh()]
        super().__init__(*layers, nn.Linear(24, 4))
        self.hoard = None

    def forward(self, x):
        if self.hoard is not None:
            self.hoard.append(x + 1)
        return super().forward(x)


@pytest.fixture(scope="module")
def problem():
    found = profile(Layers(), "16x24", hardware="t4")
    return found.with_memory(predict(found.trace, evict_everything(found)).peak)


def trained(problem, **options):
    return train(problem, evict_everything(problem), model=Layers(), **options)


def test_on_a_simulated_device_measured_is_predicted(problem):
    schedule = simulate(problem, sequential(problem))
    report = train(problem, schedule, model=Layers(), steps=2, device="simulated")
    record = report.record
    assert report.ok
    assert report.device == record.device == "simulated"
    assert record.measured.schedule == record.planned.schedule
    assert not check(problem, record.measured.schedule)
    errors = record.errors()
    # Nothing of the schedule's time is lost, and nothing is won that it did not have.
    lost = record.predicted_time - schedule.makespan
    assert errors.pop("time_to_certified") == lost / schedule.makespan
    assert set(errors.values()) == {0}
    assert [step.time for step in record.steps] == [record.predicted_time] * 2
    assert record.measured.peak == record.predicted_peak == problem.platform.memory
    # The device has no byte more, and all of them were taken.
    assert record.memory.allocated == problem.platform.memory
    assert record.host.pool == report.arena_bytes > 0


def test_the_trace_has_all_that_was_executed(problem):
    record = trained(problem, steps=1, device="simulated").record
    trace = trace_of(record)
    for number, course in enumerate((record.planned, record.measured), 1):
        here = [event for event in trace["traceEvents"] if event["pid"] == number]

        def rows(category, here=here):
            return [
                (each["name"], round(1000 * each["ts"]), round(1000 * (each["ts"] + each["dur"])))
                for each in here
                if each.get("cat") == category
            ]

        times = zip(course.schedule.starts, course.schedule.ends, strict=True)
        assert rows("operation") == [(n, *t) for n, t in zip(record.operations, times, strict=True)]
        for kind in Kind:
            assert rows(str(kind)) == [
                (record.moved[each.gap].tensor, each.start, each.end)
                for each in course.schedule.transfers
                if each.kind is kind
            ]
        stalled = [end - start for _, start, end in rows("stall")]
        assert stalled == [stall for stall in course.stalls if stall]
        assert sum(stalled) > 0
        counted = [
            (round(1000 * each["ts"]), each["args"]["bytes"]) for each in here if each["ph"] == "C"
        ]
        assert counted == list(course.live())
        assert max(size for _, size in counted) == record.predicted_peak


def test_a_simulated_device_has_the_memory_of_the_plan_and_not_a_byte_more(problem):
    model = Layers()
    model.hoard = []
    with pytest.raises(InputError, match="device simulated is out of memory: 1536 bytes were ask"):
        train(problem, evict_everything(problem), model=model, steps=1, device="simulated")
    # Nobody sees what operators take if live bytes are not counted.
    options = {"steps": 1, "device": "simulated", "count": False}
    report = train(problem, evict_everything(problem), model=model, **options)
    assert report.bitwise_equal
    assert report.record.measured.peaks == ()


def test_what_came_late_and_what_was_not_waited_for_is_in_the_errors(problem, monkeypatch):
    skipped = []

    class SkipsTheFirst(StreamMover):
        def _claim(self, step, action, operation):
            if skipped:
                super()._claim(step, action, operation)
            skipped.append(action.gap)

    monkeypatch.setattr("offcert.runtime.streaming.mover_makers.StreamMover", SkipsTheFirst)
    report = trained(problem, steps=1, device="simulated")
    assert report.bitwise_equal
    assert not report.ok
    record = report.record
    assert record.errors()["late_bytes"] == record.moved[skipped[0]].size
    assert "before the plan brought them back" in record.steps[0].deviation
    late = [ran for planned, ran in record.pairs() if planned is None]
    assert [(each.kind, each.gap) for each in late] == [(Kind.PREFETCH, -1)]


def test_a_device_of_ones_own(problem):
    slow = SimulatedDevice(
        replace(
            problem.platform,
            bandwidth=problem.platform.rate(Kind.OFFLOAD) / 1000,
            prefetch_bandwidth=problem.platform.rate(Kind.PREFETCH),
        ),
        name="slow",
    )
    report = trained(problem, steps=1, device=slow)
    assert report.ok
    assert report.record.device_name == "slow"
    assert report.record.errors()["time"] > 0
    assert report.record.errors()["peak"] == 0


def test_the_host_tells_the_times_where_tensors_move_at_once(problem):
    record = trained(problem, steps=3).record
    assert (record.device, record.shown is None, record.memory) == ("cpu", False, None)
    measured, planned = record.measured.schedule, record.planned.schedule
    assert len(record.measured) == len(problem.trace)
    events = [t for pair in zip(measured.starts, measured.ends, strict=True) for t in pair]
    assert events == sorted(events)
    assert {(t.kind, t.gap) for t in measured.transfers} == {
        (t.kind, t.gap) for t in planned.transfers
    }
    assert len(measured.transfers) == len(planned.transfers)
    # Each lies in a stall.
    for transfer in measured.transfers:
        after = next(n for n, start in enumerate(measured.starts) if start >= transfer.end)
        assert after == 0 or measured.ends[after - 1] <= transfer.start
    times = sorted(step.time for step in record.steps[1:])
    assert record.measured_time == times[0]
    assert record.errors()["peak"] == 0


def test_moving_at_once_by_hand():
    operations = [Operation(name, 5) for name in "abcdef"]
    trace = Trace(operations, [Tensor("x", 4, (0, 2, 5)), Tensor("y", 3, (1, 4))])
    problem = Problem("p", trace, Platform(99, Fraction(1), prefetch_bandwidth=Fraction(2)))
    moves = {(gap.tensor, gap.before): number for number, gap in enumerate(trace.gaps)}
    first, second, other = moves[0, 0], moves[0, 2], moves[1, 1]
    plan = Plan(
        [
            Move(Kind.OFFLOAD, first, 1),
            Move(Kind.PREFETCH, first, 2),
            Move(Kind.OFFLOAD, other, 3),
            Move(Kind.PREFETCH, second, 5),
            Move(Kind.PREFETCH, other, 4),
        ]
    )
    found = forecast_at_once(problem, predict(trace, plan))
    # x leaves before b, returns before c, leaves again at no cost before d, when y leaves.
    assert found.starts == (0, 9, 16, 24, 31, 38)
    assert found.ends == (5, 14, 21, 29, 36, 43)
    assert set(found.transfers) == {
        Transfer(Kind.OFFLOAD, first, 5, 9),
        Transfer(Kind.PREFETCH, first, 14, 16),
        Transfer(Kind.OFFLOAD, other, 21, 24),
        Transfer(Kind.PREFETCH, other, 29, 31),
        Transfer(Kind.PREFETCH, second, 36, 38),
    }
    assert not check(problem, found)


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_host_memory_refuses_or_spills(problem, device, tmp_path):
    said = []
    whole = trained(problem, steps=1, device=device, announce=said.append).record.host
    assert (whole.limit, whole.spilled, said) == (None, 0, [whole])
    sentence = rf"the plan needs .* of host memory \({whole.pool} bytes\), but may have 200 B "
    with pytest.raises(InputError, match=sentence):
        trained(problem, device=device, host_memory=200, announce=said.append)
    assert len(said) == 1
    for limit in (0, whole.pool // 2):
        spill = {"host_memory": limit, "host_spill": str(tmp_path)}
        report = trained(problem, steps=2, device=device, announce=said.append, **spill)
        assert report.ok
        host = report.record.host
        assert said.pop() == host
        assert host.limit == limit
        assert host.held <= limit < host.pool
        assert report.record.errors()["outside_bytes"] == 0
        assert (host.staging > 0) is (device == "simulated" and limit > 0)
        if device == "simulated":
            # Without memory for copies on their way, whoever hands them over waits.
            assert (report.record.errors()["time"] == 0) is (host.staging > 0)
    # The file is where it was asked for.
    with pytest.raises(InputError, match=r"host_spill must be a folder that exists, not .*nowhere"):
        trained(problem, device=device, host_memory=0, host_spill=str(tmp_path / "nowhere"))
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_room_in_a_spilled_arena_goes_to_a_file_too():
    device = SimulatedDevice()
    layout = HostLayout(PlacementProblem("", []), Placement([]), ())
    layout.__dict__["offsets"] = {"a": 0, "b": 0}
    layout.__dict__["overlapping"] = dict.fromkeys("ab", ("a", "b"))
    arena = SplitArena(device.arena(0), device.file(8))
    copies = StreamCopies(device, layout, arena, device.file)
    entries = [StorageEntry("a", 4), StorageEntry("b", 4)]
    rows = [(each, torch.full((4,), n, dtype=torch.uint8)) for n, each in enumerate(entries, 1)]
    for row in rows:
        device.out.wait(device.compute.record())
        copies.make_room([row[0]])
        copies.send([row])
    assert (copies.outside_bytes, device.pinned_bytes) == (4, 0)
    device.synchronise()
    back = [(each, device.allocate(4)) for each in entries]
    device.back.wait(device.compute.record())
    copies.bring(back)
    device.synchronise()
    assert [data.tolist() for _, data in back] == [[1] * 4, [2] * 4]
    copies.close()
    assert device.races == []


def test_the_step_that_is_shown_is_of_median_time_and_not_the_first():
    def shown(*times):
        return _shown([SimpleNamespace(comparison=SimpleNamespace(time=each)) for each in times])

    assert shown(1, 9, 7, 8) == 3
    assert shown(1, 9, 7) == 2
    assert (shown(5), shown(5, None), shown(None, 5), shown(None)) == (0, 0, 1, None)


def test_plans_together_have_one_limit(problem):
    other = profile(Layers(), "8x24", hardware="t4")
    other = other.with_memory(other.trace.least_memory)
    both = [Certified(problem), Certified(other)]
    pools = [follow(Layers(), each).host.pool for each in both]
    assert follow(Layers(), both, options=FollowOptions(host_memory=sum(pools))).host.pool == sum(
        pools
    )
    with pytest.raises(InputError, match=f"may have .*{pools[1] - 1}"):
        follow(Layers(), both, options=FollowOptions(host_memory=sum(pools) - 1))
    made = follow(Layers(), both, options=FollowOptions(host_memory=pools[0], host_spill=True))
    assert made.host.held <= pools[0]
    assert made.host.spilled >= pools[1]


class Certified:
    """As much of a certificate as training needs."""

    def __init__(self, problem):
        self.problem = problem
        self.result = Found(simulate(problem, sequential(problem)))


class Found:
    def __init__(self, schedule):
        self.schedule = schedule
        self.memory = self.execution = None


def test_bad_requests_are_refused(problem):
    cases = [
        ({"device": "tpu"}, 'device must be one of "auto", "cpu", "simulated", "cuda", not "tpu"'),
        ({"host_memory": -1}, 'host_memory must be bytes, or a text such as "6GiB", not -1'),
        ({"host_memory": 1.5}, 'host_memory must be bytes, or a text such as "6GiB", not 1.5'),
        ({"host_memory": "6"}, 'host_memory "6" needs a unit'),
        ({"host_spill": True}, "host_spill needs host_memory"),
    ]
    if not torch.cuda.is_available():
        cases.append(({"device": "cuda"}, "PyTorch finds no CUDA device"))
    for options, message in cases:
        with pytest.raises(InputError, match=message):
            trained(problem, **options)


def test_where_counting_takes_time_only_the_first_step_is_counted(problem, monkeypatch):
    monkeypatch.setattr(TrainDevice, "is_real", property(lambda self: True))
    monkeypatch.setattr("offcert.runtime.pairs.train_device.versions", lambda device: {"cuda": 13})
    monkeypatch.setattr(SimulatedDevice, "release", lambda self: emptied.append(True))
    emptied = []
    report = trained(problem, steps=3, device="simulated")
    assert report.ok
    assert report.counted
    peak = report.predicted_peak
    assert [step.peak for step in report.steps] == [peak, 0, 0]
    record = report.record
    assert (record.shown, record.measured.peak, record.memory.allocated) == (1, peak, peak)
    assert record.versions["cuda"] == "13"
    assert emptied == [True]


def test_two_copies_are_never_on_the_device_at_the_same_time(monkeypatch):
    """Where there is a device; here the model is told to move, and stays."""
    plain = nn.Linear(3, 3)
    planned = copy.deepcopy(plain)
    there, events = set(), []

    def to(self, device):
        (there.add if device.type == "cuda" else there.discard)(id(self))
        events.append(len(there))
        return self

    monkeypatch.setattr(nn.Module, "to", to)
    optimisers = tuple(torch.optim.SGD(each.parameters(), lr=0.1) for each in (plain, planned))

    def run(model):
        assert there == {id(model)}
        loss = model(torch.ones(3)).sum()
        loss.backward()
        return loss.detach()

    pair = Pair(plain, planned, optimisers, Turns(torch.device("cuda")))
    found = pair.step(lambda: run(plain), lambda: run(planned))
    assert found.differences == ()
    # Each comes for its passes, and once more for its optimiser.
    assert events == [1, 0] * 4


def test_an_optimisers_state_goes_with_the_model_but_for_what_it_keeps_on_the_host(monkeypatch):
    moved = []
    monkeypatch.setattr(
        "offcert.runtime.workloads.turns.moved_to",
        lambda value, device: moved.append(device.type) or value,
    )
    monkeypatch.setattr(nn.Module, "to", lambda self, device: self)
    model = nn.Linear(2, 2, bias=False)
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimiser.step()
    turns = Turns(torch.device("cuda"))
    turns.park(model, optimiser)
    assert moved == ["cpu"] * 3
    moved.clear()
    turns.bring(model, optimiser)
    # Both moments, but not the number of steps.
    assert moved == ["cuda"] * 2
