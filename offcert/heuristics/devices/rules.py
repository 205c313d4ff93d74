"""Rules for who uses the link next, and what is added next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from offcert.core.devices.plan import DeviceMove, LinkUse
from offcert.core.devices.problem import DevicesProblem, Job, JobKind, Place
from offcert.core.devices.simulate import Priority

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
    """Return how long the jobs that follow one of the same gradient take at least."""
    steps = [JobKind.SEND, JobKind.FORWARD, JobKind.ADD, JobKind.COLLECT, JobKind.RETURN]
    jobs = {job.kind: job for job in problem.jobs_of(gradient)}
    later = [jobs[step] for step in steps[steps.index(kind) + 1 :] if step in jobs]
    return sum(
        problem.ticks(job) * (problem.devices if job.kind is JobKind.RETURN else 1) for job in later
    )


def _after_operations(problem: DevicesProblem) -> Sequence[int]:
    """Return, for each operation, what has to follow its start at least."""
    durations = problem.step.trace.durations
    rest = list(accumulate(reversed(durations), initial=0))[::-1]
    found = list(rest[:-1])
    if problem.accumulation.place is Place.HOST and problem.devices > 1:
        following = [0] * len(durations)
        for index, gradient in enumerate(problem.gradients):
            tail = problem.ticks(Job(JobKind.SEND, index, 0))
            tail += _after_job(problem, JobKind.SEND, index)
            following[gradient.ready] = max(following[gradient.ready], tail)
        tail = 0
        for operation in reversed(range(len(durations))):
            tail = durations[operation] + max(tail, following[operation])
            found[operation] = max(found[operation], tail)
    return found
