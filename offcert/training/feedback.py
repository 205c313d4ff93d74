"""Feedback while training: one line a plan, and what the first step by it measured."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import nn

from offcert.core.result import relative_gap
from offcert.core.units import Units, format_gap, format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.runtime.follow.accounts import LOG, say
from offcert.runtime.follow.follower import Follower
from offcert.runtime.follow.kinds import foreign_kernels
from offcert.runtime.follow.offload import Offload
from offcert.runtime.plan.reports import listed
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.hooks import unwrap
from offcert.runtime.watch.sharded import Parts
from offcert.training.search import Order

_BYTES = Units("ns", "B")


def tell_of_study(problem: Problem) -> None:
    """Say how large a step is that was captured."""
    trace = problem.plain().trace
    leaves = sum(each.size for each in trace.tensors if each.evictable)
    peak = _size(trace.peak_memory)
    say(f"recorded {problem.name}: {len(trace)} operations, peak {peak}, {_size(leaves)} may leave")


def tell_of_search(order: Order, makeshift: StepPlan | None) -> None:
    """Say that a plan is searched for, and which makeshift is followed meanwhile, if any."""
    meanwhile = "the training waits"
    if makeshift is not None:
        meanwhile = f"until then {said_of_moves(makeshift)}"
    limit = _size(order.problem.platform.memory)
    say(
        f"searching for a plan for {order.problem.name} within {limit}, for {order.seconds:g} s at "
        f"most; {meanwhile}"
    )


def tell_of_makeshift(problem: Problem, why: str) -> None:
    """Say that the plan without a certificate is followed on, and why."""
    say(f"no certified plan for {problem.name} yet: {why}; the one without a certificate is kept")


def tell_of_end(certificate: Certificate) -> None:
    """Say that a search has ended, and that what it had found before is followed on."""
    result = certificate.result
    assert result.objective is not None
    gap = format_gap(relative_gap(result.objective, result.proved_bound))
    say(
        f"the search for {certificate.problem.name} has ended after {result.runtime:.1f} s: the "
        f"plan is kept, time proved within {gap}"
    )


def said_of_moves(plan: StepPlan) -> str:
    """Return in words how many bytes leave in a step by a plan, and what runs again."""
    sizes = [plan.trace.tensors[each].size for row in plan.prediction.releases for each in row]
    again = listed([str(each) for each in plan.segments.segments])
    return f"{_size(sum(sizes))} leave in a step, {again} runs again"


def plan_numbers(certificate: Certificate, plan: StepPlan) -> dict[str, float]:
    """Return the numbers that a plan promises: bytes, slowdown, and the gap that is proved."""
    problem, result = certificate.problem, certificate.result
    assert result.schedule is not None
    assert result.objective is not None
    return {
        "peak": plan.prediction.peak,
        "peak_without": problem.trace.peak_memory,
        "slowdown": result.schedule.makespan / max(1, problem.trace.compute_time),
        "proved_within": relative_gap(result.objective, result.proved_bound),
        "host": plan.host.pool,
        "search_seconds": result.runtime,
    }


def said_of_plan(
    certificate: Certificate, plan: StepPlan, *, streams: bool, folder: Path | None = None
) -> str:
    """Return in a line what a plan promises; `folder`: where it was found, if not searched for."""
    of = plan_numbers(certificate, plan)
    before, after, host = (_size(int(of[name])) for name in ("peak_without", "peak", "host"))
    schedule = certificate.result.schedule
    assert schedule is not None
    step = format_time(schedule.makespan, certificate.problem.units)
    what = "time" if certificate.problem.minimise is Minimise.TIME else "memory"
    parts = [
        f"peak {before} → {after}",
        f"predicted {of['slowdown']:.2f} × ({step} a step)",
        f"{what} proved within {format_gap(of['proved_within'])}",
        said_of_moves(plan),
        f"host {host}",
        f"found in {of['search_seconds']:.1f} s" if folder is None else f"found in {folder}",
    ]
    text = f"plan for {certificate.problem.name}: {', '.join(parts)}"
    if streams:
        return text
    return f"{text}; on the CPU copies are synchronous, and a step takes longer than predicted"


def tell_of_plans(
    follower: Follower, plans: Iterable[tuple[Any, StepPlan]], folder: Path | None = None
) -> None:
    """Say a line for every plan that is a certificate, and keep its numbers as promises."""
    for certificate, plan in plans:
        if isinstance(certificate, Certificate) and certificate.result.schedule is not None:
            streams = follower.device is not None
            say(said_of_plan(certificate, plan, streams=streams, folder=folder))
            follower.accounts.promise(plan, plan_numbers(certificate, plan))


def tell_of_kernels(plan: StepPlan, model: nn.Module) -> None:
    """Say before the first step that a plan is for other kernels than there are here."""
    said = foreign_kernels(plan, Parts(unwrap(model)).device)
    if said is not None:
        say(f"{said}: if a step cannot follow its plan for that, none is followed any more")


def tell_of_waiting(problem: Problem) -> None:
    """Log that training waits for a search, since no plan for a step is there at once."""
    LOG.warning(
        "%s: no plan that only moves tensors keeps to the limits, so there is no quick plan: the "
        "training waits for a plan in which modules run again, and the step in which it begins may "
        "take more memory than the limit; with example= all that happens before the first step",
        problem.name,
    )


# Bytes in a MiB. By definition.
_MIB = 2**20
# Numbers that a plan promises: the names that loggers are told, and what they are divided by.
_LOGGED = {
    "peak": ("peak_MiB", _MIB),
    "peak_without": ("peak_without_plan_MiB", _MIB),
    "host": ("host_MiB", _MIB),
    "slowdown": ("step_by_computing_ratio", 1),
    "proved_within": ("from_best_possible_percent", 0.01),
    "search_seconds": ("search_seconds", 1),
}


def logged(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers that a plan promises as metrics, whose names end in their units."""
    found = {}
    for name, value in numbers.items():
        said, unit = _LOGGED[name]
        found[f"offload/{said}"] = value / unit
    return found


def tell_of_planning(what: str, seconds: float) -> None:
    """Say that a plan is made before the first step, and how long that may take."""
    say(
        f"a plan for {what} is made before the first step: the step is captured, then a plan is "
        f"searched for, for {seconds:g} s at most"
    )


def said_at_begin(offload: Offload) -> str:
    """Return a line about a training that begins under plans, or before any is there."""
    if not offload.promises:
        return "training begins; a plan is made in its first steps"
    return f"training begins: {_promised(offload)}"


def _promised(offload: Offload) -> str:
    """Return in words the promises of the plan that takes most of the device."""
    most = max(offload.promises, key=lambda numbers: numbers["peak"])
    parts = [
        f"activations take {_size(most['peak'])} of the device instead of "
        f"{_size(most['peak_without'])}",
        f"a step is predicted to take {most['slowdown']:.2f} times its computing",
        "no plan is faster"
        + (f" by more than {100 * most['proved_within']:.2g} %" if most["proved_within"] else ""),
    ]
    if most["host"]:
        parts.append(f"copies take {_size(most['host'])} of the host")
    return ", ".join(parts)


def said_at_end(offload: Offload) -> str:
    """Return a line about a training that has ended: steps, memory, bytes that were moved."""
    total, planned = sum(offload.steps.values()), offload.steps["planned"]
    if not total:
        return "training ended without a step under a plan"
    others = ", ".join(f"{n} {kind}" for kind, n in offload.steps.items() if kind != "planned")
    text = f"training ended: {planned} of {total} steps followed a plan"
    text += f" (the others: {others})" if others else ""
    report = offload.report
    if report.prediction is not None:
        text += f"; in the last one {_size(report.offloaded_bytes)} left the device and came back"
    return f"{text}; {_promised(offload)}" if offload.promises else text


def _size(size: float) -> str:
    return format_size(round(size), _BYTES)


class Announced:
    """The part that callbacks of trainers share: a plan is attached, and what it promises is said.

    Attributes
    ----------
    offload : Offload or None
        The plan of the latest training; None before the first.
    """

    def __init__(self) -> None:
        self.offload: Offload | None = None
        # Those of a training whose code is compiled.
        self._other_steps = Counter[str]()
        self._open = ExitStack()
        self._told = 0

    def attach(self, made: Offload) -> None:
        """Attach a plan."""
        self.offload, self._told = made, 0
        self._open.enter_context(made)
        say(said_at_begin(made))

    def news(self) -> list[dict[str, float]]:
        """Return metrics of plans that are new."""
        promises = [] if self.offload is None else self.offload.promises
        new, self._told = promises[self._told :], len(promises)
        return [logged(numbers) for numbers in new]

    @property
    def steps(self) -> Counter[str]:
        """The number of steps of each kind."""
        return self._other_steps if self.offload is None else self.offload.steps

    def end(self) -> dict[str, float]:
        """Detach the plan, say in a line how the steps went, and return their numbers."""
        self.detach()
        if self.offload is not None:
            say(said_at_end(self.offload))
        return {f"offload/steps_{kind}": count for kind, count in self.steps.items()}

    def detach(self) -> None:
        """Detach the plan, if it is attached."""
        # After an error nobody wants to hear that nothing was moved.
        self._open.__exit__(*sys.exc_info())
