"""Plans for several devices: rules, and a search that begins with what they find."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TypeVar

from offcert.core.errors import PlanError
from offcert.questions.devices.problem import AdditionPlace, DevicesProblem, GradientJob, JobKind
from offcert.questions.devices.schedule import DeviceMove, DevicesPlan, DevicesSchedule, LinkUse
from offcert.questions.devices.simulate import Priority, dispatch, simulate_devices
from offcert.questions.schedule.plan import Plan

Rule = Callable[[DevicesProblem], Priority]


def fifo(problem: DevicesProblem) -> Priority:
    """Return moDNN's rule (§6.2): what becomes possible first goes first, whatever it is.

    Every device puts its gradients into the same stream as its activations, as they come; the
    streams of the devices share the link.
    """
    return lambda use, possible: (possible, use.device)


def activations_first(problem: DevicesProblem) -> Priority:
    """Return the rule by which activations go before gradients and weights."""
    return lambda use, possible: (not isinstance(use, DeviceMove), possible, use.device)


def gradients_first(problem: DevicesProblem) -> Priority:
    """Return the rule by which gradients and weights go before activations."""
    return lambda use, possible: (isinstance(use, DeviceMove), possible, use.device)


def longest_tail(problem: DevicesProblem) -> Priority:
    """Return Jackson's rule: what has most to be done after it goes first."""
    after = _after_operations(problem)
    trace = problem.step.trace

    def tail(use: LinkUse) -> int:
        if not isinstance(use, DeviceMove):
            return _after_job(problem, use.kind, use.gradient)
        gap = trace.gaps[use.move.gap]
        return after[gap.after] if use.move.kind == "prefetch" else after[gap.after] + 1

    return lambda use, possible: (-tail(use), possible, use.device)


RULES: dict[str, Rule] = {
    "fifo": fifo,
    "activations-first": activations_first,
    "gradients-first": gradients_first,
    "longest-tail": longest_tail,
}


def _after_job(problem: DevicesProblem, kind: JobKind, gradient: int) -> int:
    """Return the least ticks of all jobs that come after a job of one gradient."""
    steps = [JobKind.SEND, JobKind.FORWARD, JobKind.ADD, JobKind.COLLECT, JobKind.RETURN]
    jobs = {job.kind: job for job in problem.jobs_of(gradient)}
    later = [jobs[step] for step in steps[steps.index(kind) + 1 :] if step in jobs]
    return sum(
        problem.ticks(job) * (problem.devices if job.kind is JobKind.RETURN else 1) for job in later
    )


def _after_operations(problem: DevicesProblem) -> Sequence[int]:
    """Return, for each operation, the least ticks from its start to the end of the step."""
    durations = problem.step.trace.durations
    rest = list(accumulate(reversed(durations), initial=0))[::-1]
    found = list(rest[:-1])
    if problem.accumulation.place is AdditionPlace.HOST and problem.devices > 1:
        following = [0] * len(durations)
        for index, gradient in enumerate(problem.gradients):
            tail = problem.ticks(GradientJob(JobKind.SEND, index, 0))
            tail += _after_job(problem, JobKind.SEND, index)
            following[gradient.ready] = max(following[gradient.ready], tail)
        tail = 0
        for operation in reversed(range(len(durations))):
            tail = durations[operation] + max(tail, following[operation])
            found[operation] = max(found[operation], tail)
    return found


_Each = TypeVar("_Each", LinkUse, GradientJob)


def best_by_rules(
    problem: DevicesProblem, plans: Iterable[Plan], rules: Iterable[str] = tuple(RULES)
) -> tuple[DevicesSchedule, str] | None:
    """Return the best schedule that any rule makes of any plan, and the rule's name.

    All devices follow the same plan, which is one for a single device. None says that every plan
    gets stuck.
    """
    best: tuple[DevicesSchedule, str] | None = None
    names = list(rules)
    for plan in plans:
        for name in names:
            try:
                found = dispatch(problem, [plan] * problem.devices, RULES[name](problem))
            except PlanError:
                continue
            if best is None or found.makespan < best[0].makespan:
                best = found, name
    return best


def improve(
    problem: DevicesProblem,
    schedule: DevicesSchedule,
    *,
    time_limit: float = 5.0,
    steps: int = 10_000,
    target: int = 0,
    seed: int = 0,
    found: Callable[[DevicesSchedule], object] | None = None,
) -> DevicesSchedule:
    """Move single transfers and additions to other places in the order, as long as that is better.

    Equal schedules are taken too, so that the search does not stop on a plateau. It tries at most
    so many orders (`steps`) and nothing shorter than `target` ticks. Every better schedule is
    passed on, so that an interrupt costs none; the one returned is never longer than the one given.
    """
    rng = random.Random(seed)
    end = time.monotonic() + time_limit
    best = schedule
    plan = DevicesPlan.of(problem, schedule)
    for _ in range(steps):
        if best.makespan <= target or time.monotonic() > end:
            break
        changed = _changed(plan, rng)
        try:
            made = simulate_devices(problem, changed)
        except PlanError:
            continue
        if found is not None and made.makespan < best.makespan:
            found(made)
        if made.makespan <= best.makespan:
            best, plan = made, changed
    return best


def _changed(plan: DevicesPlan, rng: random.Random) -> DevicesPlan:
    """Return a plan in which one thing has another place, mostly a near one."""
    if plan.additions and rng.random() < 0.2:
        return DevicesPlan(plan.transfers, _moved(plan.additions, rng))
    return DevicesPlan(_moved(plan.transfers, rng), plan.additions)


def _moved(items: Sequence[_Each], rng: random.Random) -> list[_Each]:
    found = list(items)
    if len(found) > 1:
        place = rng.randrange(len(found))
        item = found.pop(place)
        reach = max(1, round(len(found) ** rng.random()))
        target = min(max(0, place + rng.choice((-1, 1)) * rng.randint(1, reach)), len(found))
        found.insert(target, item)
    return found
