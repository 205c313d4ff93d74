"""Simulators for several devices: an order of decisions, or a rule, becomes a schedule.

Both build the schedule transfer by transfer. Between two transfers every device runs on as far as
it can: what it does then depends on nothing that is still open. Transfers that become possible
later start later than those that are possible now, because nothing but a transfer, or an addition
after one, makes them possible. So one step of a rule is: of all transfers that are possible, take
one of those that can start first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.questions.devices.device_run import DeviceRun
from offcert.questions.devices.problem import AdditionPlace, DevicesProblem, GradientJob, JobKind
from offcert.questions.devices.schedule import (
    DeviceMove,
    DevicesPlan,
    DevicesSchedule,
    LinkUse,
    TimedJob,
    direction,
)
from offcert.questions.schedule.plan import Plan

# Smaller comes first, among transfers or additions that can start at the same time.
Priority = Callable[[LinkUse, int], object]


def simulate_devices(problem: DevicesProblem, plan: DevicesPlan) -> DevicesSchedule:
    """Return the earliest schedule that follows a plan.

    A `PlanError` says that the plan is inconsistent, incomplete or gets stuck; the message says
    where.
    """
    _require_complete(problem, plan)
    moves = [Plan(plan.moves(device)) for device in range(problem.devices)]
    run = _Run(problem, moves, plan.additions)
    orders = {kind: [use for use in plan.transfers if direction(use) is kind] for kind in Kind}
    queues = list(orders.values())
    if not problem.step.platform.duplex:
        queues = [list(plan.transfers)]
    heads = [0] * len(queues)
    while any(head < len(queue) for head, queue in zip(heads, queues, strict=True)):
        for number, queue in enumerate(queues):
            if heads[number] == len(queue):
                continue
            use = queue[heads[number]]
            start = run.earliest(use)
            if start is not None:
                run.take(use, start)
                heads[number] += 1
                break
        else:
            blocked = queues[0][heads[0]] if heads[0] < len(queues[0]) else queues[1][heads[1]]
            raise PlanError(f"{_name(blocked)} has to wait for something that comes later")
    return run.finish()


def dispatch(problem: DevicesProblem, plans: Iterable[Plan], priority: Priority) -> DevicesSchedule:
    """Return the schedule in which a rule decides who uses the link next.

    There is a plan for each device: which activations leave, and in which order. Of a transfer or
    an addition, and the time at which it became possible, the least priority comes first, among
    those that can start first. Nothing is left idle for what comes later. A `PlanError` says that a
    plan is inconsistent or gets stuck.
    """
    run = _Run(problem, list(plans), None)
    while True:
        transfer = _first(((use, run.earliest(use)) for use in run.waiting()), run, priority)
        addition = _first(((job, run.free_for(job)) for job in run.arrived), run, priority)
        # What is sent from now on arrives after the next transfer has begun.
        if addition is not None and (transfer is None or addition[1] <= transfer[1]):
            assert isinstance(addition[0], GradientJob)
            run.add(addition[0])
        elif transfer is None:
            return run.finish()
        else:
            run.take(*transfer)


def _first(
    choices: Iterable[tuple[LinkUse, int | None]], run: _Run, priority: Priority
) -> tuple[LinkUse, int] | None:
    """Return the use of the link that can start first, and its tick; None if none can start.

    Of several that can start in the same tick it is the first by priority.
    """
    best: tuple[int, LinkUse] | None = None
    rank: object = None
    for use, start in choices:
        if start is None or (best is not None and start > best[0]):
            continue
        own = priority(use, run.possible(use))
        if best is None or start < best[0] or own < rank:  # type: ignore[operator]
            best, rank = (start, use), own
    return None if best is None else (best[1], best[0])


def _name(use: LinkUse) -> str:
    if isinstance(use, GradientJob):
        return str(use)
    return f"the {use.move.kind} of gap {use.move.gap} of device {use.device}"


def _require_complete(problem: DevicesProblem, plan: DevicesPlan) -> None:
    jobs = [use for use in plan.transfers if isinstance(use, GradientJob)]
    wanted = set(problem.jobs)
    for found, adding in ((jobs, False), (list(plan.additions), True)):
        part = {job for job in wanted if (job.kind is JobKind.ADD) is adding}
        if len(found) != len(part) or set(found) != part:
            what = "additions" if adding else "transfers of gradients"
            raise PlanError(f"the plan must name each of the {len(part)} {what} once")
    devices = {use.device for use in plan.transfers if isinstance(use, DeviceMove)}
    if any(not 0 <= device < problem.devices for device in devices):
        raise PlanError(f"the plan names a device beyond the {problem.devices} there are")


class _Run:
    """A schedule under construction."""

    def __init__(
        self, problem: DevicesProblem, plans: list[Plan], additions: tuple[GradientJob, ...] | None
    ) -> None:
        if len(plans) != problem.devices:
            raise PlanError(f"there are {len(plans)} plans for {problem.devices} devices")
        self.problem = problem
        self.ends: dict[GradientJob, TimedJob] = {}
        self.steps = [DeviceRun(problem.step, plan) for plan in plans]
        self._place = problem.accumulation.place
        self._free = dict.fromkeys(Kind, 0)
        # Cores and weights that are free again, and from when on.
        self._cores = [0] * problem.accumulation.cores
        self._weights = [0] * len(problem.gradients)
        self._additions = additions
        self._next_addition = 0
        self.arrived: list[GradientJob] = []
        self._own_arrived = self._place is AdditionPlace.HOST or problem.devices == 1
        # Transfers of gradients that may be chosen among: those whose time is known, by kind and
        # gradient, with that time and the device; and those that wait for an operation to end.
        self._open: dict[tuple[JobKind, int], list[tuple[int, int]]] = {}
        self._awaiting = [job for job in problem.jobs if job.kind is JobKind.SEND]
        self._added = [0] * len(problem.gradients)
        for step in self.steps:
            step.advance()
        self._follow()

    # Transfers and jobs that can be done.

    def waiting(self) -> list[LinkUse]:
        """Return the transfers that a rule may choose among, possible or not.

        Of jobs that differ in the device only, the one that became possible first stands for all.
        """
        found: list[LinkUse] = [
            DeviceMove(device, move)
            for device, step in enumerate(self.steps)
            for move in step.waiting()
        ]
        awaiting, self._awaiting = self._awaiting, []
        for job in awaiting:
            self._open_up(job)
        found += [GradientJob(*key, queue[0][1]) for key, queue in self._open.items()]
        return found

    def _open_up(self, job: GradientJob) -> None:
        """Let a job be chosen once its time is known."""
        time = self._possible(job)
        if time is None:
            self._awaiting.append(job)
        else:
            heappush(self._open.setdefault((job.kind, job.gradient), []), (time, job.device))

    def _open_next(self, done: GradientJob) -> None:
        """Let jobs be chosen that another one of the same gradient has made possible."""
        following = {JobKind.COLLECT: JobKind.RETURN, JobKind.ADD: JobKind.RETURN}
        if self._place is AdditionPlace.DEVICE:
            following |= {JobKind.SEND: JobKind.FORWARD, JobKind.ADD: JobKind.COLLECT}
        kind = following.get(done.kind)
        if kind is JobKind.FORWARD:
            self._open_up(GradientJob(kind, done.gradient, done.device))
        elif kind is not None:
            for job in self.problem.jobs_of(done.gradient):
                if job.kind is kind:
                    self._open_up(job)

    def possible(self, use: LinkUse) -> int:
        """Return the time from which on a transfer is possible, whoever uses the link."""
        found = self._possible(use)
        assert found is not None
        return found

    def earliest(self, use: LinkUse) -> int | None:
        """Return when a transfer can start; None if that is not known yet."""
        free = self._free[direction(use)]
        if isinstance(use, DeviceMove):
            return self.steps[use.device].earliest(use.move, free)
        possible = self._possible(use)
        return None if possible is None else max(free, possible)

    def _possible(self, use: LinkUse) -> int | None:
        if isinstance(use, DeviceMove):
            return self.steps[use.device].earliest(use.move, 0)
        gradient = self.problem.gradients[use.gradient]
        step = self.steps[use.device]
        if use.kind is JobKind.ADD:
            return self._arrival(use)
        if use.kind is JobKind.SEND:
            ready = step.end_of(gradient.ready)
            return ready if self._place is AdditionPlace.HOST else self._barrier()
        if use.kind is JobKind.FORWARD:
            return self._end_of(GradientJob(JobKind.SEND, use.gradient, use.device))
        if self._added[use.gradient] < self.problem.devices:
            return None
        if use.kind is JobKind.COLLECT:
            return self._weights[use.gradient]
        if self._place is AdditionPlace.DEVICE:
            return self._end_of(GradientJob(JobKind.COLLECT, use.gradient, 0))
        used = step.end_of(gradient.last_use)
        return None if used is None else max(used, self._weights[use.gradient])

    def _end_of(self, job: GradientJob) -> int | None:
        return self.ends[job].end if job in self.ends else None

    def _barrier(self) -> int | None:
        """Return when all devices have ended; None if that is not known yet."""
        last = len(self.problem.step.trace) - 1
        ends = [step.end_of(last) for step in self.steps]
        known = [end for end in ends if end is not None]
        return max(known) if len(known) == len(ends) else None

    # Transfers and jobs that are done.

    def take(self, use: LinkUse, start: int) -> None:
        """Do a transfer, and all that follows from it."""
        if isinstance(use, DeviceMove):
            step = self.steps[use.device]
            end = step.take(use.move, start)
            step.advance()
        else:
            end = start + self.problem.ticks(use)
            self.ends[use] = TimedJob(use, start, end)
            if self._additions is None:
                self._close(use)
        for kind in Kind if not self.problem.step.platform.duplex else (direction(use),):
            self._free[kind] = end
        arriving = JobKind.SEND if self._place is AdditionPlace.HOST else JobKind.FORWARD
        if isinstance(use, GradientJob) and use.kind is arriving and self._additions is None:
            self.arrived.append(GradientJob(JobKind.ADD, use.gradient, use.device))
        self._follow()

    def _close(self, job: GradientJob) -> None:
        """Take a job away that has been chosen, and let follow what it makes possible."""
        key = job.kind, job.gradient
        heappop(self._open[key])
        if not self._open[key]:
            del self._open[key]
        self._open_next(job)

    def _follow(self) -> None:
        """Add in the order of the plan as far as possible; without one, see what has arrived."""
        if self._additions is None:
            if not self._own_arrived and self._barrier() is not None:
                self._own_arrived = True
                count = len(self.problem.gradients)
                self.arrived += [GradientJob(JobKind.ADD, gradient, 0) for gradient in range(count)]
            return
        while self._next_addition < len(self._additions):
            job = self._additions[self._next_addition]
            if self._arrival(job) is None:
                return
            self.add(job)
            self._next_addition += 1

    def _arrival(self, job: GradientJob) -> int | None:
        """Return when a gradient can be added if nobody else is; None if that is not known."""
        if self._place is AdditionPlace.HOST:
            return self._end_of(GradientJob(JobKind.SEND, job.gradient, job.device))
        if job.device == 0:
            return self._barrier()
        return self._end_of(GradientJob(JobKind.FORWARD, job.gradient, job.device))

    def free_for(self, job: GradientJob) -> int | None:
        """Return when the next core and the weights are free for a gradient."""
        arrived = self._arrival(job)
        return (
            None if arrived is None else max(arrived, self._weights[job.gradient], self._cores[0])
        )

    def add(self, job: GradientJob) -> None:
        """Add a gradient that has arrived, as early as possible."""
        start = self.free_for(job)
        assert start is not None
        heappop(self._cores)
        end = start + self.problem.ticks(job)
        heappush(self._cores, end)
        self._weights[job.gradient] = end
        self._added[job.gradient] += 1
        self.ends[job] = TimedJob(job, start, end)
        if self._additions is None:
            self.arrived.remove(job)
            if self._added[job.gradient] == self.problem.devices:
                self._open_next(job)

    def finish(self) -> DevicesSchedule:
        """Return the schedule, or say what is stuck."""
        for device, step in enumerate(self.steps):
            trouble = step.trouble()
            if trouble is not None:
                raise PlanError(f"device {device}: {trouble}")
        missing = next((job for job in self.problem.jobs if job not in self.ends), None)
        if missing is not None:
            raise PlanError(f"{missing} has to wait for something that comes later")
        return DevicesSchedule((step.schedule() for step in self.steps), self.ends.values())
