"""`certify_devices`: a schedule for several devices, and proof of how good it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from offcert.certification.interrupts import ending_whole, mind_interrupt, watched
from offcert.certification.ladder import certify
from offcert.certification.method import Effort
from offcert.certification.running import Running, SearchProgress, keeper
from offcert.core.errors import InputError
from offcert.core.messages import short_repr, show
from offcert.core.options import require_count, require_seconds, require_seed
from offcert.core.result import Bound, Evidence
from offcert.formulations.devices.bounds import devices_bounds
from offcert.formulations.devices.cpsat import solve_devices
from offcert.heuristics.devices import RULES, best_by_rules, improve
from offcert.proofs.any_certificate import Settings
from offcert.proofs.certificate import Certificate
from offcert.proofs.devices_certificate import DEVICE, DevicesCertificate
from offcert.proofs.questions import DEVICES
from offcert.questions.devices.problem import DevicesProblem
from offcert.questions.devices.schedule import DevicesSchedule
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule


class DevicesSearch(Running[DevicesCertificate]):
    """Collects schedules and bounds; every schedule passes the checker before it counts.

    ``schedule`` is the shortest one, ``found_by`` says in words which method found it, and
    ``alone`` is a proved bound for the step of one device with the link to itself.
    """

    question = DEVICES

    def __init__(
        self,
        problem: DevicesProblem,
        time_limit: float,
        progress: Callable[[SearchProgress], None] | None = None,
        keep: Callable[[DevicesSearch], None] | None = None,
    ) -> None:
        super().__init__(time_limit, progress, keep)
        self.problem = problem
        self.schedule: DevicesSchedule | None = None
        self.alone: Bound | None = None
        self.found_by = ""

    @property
    def objective(self) -> int | None:
        """Makespan of the best schedule, in ticks."""
        return None if self.schedule is None else self.schedule.makespan

    @property
    def done(self) -> bool:
        """Whether the schedule is as short as the best bound."""
        return self.objective is not None and self.objective <= self.lower_bound

    def add(self, bound: Bound) -> None:
        """Record a lower bound; one for a single device takes the place of the one before."""
        if bound.method == DEVICE:
            self.bounds = [each for each in self.bounds if each.method != DEVICE]
        super().add(bound)

    def offer(self, schedule: DevicesSchedule, found_by: str) -> bool:
        """Take a schedule if it is shorter.

        Raises `UnsoundError` if it is none of the problem, or shorter than a proved lower bound.
        """
        if not self._admits(schedule.makespan, self.problem, schedule):
            return False
        self.schedule, self.found_by = schedule, found_by
        return self._took()

    def _certificate(self, **origin: Any) -> DevicesCertificate:
        bounds = tuple(self.bounds)
        return DevicesCertificate(
            self.problem, self.schedule, bounds, self.alone, self.found_by, **origin
        )


# Events in the largest problem for which the CP-SAT model is built. Assumed.
_MOST_EVENTS = 300


def certify_devices(
    problem: DevicesProblem,
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    rule: str | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
    keep: Callable[[DevicesCertificate], None] | None = None,
) -> DevicesCertificate:
    """Return the best schedule found for several devices, with lower bounds.

    Plans for one device are looked for with the whole link and with its share of it; rules and a
    search over orders put the devices together; a model for CP-SAT has the last word where the
    problem is small.

    Parameters
    ----------
    problem : DevicesProblem
        The steps of all devices, and the exchange of gradients.
    time_limit : float
        Seconds, more or less. What is known then is returned; an interrupt (Ctrl-C) does the same.
    workers : int
        Threads for solvers that can use several.
    seed : int
        For everything that chooses at random.
    rule : str, optional
        Who uses the link next, a name in `offcert.heuristics.devices.RULES`: only this rule
        is followed, and no search improves on it.
    progress : callable, optional
        Told of every step and improvement.
    keep : callable, optional
        Given a certificate of what is known, before every step and at improvements about every
        second: written to a file, it outlives a crash of this process.

    Raises
    ------
    InputError
        If there is no such rule, or an argument is of the wrong type or out of its range.
    """
    if not isinstance(problem, DevicesProblem):
        raise InputError(f"problem must be a DevicesProblem, not {short_repr(problem)}")
    if rule is not None and rule not in RULES:
        raise InputError(f"rule must be one of {', '.join(RULES)}, not {show(rule)}")
    limit = require_seconds(time_limit, "time_limit")
    workers, seed = require_count(workers, "workers"), require_seed(seed, "seed")
    settings = Settings(time_limit=limit, workers=workers, seed=seed)
    name = DEVICES.command if rule is None else rule
    search = DevicesSearch(problem, limit, progress, keeper(name, settings, keep))
    known = partial(search.certificate, name, settings)
    step = problem.step.plain()
    if step.trace.least_memory <= step.platform.memory:
        try:
            with ending_whole(known):
                effort = Effort(limit, workers, seed)
                _begin(search, step, effort, known, RULES if rule is None else [rule])
                if rule is None:
                    _improve(search, effort, known)
                    _solve(search, effort, known)
        except KeyboardInterrupt:
            search.note(interrupted=True)
    return known()


def shared_link(step: Problem, devices: int) -> Problem:
    """Return the problem of one device that has only its share of the link."""
    platform = step.platform
    return replace(step, platform=replace(platform, sharing=platform.sharing * devices))


def _begin(
    search: DevicesSearch,
    step: Problem,
    effort: Effort,
    known: Callable[[], DevicesCertificate],
    rules: Iterable[str],
) -> None:
    """Look for plans of one device and for bounds, and put the devices together by rules."""
    search.begin("plans for one device")
    search.add(Bound(DEVICE, step.trace.compute_time, Evidence.PROVED))
    found: list[Certificate] = []
    for problem in _single(search.problem, step):
        seconds = max(effort.seconds / 5, 0.1)
        found.append(certify(problem, time_limit=seconds, workers=effort.workers, seed=effort.seed))
        search.note(failed={**search.notes.failed, **found[-1].notes.failed})
        if found[-1].notes.interrupted:
            break
    search.alone = _best_proved(found[0], step)
    if search.alone is not None:
        search.add(Bound(DEVICE, search.alone.value, Evidence.PROVED))
    search.begin("rules")
    made = best_by_rules(search.problem, _plans(found[::-1], step), rules)
    if made is not None:
        search.offer(*made)
    mind_interrupt(found[-1])
    search.begin("bounds of resources")
    with watched(search, effort.seconds, known), search.surviving():
        alone = 0 if search.alone is None else search.alone.value
        for bound in devices_bounds(search.problem, alone, time_limit=effort.seconds / 10):
            search.add(bound)


def _single(problem: DevicesProblem, step: Problem) -> list[Problem]:
    """Return one device's problem with the whole link, and with its share if tensors must move."""
    if step.trace.peak_memory > step.platform.memory and problem.devices > 1:
        return [step, shared_link(step, problem.devices)]
    return [step]


def _improve(
    search: DevicesSearch, effort: Effort, known: Callable[[], DevicesCertificate]
) -> None:
    """Search over orders, in half of the time that is left."""
    begin = search.schedule
    if begin is None or search.done:
        return
    by = f"{search.found_by}, then a search over orders"
    search.begin("a search over orders")
    seconds = max(0.5, search.remaining / 2)

    def offer(better: DevicesSchedule) -> None:
        search.offer(better, by)

    with watched(search, seconds, known), search.surviving():
        improve(
            search.problem,
            begin,
            time_limit=seconds,
            target=search.lower_bound,
            seed=effort.seed,
            found=offer,
        )


def _solve(search: DevicesSearch, effort: Effort, known: Callable[[], DevicesCertificate]) -> None:
    """Ask the model for a schedule and a bound, if the problem is small."""
    problem, makespan = search.problem, search.objective
    trace = problem.step.trace
    events = problem.devices * (len(trace) + 2 * len(trace.gaps)) + len(problem.jobs)
    if makespan is None or search.done or events > _MOST_EVENTS:
        return
    search.begin("CP-SAT")
    seconds = max(0.5, search.remaining)
    with watched(search, seconds, known), search.surviving():
        answer = solve_devices(
            problem,
            makespan,
            lower_bound=search.lower_bound,
            time_limit=seconds,
            workers=effort.workers,
            seed=effort.seed,
        )
        if answer.schedule is not None:
            search.offer(answer.schedule, "CP-SAT")
        if answer.bound is not None:
            search.add(answer.bound)
        if answer.interrupted:
            raise KeyboardInterrupt


def _best_proved(certificate: Certificate, step: Problem) -> Bound | None:
    """Return the best proved bound for one device, if it exceeds the time of its operations."""
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
