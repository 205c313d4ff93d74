"""`certify_devices`: a schedule for several devices, and proof of how good it is."""

from __future__ import annotations

import time
from fractions import Fraction

from offcert.certify.ladder import certify
from offcert.core.devices.problem import DevicesProblem
from offcert.core.devices.schedule import DevicesSchedule
from offcert.core.errors import InputError
from offcert.core.options import require_seconds
from offcert.core.plan import Kind, Plan
from offcert.core.problem import Problem
from offcert.core.result import Bound, Evidence
from offcert.core.schedule import Schedule
from offcert.formulations.devices.bounds import devices_bounds
from offcert.formulations.devices.cpsat import solve_devices
from offcert.heuristics.devices.rules import RULES
from offcert.heuristics.devices.search import best_by_rules, improve
from offcert.proofs.certificate import Certificate, current_versions
from offcert.proofs.devices_certificate import DevicesCertificate

# Events in a problem up to which the model is tried.
_MOST_EVENTS = 300


def certify_devices(
    problem: DevicesProblem,
    *,
    time_limit: float = 30.0,
    seed: int = 0,
    rule: str | None = None,
) -> DevicesCertificate:
    """Return the best schedule found for several devices, with lower bounds.

    Plans for one device are looked for with the whole link and with its share of it; rules and a
    search over orders put the devices together; a model for CP-SAT has the last word where the
    problem is small.

    Parameters
    ----------
    problem : DevicesProblem
        What is to be done.
    time_limit : float
        Seconds, more or less.
    seed : int
        For everything that chooses at random.
    rule : str, optional
        Who uses the link next, a name in `offcert.heuristics.devices.rules.RULES`: only this rule
        is followed, and no search improves on it.

    Raises
    ------
    InputError
        If there is no such rule.
    """
    if rule is not None and rule not in RULES:
        raise InputError(f"rule must be one of {', '.join(RULES)}, not {rule}")
    begin = time.monotonic()
    limit = require_seconds(time_limit, "time_limit")
    step = problem.step.plain()
    if step.trace.least_memory > step.platform.memory:
        return DevicesCertificate(problem, None, (), versions=current_versions())
    whole = _certified(step, limit / 5, seed)
    shared = whole
    if step.trace.peak_memory > step.platform.memory and problem.devices > 1:
        shared = _certified(shared_link(step, problem.devices), limit / 5, seed)
    alone = _best_proved(whole, step)
    bounds = devices_bounds(problem, 0 if alone is None else alone.value, time_limit=limit / 10)
    plans = _plans([shared, whole], step)
    found = best_by_rules(problem, plans, RULES if rule is None else [rule])
    schedule, by = (None, "") if found is None else found
    if schedule is not None and rule is None:
        left = limit - (time.monotonic() - begin)
        schedule, by, more = _searched(problem, schedule, by, bounds, left, seed)
        bounds += more
    return DevicesCertificate(problem, schedule, tuple(bounds), alone, by, current_versions())


def shared_link(step: Problem, devices: int) -> Problem:
    """Return the problem of one device that has only its share of the link."""
    share = Fraction(1, devices)
    out, back = (step.platform.rate(kind) * share for kind in Kind)
    return step.with_bandwidth(out, back)


def _searched(
    problem: DevicesProblem,
    schedule: DevicesSchedule,
    by: str,
    bounds: list[Bound],
    left: float,
    seed: int,
) -> tuple[DevicesSchedule, str, list[Bound]]:
    """Improve a schedule in the seconds that are left; return it, who found it, and bounds."""
    least = max(bound.value for bound in bounds)
    share = max(0.5, left / 2)
    better = improve(problem, schedule, time_limit=share, target=least, seed=seed)
    if better.makespan < schedule.makespan:
        schedule, by = better, f"{by}, then a search over orders"
    trace = problem.step.trace
    events = problem.devices * (len(trace) + 2 * len(trace.gaps)) + len(problem.jobs)
    if schedule.makespan <= least or events > _MOST_EVENTS:
        return schedule, by, []
    answer = solve_devices(
        problem, schedule.makespan, lower_bound=least, time_limit=share, seed=seed
    )
    if answer.schedule is not None and answer.schedule.makespan < schedule.makespan:
        schedule, by = answer.schedule, "CP-SAT"
    return schedule, by, [] if answer.bound is None else [answer.bound]


def _certified(step: Problem, time_limit: float, seed: int) -> Certificate:
    return certify(step, time_limit=max(time_limit, 0.1), seed=seed)


def _best_proved(certificate: Certificate, step: Problem) -> Bound | None:
    """Return the best proved bound for one device, if it says more than its operations do."""
    proved = [b for b in certificate.result.bounds if b.evidence is Evidence.PROVED]
    best = max(proved, key=lambda bound: bound.value, default=None)
    return best if best is not None and best.value > step.trace.compute_time else None


def _plans(certificates: list[Certificate], step: Problem) -> list[Plan]:
    plans: list[Plan] = []
    if step.trace.peak_memory <= step.platform.memory:
        plans.append(Plan())
    for certificate in certificates:
        schedule = certificate.result.schedule
        if isinstance(schedule, Schedule):
            plan = schedule.plan(step.trace)
            if plan not in plans:
                plans.append(plan)
    return plans
