"""The checker for several devices accepts what is valid and names what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.errors import InputError
from offcert.core.platform import Link
from offcert.heuristics.devices import fifo
from offcert.questions.devices.problem import (
    Accumulation,
    AdditionPlace,
    DevicesProblem,
    Gradient,
    GradientJob,
    JobKind,
)
from offcert.questions.devices.schedule import DevicesSchedule, TimedJob, check_devices
from offcert.questions.devices.simulate import dispatch
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.schedule import Schedule
from support.problems.devices import random_devices, three_layers


def made(problem: DevicesProblem) -> DevicesSchedule:
    return dispatch(problem, [Plan()] * problem.devices, fifo(problem))


def moved(schedule: DevicesSchedule, job: GradientJob, ticks: int) -> DevicesSchedule:
    """Return the schedule with one job at another time."""
    jobs = [
        TimedJob(each.job, each.start + ticks, each.end + ticks) if each.job == job else each
        for each in schedule.jobs
    ]
    return DevicesSchedule(schedule.steps, jobs)


def at(schedule: DevicesSchedule, kind: JobKind, gradient: int, device: int) -> TimedJob:
    return next(each for each in schedule.jobs if each.job == GradientJob(kind, gradient, device))


def test_three_layers_by_hand() -> None:
    problem = three_layers()
    schedule = made(problem)
    assert check_devices(problem, schedule) == []
    # The gradient of the third layer is complete at 10, and then the link never rests: six
    # gradients and weights of 3, 2 and 1 bytes go out and come back.
    assert at(schedule, JobKind.SEND, 0, 0).start == 10
    assert at(schedule, JobKind.ADD, 0, 1) == TimedJob(GradientJob(JobKind.ADD, 0, 1), 16, 18)
    assert schedule.makespan == 10 + 2 * 2 * (3 + 2 + 1) == 34


def test_naive_accumulation_by_hand() -> None:
    problem = three_layers().with_accumulation(Accumulation(AdditionPlace.DEVICE, Fraction(100)))
    schedule = made(problem)
    assert check_devices(problem, schedule) == []
    # After 18 one gradient of each layer goes to the host and to the first device, and the weights
    # the same way back: 6 bytes four times; the link waits for one addition of a tick.
    assert min(each.start for each in schedule.jobs) == 18
    assert schedule.makespan in range(18 + 4 * 6, 18 + 4 * 6 + 4)


def test_one_device_exchanges_nothing() -> None:
    problem = three_layers(devices=1)
    assert problem.jobs == ()
    assert made(problem).makespan == problem.step.trace.compute_time


FORGERIES: dict[str, tuple[Callable[[DevicesSchedule], DevicesSchedule], str]] = {
    "sent too early": (lambda s: moved(s, GradientJob(JobKind.SEND, 0, 0), -1), "complete at 10"),
    "added too early": (lambda s: moved(s, GradientJob(JobKind.ADD, 0, 0), -1), "it was sent"),
    "returned too early": (
        lambda s: moved(s, GradientJob(JobKind.RETURN, 0, 0), -18),
        "is added at",
    ),
    "link twice": (lambda s: moved(s, GradientJob(JobKind.SEND, 0, 1), -1), "uses the link"),
    "weights twice": (lambda s: moved(s, GradientJob(JobKind.ADD, 0, 0), 2), "changes the weights"),
    "missing": (
        lambda s: DevicesSchedule(s.steps, s.jobs[:-1]),
        "is missing",
    ),
    "twice": (lambda s: DevicesSchedule(s.steps, [*s.jobs, s.jobs[0]]), "happens twice"),
    "no place": (
        lambda s: DevicesSchedule(
            s.steps, [*s.jobs, TimedJob(GradientJob(JobKind.FORWARD, 0, 1), 90, 93)]
        ),
        "has no place",
    ),
    "too short": (
        lambda s: DevicesSchedule(s.steps, [*s.jobs[:-1], replace(s.jobs[-1], end=33)]),
        "instead of 1",
    ),
    "no integer": (
        lambda s: DevicesSchedule(s.steps, [*s.jobs[:-1], replace(s.jobs[-1], end=34.0)]),  # type: ignore[arg-type]
        "no integers",
    ),
    "a device less": (
        lambda s: DevicesSchedule(s.steps[:1], s.jobs),
        "1 devices instead of 2",
    ),
    "operation": (
        lambda s: DevicesSchedule(
            [s.steps[0], Schedule((0, *s.steps[1].starts[1:]), (1, *s.steps[1].ends[1:]), ())],
            s.jobs,
        ),
        "device 1: operation 0",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_schedules_are_refused(name: str) -> None:
    problem = three_layers()
    change, reason = FORGERIES[name]
    faults = check_devices(problem, change(made(problem)))
    assert any(reason in fault for fault in faults), faults


def test_cores_are_counted() -> None:
    """Additions that are a core too many are refused; with that core they are not."""
    slow = Accumulation(AdditionPlace.HOST, Fraction(1, 10), 2)
    problem = three_layers(link=Link.DUPLEX).with_accumulation(slow)
    schedule = made(problem)
    assert check_devices(problem, schedule) == []
    single = problem.with_accumulation(replace(slow, cores=1))
    assert any("additions run" in fault for fault in check_devices(single, schedule))


def test_directions_of_a_duplex_link_are_apart() -> None:
    problem = three_layers(link=Link.DUPLEX)
    schedule = made(problem)
    assert check_devices(problem, schedule) == []
    assert any("uses the link" in fault for fault in check_devices(three_layers(), schedule))


def test_weights_wait_for_their_last_use() -> None:
    early = replace(three_layers(), gradients=[Gradient("third", 1, 3, 3)])
    late = replace(early, gradients=[Gradient("third", 1, 3, 5)])
    assert any("last used at 18" in fault for fault in check_devices(late, made(early)))
    assert check_devices(late, made(late)) == []


def test_bad_problems_are_refused() -> None:
    problem = three_layers()
    for changes, reason in (
        ({"gradients": ()}, "gradients must not be empty"),
        ({"gradients": [Gradient("g", 0, 0, 0)]}, r"gradients\[0\].size"),
        ({"gradients": [Gradient("g", 1, 6, 0)]}, r"gradients\[0\].ready"),
        ({"devices": 0}, "devices must be at least 1"),
        ({"devices": 2**60}, "less than 2"),
        ({"step": replace(problem.step, transfers="fractional")}, "atomic"),
    ):
        with pytest.raises(InputError, match=reason):
            replace(problem, **changes)  # type: ignore[arg-type]
    for arguments in (("host", Fraction(0)), ("moon", Fraction(1)), ("device", Fraction(1), 2)):
        with pytest.raises(InputError):
            Accumulation(*arguments)  # type: ignore[arg-type]


def test_random_problems_have_valid_schedules() -> None:
    for seed in range(12):
        problem = random_devices(seed)
        roomy = replace(problem, step=problem.step.with_memory(problem.step.trace.peak_memory))
        assert check_devices(roomy, made(roomy)) == []
