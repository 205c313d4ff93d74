"""Our own search over the orders in which devices use their link."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from offcert.core.devices.plan import DevicesPlan, LinkUse
from offcert.core.devices.problem import DevicesProblem, Job
from offcert.core.devices.schedule import DevicesSchedule
from offcert.core.devices.simulate import dispatch, simulate_devices
from offcert.core.errors import PlanError
from offcert.core.plan import Plan
from offcert.heuristics.devices.rules import RULES

_Each = TypeVar("_Each", LinkUse, Job)


def best_by_rules(
    problem: DevicesProblem, plans: Iterable[Plan], rules: Iterable[str] = tuple(RULES)
) -> tuple[DevicesSchedule, str] | None:
    """Return the best schedule that any rule makes of any plan, and the rule's name.

    Parameters
    ----------
    problem : DevicesProblem
        What is to be done.
    plans : iterable of Plan
        Plans for one device; all devices follow the same one.
    rules : iterable of str
        Names in `RULES`.

    Returns
    -------
    tuple or None
        None if every plan gets stuck.
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

    Equal schedules are taken too, so that the search does not stop on a plateau.

    Parameters
    ----------
    problem : DevicesProblem
        What is to be done.
    schedule : DevicesSchedule
        Where to begin.
    time_limit : float
        Seconds.
    steps : int
        Orders to try at most.
    target : int
        Ticks; nothing shorter is looked for, as when it is a lower bound.
    seed : int
        For the choices.
    found : callable, optional
        Given every schedule that is better than all before, so that an interrupt costs none.

    Returns
    -------
    DevicesSchedule
        Never longer than the one given.
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
