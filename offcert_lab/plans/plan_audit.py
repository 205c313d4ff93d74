"""`audit`: how good somebody else's plan is, proved, and where it loses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from offcert.certification.ladder import certify
from offcert.certification.other_ways import Decision, beginning, carried_out
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.questions.schedule.schedule import Schedule
from offcert_lab.plans.decisions import decision_of


@dataclass(frozen=True)
class Loss:
    """Time that a plan takes beyond computing everything once."""

    what: str  # ``"again"``: an operation runs again; ``"waits"``: an operation waits for a tensor.
    name: str  # Name of the operation.
    tensor: str | None  # The tensor that is waited for.
    ticks: int  # How long.


@dataclass(frozen=True)
class Audit:
    """The findings about a plan."""

    name: str  # Name of the plan.
    # Why it is no legal execution of the step; if there are any, nothing else is known.
    faults: tuple[str, ...]
    # Ticks; most bytes on the device; most bytes of copies on the host; bytes that leave.
    step: int = 0
    peak: int = 0
    host: int = 0
    moved: int = 0
    again: int = 0  # How many operations run again.
    link_busy: float = 0.0  # Part of the step in which something is transferred.
    fits: bool = False  # Whether the peak is within the problem's limit.
    best: int | None = None  # Ticks of the best plan known within the same peak.
    # Ticks that are proved to be necessary within that peak, whatever moves or runs again.
    bound: int = 0
    losses: tuple[Loss, ...] = ()  # The largest first.

    @property
    def distance(self) -> float:
        """The part of the step that lies above the proved bound: no plan saves more."""
        return float(Fraction(self.step - self.bound, max(1, self.step)))

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        if self.faults:
            return {"name": self.name, "legal": False, "faults": list(self.faults)}
        names = ("step", "peak", "host", "moved", "again", "link_busy", "fits", "best")
        return {
            "name": self.name,
            "legal": True,
            **{name: getattr(self, name) for name in names},
            "proved_bound": self.bound,
            "proved_distance": self.distance,
            "losses": [
                {"what": e.what, "operation": e.name, "tensor": e.tensor, "ticks": e.ticks}
                for e in self.losses
            ],
        }


def audit(problem: Problem, document: Mapping[str, Any], *, time_limit: float = 20.0) -> Audit:
    """Return time, peak and proved losses of somebody else's plan on a captured step.

    The plan becomes an execution and a schedule of it: tensors leave after their last use in the
    forward pass, beside the operations unless the plan waits for them, and return when they are
    asked for. Both pass the checkers that certificates pass.

    Parameters
    ----------
    problem : Problem
        That says what is computed from what; its own choices of what may run again do not matter.
    document : mapping
        As `offcert_lab.plans.decisions.decision_of` reads it.
    time_limit : float
        Seconds to prove a bound within the plan's own peak, and to look for a better plan.

    Raises
    ------
    InputError
        If the document is no plan, or the problem is a trace.
    """
    network = problem.computed
    if network is None:
        raise InputError(f"{problem.name} does not say what is computed from what")
    decision = decision_of(network, document)
    return audited(problem, decision, time_limit)


def audited(problem: Problem, decision: Decision, time_limit: float) -> Audit:
    """Return time, peak and proved losses of a decision; see `audit`."""
    done = carried_out(problem, decision)
    if done.faults:
        return Audit(decision.name, done.faults)
    executed, execution, schedule = done.executed, decision.execution, done.schedule
    sizes = [executed.trace.gap_size(t.gap) for t in schedule.transfers if t.kind is Kind.OFFLOAD]
    # What is best possible is asked of everything that may be done: time within the plan's peak.
    limited = replace(
        done.problem,
        recompute=Recompute.ANY,
        offload=True,
        minimise=Minimise.TIME,
        deadline=None,
        transfers=Transfers.ATOMIC,
        uncertainty=None,
    ).with_memory(done.peak)
    result = certify(
        limited, time_limit=time_limit, known=beginning(limited, execution, schedule)
    ).result
    found = [value for value in (result.objective, schedule.makespan) if value is not None]
    return Audit(
        name=decision.name,
        faults=(),
        step=schedule.makespan,
        peak=done.peak,
        host=done.host,
        moved=sum(sizes),
        again=execution.repeated,
        link_busy=_busy(schedule) / max(1, schedule.makespan),
        fits=done.peak <= problem.platform.memory,
        best=min(found),
        bound=result.proved_bound,
        losses=tuple(_losses(executed, execution, schedule)),
    )


def _busy(schedule: Schedule) -> int:
    """Return the ticks in which something is transferred, whichever way."""
    busy = last = 0
    for transfer in schedule.transfers:
        busy += max(0, transfer.end - max(last, transfer.start))
        last = max(last, transfer.end)
    return busy


def _losses(problem: Problem, execution: Execution, schedule: Schedule) -> list[Loss]:
    trace = problem.trace
    found, seen, free = [], set(), 0
    returns = {t.gap: t for t in schedule.transfers if t.kind is Kind.PREFETCH}
    leaving = {t.end: t for t in schedule.transfers if t.kind is Kind.OFFLOAD}
    for index, run in enumerate(execution.runs):
        name = trace.operations[index].name
        if run in seen:
            found.append(Loss("again", name, None, trace.durations[index]))
        seen.add(run)
        start = schedule.starts[index]
        if start > free:
            late = [returns[g] for g in trace.gaps_leaving[index] if g in returns]
            waited = max(late, key=lambda t: t.end, default=leaving.get(start))
            tensor = None if waited is None else trace.tensors[trace.gaps[waited.gap].tensor].name
            found.append(Loss("waits", name, tensor, start - free))
        free = schedule.ends[index]
    return sorted((loss for loss in found if loss.ticks), key=lambda loss: -loss.ticks)
