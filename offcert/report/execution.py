"""Texts about the operations of an execution that run again, and their cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from offcert.core.execution import Execution
from offcert.core.messages import cut
from offcert.core.units import Units, format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute


@dataclass(frozen=True)
class Reruns:
    """The operations of an execution that run a computation again."""

    execution: Execution  # The execution.
    compute_time: int  # Ticks if everything runs once.

    @cached_property
    def operations(self) -> tuple[int, ...]:
        """Indices of the operations whose computation has run before."""
        seen: set[int] = set()
        found = []
        for index, computation in enumerate(self.execution.runs):
            if computation in seen:
                found.append(index)
            seen.add(computation)
        return tuple(found)

    @property
    def computations(self) -> int:
        """How many computations run more than once."""
        return len({self.execution.runs[index] for index in self.operations})

    @property
    def most_runs(self) -> int:
        """How often the computation runs that runs most often."""
        runs = self.execution.runs
        return max((runs.count(runs[index]) for index in self.operations), default=1)

    @property
    def ticks(self) -> int:
        """Ticks of all operations that run again."""
        durations = self.execution.trace.durations
        return sum(durations[index] for index in self.operations)

    def said(self, units: Units) -> str:
        """Return in words how much runs again, and what that costs."""
        count = len(self.operations)
        if not count:
            return "nothing"
        part = f"{100 * self.ticks / max(1, self.compute_time):.3g} % of the compute time"
        often = f", up to {self.most_runs} times" if self.most_runs > 2 else ""
        operations = "operation" if count == 1 else "operations"
        return f"{count} {operations} again{often}: {format_time(self.ticks, units)}, {part}"

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON values; times in ticks."""
        return {
            "operations": len(self.execution.runs),
            "again": len(self.operations),
            "computations_again": self.computations,
            "most_runs": self.most_runs,
            "recomputed_ticks": self.ticks,
        }


def reruns_of(certificate: Certificate) -> Reruns | None:
    """Return the runs again in a certificate; None if its problem lets nothing run again."""
    execution = certificate.result.execution
    if execution is None:
        return None
    return Reruns(execution, certificate.problem.trace.compute_time)


def choices_summary(problem: Problem) -> dict[str, Any]:
    """Return as JSON values what a problem leaves open beside its transfers, if it does."""
    found: dict[str, Any] = {}
    network = problem.computed
    if network is not None and problem.recompute is not Recompute.NONE:
        found["recompute"] = str(problem.recompute)
        found["repeatable"] = sum(each.repeatable for each in network.computations)
    if not problem.offload:
        found["offload"] = False
    if problem.minimise == "memory":
        found["minimise"] = "memory"
        found["deadline"] = problem.deadline
    return found


def choices_facts(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield the choices that a problem leaves open beside its transfers, each with its name."""
    found = choices_summary(problem)
    if "recompute" in found or "offload" in found:
        yield "may be done", problem.means
    if "repeatable" in found and problem.computed is not None:
        yield "may run again", f"{found['repeatable']} of {len(problem.computed)} computations"
    if "minimise" in found:
        yield "wanted", problem.objective_summary


def within(certificate: Certificate) -> str:
    """Return within what a certificate's schedule is to be: a memory limit, or a deadline."""
    problem = certificate.problem
    if problem.minimise == "memory":
        return problem.objective_summary
    return format_size(problem.platform.memory, problem.units)


def times_said(problem: Problem) -> str | None:
    """Return whose times a problem has, and which part of its peaks a model reaches, if known."""
    source = problem.source or {}
    name = source.get("hardware")
    if not isinstance(name, str):
        return None
    if source.get("measured"):
        return f"measured on {cut(name)}"
    reached = source.get("efficiency")
    rows = reached.items() if isinstance(reached, dict) else ()
    parts = [f"{cut(kind)} {cut(str(part))}" for kind, part in rows]
    said = f"; of its peaks are reached: {', '.join(parts)}" if parts else " at its peak rates"
    if "sustained" in source:
        said += f"; in training {cut(str(source['sustained']))} of that, but for traffic"
    by = f"; attention by {cut(str(source['attention']))}" if "attention" in source else ""
    return f"roofline of {cut(name)}{said}{by}"


def times_lines(problem: Problem, width: int = 13) -> list[str]:
    """Return `times_said` as a line whose label has so many letters, if there is a sentence."""
    said = times_said(problem)
    return [] if said is None else [f"  {'times':<{width}}{said}"]
