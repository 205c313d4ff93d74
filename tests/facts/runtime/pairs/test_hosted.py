"""A step behind a host: the forecast if that takes no time, and the host's time if it takes more.

The hosts' clocks stand still, so that only launches and calls of the driver take time, exactly.
"""

import copy
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.core.platform import Kind, Link, Platform
from offcert.questions.schedule.carried import with_host
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware import hardware
from offcert.runtime.pairs.train import train
from offcert.runtime.pairs.train_device import Hosted, HostedStep, HostedSteps, hosted
from offcert.runtime.plan.step_plan import step_plan
from offcert.runtime.simulated import RealHost
from offcert.runtime.streaming.step_events import forecast
from support.runtime.captured import evict_everything
from support.runtime.stream_steps import Layers, mean

PLATFORM = Platform(
    10**6,
    Fraction(1, 100),
    Link.DUPLEX,
    Fraction(1, 150),
    busy_bandwidth=Fraction(1, 200),
    busy_prefetch_bandwidth=Fraction(1, 250),
)
LAUNCH = 10**6


def still() -> int:
    return 0


# One tensor comes back while another one leaves, which slows both down.
CROSSING = Plan(
    [
        Move(Kind.OFFLOAD, 0, 4),
        Move(Kind.OFFLOAD, 1, 6),
        Move(Kind.PREFETCH, 0, 7),
        Move(Kind.OFFLOAD, 2, 12),
        Move(Kind.PREFETCH, 2, 14),
        Move(Kind.PREFETCH, 1, 16),
    ]
)


@pytest.fixture(scope="module")
def step():
    return TrainingStep(Layers(), mean, torch.randn(4, 8))


@pytest.fixture(scope="module")
def problem(step):
    found = capture(step, hardware=hardware("t4"))
    source = {"clock": "modules", "capture": found.to_json()}
    return Problem("layers", found.network, PLATFORM, source=source)


def steps_of(platform, **host):
    return HostedSteps(platform, RealHost(**{"launch": 0, "call": 0, "clock": still, **host}))


def test_a_host_that_takes_no_time_is_that_of_the_forecast(problem, step):
    plan = step_plan(problem, CROSSING, streams=True)
    found, context = steps_of(PLATFORM).planned(step, plan)
    expected = forecast(plan.problem, plan.timetable).makespan
    assert found.time == expected
    # Copies did slow each other down.
    alone = replace(plan.problem, platform=PLATFORM.alone)
    assert expected > forecast(alone, plan.timetable).makespan
    assert set(context.steps) == {"planned"}
    assert (found.host, found.python) == (0, 0)


def test_a_slow_host_is_what_a_step_takes(problem, step):
    durations = problem.trace.durations
    plan = step_plan(problem, evict_everything(problem), streams=True)
    steps = steps_of(PLATFORM, launch=LAUNCH, call=1000)
    plain, (planned, _) = steps.plain(step, durations), steps.planned(step, plan)
    # Two events around the step.
    assert plain.host == plain.operators * LAUNCH + 2000
    assert max(durations) < LAUNCH
    # The last operation ends when it has been handed over, and an event is recorded after it.
    assert plain.time == plain.operators * LAUNCH + 1000
    # Each transfer takes a wait, an event and the copy at the least.
    moved = len(forecast(plan.problem, plan.timetable).transfers)
    assert planned.operators == plain.operators
    assert planned.time >= planned.host - 1000 >= plain.host + 3000 * moved - 1000


def test_operations_of_a_plain_step_are_handed_over_evenly(problem, step):
    durations = tuple(1000 * (number % 3) for number in range(len(problem.trace)))
    found = steps_of(PLATFORM, launch=350).plain(step, durations)
    ends = [found.host * n // len(durations) for n in range(len(durations) + 1)]
    launches = [end - begin for begin, end in pairwise(ends)]
    # Each begins when it begins to be handed over, not before.
    end = 0
    for (begin, handed), duration in zip(pairwise(ends), durations, strict=True):
        end = max(max(end, begin) + duration, handed)
    assert found.time == end
    assert with_host(durations, launches) <= end


def test_a_plan_that_moves_nothing_takes_its_operations_times(problem, step):
    plan = step_plan(problem, Plan(), streams=True)
    found, _ = steps_of(PLATFORM).planned(step, plan)
    assert found.time == sum(problem.trace.durations)


def test_inputs_that_are_smaller_stand_for_those_of_the_plan(problem, step):
    smaller = TrainingStep(copy.deepcopy(step.model), mean, torch.randn(2, 8))
    plan = step_plan(problem, evict_everything(problem), streams=True)
    steps = steps_of(PLATFORM)
    found, context = steps.planned(smaller, plan)
    assert set(context.steps) == {"planned"}
    assert found.time == forecast(plan.problem, plan.timetable).makespan


def test_the_launch_times_of_a_problem_are_the_hosts(problem, step):
    launches = [10**9] * len(problem.trace)
    known = replace(problem, source=problem.source | {"measurement": {"launch_ns": launches}})
    plan = step_plan(known, evict_everything(known), streams=True)
    found = hosted(known, None, step, plan)
    assert found.recorded
    # What Python takes here is no more than the record, so launches take the rest.
    assert found.plain.host == pytest.approx(sum(launches), rel=0.05)
    assert found.forecast >= sum(launches)
    assert found.alone == forecast(plan.problem, plan.timetable).makespan
    assert found.idle == found.planned.time - found.alone > 0


def test_a_device_that_never_waits_is_not_idle():
    step = HostedStep(90, 50, 20, 3)
    assert Hosted(step, step, 100, None, 10, False).idle == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"host": "mine", "device": "simulated"}, 'host must be one of "none", "real", not "mine"'),
        ({"host": "real"}, "host real is for the device simulated, not for auto"),
        ({"host": "real", "device": "cpu"}, "host real is for the device simulated, not for cpu"),
    ],
)
def test_hosts_that_no_device_has_are_refused(problem, options, said):
    with pytest.raises(InputError, match=said):
        train(problem, Plan(), model=nn.Identity(), **options)


def test_training_tells_of_steps_behind_the_host(problem, step):
    made = TrainingStep(copy.deepcopy(step.model), mean, step.batch)
    plan = evict_everything(problem)
    report = train(problem, plan, step=made, steps=1, count=False, device="simulated", host="real")
    found = report.to_dict()["hosted"]
    assert report.ok
    # These operations take microseconds: the host is behind throughout.
    assert found["idle"] == found["planned"]["time"] - found["alone"] > 0
    assert found["planned"]["python"] > 0
    assert found["planned"]["host"] > found["planned"]["python"]
    assert found["forecast"] is None
    assert not found["recorded"]
    without = train(problem, plan, step=made, steps=1, count=False, device="simulated")
    assert "hosted" not in without.to_dict()
