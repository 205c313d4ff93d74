"""`Certificate`: a problem, the best schedule known, the bounds on it, and their origin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcert.core.documents import Fields
from offcert.core.forms import TEXT, Integer, Object, OrNull, Record, member
from offcert.core.messages import cut
from offcert.core.network_json import EXECUTION
from offcert.core.notebook import html
from offcert.core.result import Bound, Bounded, Infeasibility, SolveStatus
from offcert.core.units import format_size
from offcert.proofs.any_certificate import BOUNDS, AnyCertificate, exact_gap
from offcert.proofs.any_certificate import current_versions as current_versions
from offcert.proofs.placement_certificate import PlacementCertificate
from offcert.proofs.questions import SCHEDULE
from offcert.proofs.schedule_json import schedule_from_json, schedule_to_json
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.questions.schedule.result import Result

_INFEASIBILITY = OrNull(
    Object(
        Record(
            Infeasibility,
            operation=Integer(-1),
            name=TEXT,
            needed=Integer(0),
            lacking=Integer(1),
        )
    ),
    dict,
)


@dataclass(frozen=True)
class Robust(Bounded):
    """Whatever the times in the problem's box are, the plan takes no longer, and none is shorter.

    Attributes
    ----------
    longest : int
        Ticks of the certificate's plan, in its fixed order, at the slowest corner.
    bounds : tuple of Bound
        Proved lower bounds on the problem at the fastest corner.
    """

    longest: int
    bounds: tuple[Bound, ...]

    @property
    def objective(self) -> int:
        """The ticks at the slowest corner: `gap` is about the longest time and the shortest."""
        return self.longest

    def to_json(self) -> dict[str, Any]:
        """Return the claim as a JSON value."""
        return {
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "gap": exact_gap(self.objective, self.lower_bound),
            "bounds": BOUNDS.write(self.bounds),
        }


def robust_from_fields(document: Fields) -> Robust | None:
    """Return the claims in a certificate's field ``robust``, or None without that field."""
    if not document.has("robust"):
        return None
    fields = Fields(document.get("robust", dict), document.path("robust"))
    found = Robust(fields.integer("objective", 0), BOUNDS.read(fields, "bounds"))
    # What these say is derived; `verify` compares it with what it ought to be.
    fields.integer("lower_bound")
    fields.get("gap", str)
    fields.finish()
    return found


@dataclass(frozen=True, repr=False)
class Certificate(AnyCertificate[Problem]):
    """A claim about a problem, and the evidence for it.

    Attributes
    ----------
    problem : Problem
        Embedded whole.
    result : Result
        Status, schedule and bounds.
    placement : PlacementCertificate or None
        An address for every residence of the schedule's tensors and workspaces, if some were
        found, and bounds on the pool.
    robust : Robust or None
        The claim about the whole box of the problem's uncertain times, if it has one.
    """

    question = SCHEDULE

    result: Result
    placement: PlacementCertificate | None = None
    robust: Robust | None = None

    @property
    def executed(self) -> Problem:
        """The problem of which the schedule is one: without choices of what runs again.

        For a problem that has none of these it is the problem itself.
        """
        execution = self.result.execution
        problem = self.problem if execution is None else self.problem.executed(execution)
        limit = self.result.memory
        return problem if limit is None else problem.with_memory(limit)

    @property
    def pool(self) -> PlacementCertificate | None:
        """The addresses of what the schedule uses, if they are known."""
        return self.placement

    def summary(self) -> str:
        """Return status, value, bound and gap in a line for people."""
        return self.result.summary(self.problem.units)

    def __repr__(self) -> str:
        memory = format_size(self.problem.platform.memory, self.problem.units)
        return f"<Certificate {cut(self.problem.name)} at {memory}: {self.summary()}>"

    def _repr_html_(self) -> str:
        return html(self)

    def _write_answer(self) -> dict[str, Any]:
        result = self.result
        answer: dict[str, Any] = {
            "schedule": None
            if result.schedule is None
            else schedule_to_json(result.schedule, self.executed.trace),
            "infeasibility": _INFEASIBILITY.write(result.infeasibility),
        }
        if result.execution is not None:
            answer["execution"] = EXECUTION.write(result.execution)
        if self.placement is not None:
            answer["placement"] = self.placement.part_to_json()
        if self.robust is not None:
            answer["robust"] = self.robust.to_json()
        return answer

    @classmethod
    def _read_answer(cls, fields: Fields, problem: Problem) -> dict[str, Any]:
        schedule = fields.optional("schedule", (dict, type(None)))
        execution = placement = memory = None
        if fields.has("execution"):
            execution = EXECUTION.read_in(fields, "execution")
        trace = problem.trace if execution is None else problem.executed(execution).trace
        if fields.get("objective", (int, type(None))) is not None:
            objective = fields.integer("objective", 0)
            memory = objective if problem.minimise is Minimise.MEMORY else None
        result = Result(
            status=member(SolveStatus, fields.get("status", str), "status"),
            schedule=None if schedule is None else schedule_from_json(schedule, trace),
            bounds=BOUNDS.read(fields, "bounds"),
            infeasibility=_INFEASIBILITY.read(fields, "infeasibility"),
            execution=execution,
            memory=memory,
            minimise=problem.minimise,
        )
        if fields.has("placement"):
            part = fields.get("placement", dict)
            placement = PlacementCertificate.part_from_json(part, problem.name)
        return {"result": result, "placement": placement, "robust": robust_from_fields(fields)}


def read_certificate(path: str | Path) -> Certificate:
    """Return the certificate of a schedule in a file, not verified; see `Certificate.read`."""
    return Certificate.read(path)


certificate_from_json = Certificate.from_json
