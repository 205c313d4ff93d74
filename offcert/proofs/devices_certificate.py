"""`DevicesCertificate`: a problem on several devices, its best schedule, and the bounds on it.

The registry of these bounds is here, too, and the proof that some work on a resource is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from offcert.core.documents import Fields, naming, parse_rational, rational_text, show
from offcert.core.errors import InputError
from offcert.core.forms import Form, Integer, Member, Object, OrNull, formed, member
from offcert.core.later import Later
from offcert.core.result import BOUND, Bound, Bounded, SolveStatus
from offcert.core.units import format_time
from offcert.proofs.any_certificate import BOUNDS, AnyCertificate
from offcert.proofs.kinds.computed import Computed
from offcert.proofs.proof import Claimable, Proof, Provable
from offcert.proofs.questions import DEVICES
from offcert.proofs.schedule_json import schedule_from_json, schedule_to_json
from offcert.questions.devices.problem import DevicesProblem, GradientJob, JobKind
from offcert.questions.devices.schedule import DevicesSchedule, TimedJob
from offcert.questions.schedule.schedule import Schedule

if TYPE_CHECKING:
    import offcert.verification.devices_bounds

# How bounds for several devices are called in certificates.
DEVICE, RESOURCE, MODEL = "devices-alone", "devices-resource", "devices-cpsat"


_ALONE = OrNull(Object(BOUND), dict)


class Resource(StrEnum):
    """A resource that does one thing at a time (the host: one a core).

    ``LINK``: both directions of a simplex link. ``OUT``, ``BACK``: a direction of a duplex link.
    ``ADDER``: who adds gradients up.
    """

    LINK = "link"
    OUT = "out"
    BACK = "back"
    ADDER = "adder"


class _Jobs(Form):
    rule = "an object: for each kind of job a list of integers of at least 0, all different"

    def read(self, fields: Fields, name: str) -> Mapping[JobKind, tuple[int, ...]]:
        jobs: dict[JobKind, tuple[int, ...]] = {}
        given, place = fields.get(name, dict), fields.path(name)
        for kind in given:
            if kind not in tuple(JobKind):
                raise InputError(f"{place} names {show(kind)}, which is no kind of job")
            which = Fields(given, place).integers(kind, 0)
            if len(set(which)) < len(which):
                raise InputError(f"{place}.{kind} repeats a gradient")
            jobs[JobKind(kind)] = which
        return jobs

    def write(self, value: Mapping[JobKind, tuple[int, ...]]) -> dict[str, Any]:
        return {str(kind): list(which) for kind, which in value.items()}


class _Multipliers(Form):
    rule = "a list of pairs: an operation, each once, and a rational"

    def read(self, fields: Fields, name: str) -> Mapping[int, Fraction]:
        found: dict[int, Fraction] = {}
        place = fields.path(name)
        for row in fields.get(name, list):
            if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], str):
                raise InputError(f"{place} must hold pairs, not {show(row)}")
            if type(row[0]) is not int or row[0] in found or row[0] < 0:
                raise InputError(f"{place} must name operations, each once, not {show(row[0])}")
            found[row[0]] = parse_rational(row[1], place)
        return found

    def write(self, value: Mapping[int, Fraction]) -> list[list[Any]]:
        return [[operation, rational_text(each)] for operation, each in sorted(value.items())]


@dataclass(frozen=True)
class ResourceProof(Proof):
    """A proof that some work on one resource takes so long, from its head to its tail.

    Attributes
    ----------
    resource : Resource
        The resource.
    jobs : mapping
        For each kind of job that counts, the gradients whose jobs do.
    multipliers : mapping of int to Fraction
        For operations, how much a byte that must be absent meanwhile counts: any numbers that are
        not negative prove something. Empty: activations are not counted.
    after : int or None
        An operation: count the prefetches of what must be absent while it runs, all after it.
        At most one of this and the multipliers.
    """

    resource: Resource = formed(Member(Resource))
    jobs: Mapping[JobKind, tuple[int, ...]] = formed(_Jobs())
    multipliers: Mapping[int, Fraction] = formed(_Multipliers())
    after: int | None = formed(OrNull(Integer(0), int), None)


_PROOFS = (
    Provable(
        DEVICE,
        Computed,
        Later(lambda: offcert.verification.devices_bounds.alone),
        "the step of one device that has the link to itself",
        "several-gpus",
    ),
    Provable(
        RESOURCE,
        ResourceProof,
        Later(lambda: offcert.verification.devices_bounds.resource),
        "work on one resource, from its head to its tail",
        "several-gpus",
    ),
)

DEVICES_PROOFS: dict[str, Provable] = {kind.method: kind for kind in _PROOFS}
DEVICES_CLAIMS: dict[str, Claimable] = {
    MODEL: Claimable(MODEL, ("CP-SAT",), "the least step of all devices", "several-gpus")
}


@dataclass(frozen=True, repr=False)
class DevicesCertificate(AnyCertificate[DevicesProblem], Bounded):
    """A claim about a problem on several devices, and the evidence for it.

    Attributes
    ----------
    problem : DevicesProblem
        Embedded whole.
    schedule : DevicesSchedule or None
        The best one found; None if one device's step does not fit into its memory.
    bounds : tuple of Bound
        Lower bounds on the makespan.
    alone : Bound or None
        A proved bound for the step of one device with the link to itself, which the others rest
        on.
    found_by : str
        The method that found the schedule, in words.
    """

    question = DEVICES

    schedule: DevicesSchedule | None
    bounds: tuple[Bound, ...]
    alone: Bound | None = None
    found_by: str = ""
    method: str = field(default=DEVICES.command, kw_only=True)

    @property
    def objective(self) -> int | None:
        """Makespan of the schedule in ticks."""
        return None if self.schedule is None else self.schedule.makespan

    @property
    def status(self) -> SolveStatus:
        """``OPTIMAL`` only if the makespan equals the best bound."""
        short = self.problem.step.trace.least_memory > self.problem.step.platform.memory
        return self.status_by(infeasible=short and self.schedule is None)

    def summary(self) -> str:
        """Return status, makespan, bound and gap in a line for people."""
        units = self.problem.step.units
        bound = format_time(self.lower_bound, units)
        if self.objective is None:
            return f"{self.status}: no schedule, lower bound {bound}"
        made = format_time(self.objective, units)
        return f"{self.status}: {made}, lower bound {bound}, gap {100 * self.gap:.3g} %"

    def _write_answer(self) -> dict[str, Any]:
        return {
            "alone": _ALONE.write(self.alone),
            "schedule": None if self.schedule is None else self._schedule_to_json(self.schedule),
            "found_by": self.found_by,
        }

    @classmethod
    def _read_answer(cls, fields: Fields, problem: DevicesProblem) -> dict[str, Any]:
        member(SolveStatus, fields.get("status", str), "status")
        schedule = fields.optional("schedule", (dict, type(None)))
        return {
            "schedule": None if schedule is None else _schedule_from_json(schedule, problem),
            "bounds": BOUNDS.read(fields, "bounds"),
            "alone": _ALONE.read(fields, "alone"),
            "found_by": fields.get("found_by", str),
        }

    def _schedule_to_json(self, schedule: DevicesSchedule) -> dict[str, Any]:
        trace = self.problem.step.trace
        return {
            "steps": [schedule_to_json(step, trace) for step in schedule.steps],
            "jobs": [
                {
                    "kind": str(each.job.kind),
                    "gradient": each.job.gradient,
                    "device": each.job.device,
                    "start": each.start,
                    "end": each.end,
                }
                for each in schedule.jobs
            ],
        }


def _schedule_from_json(value: Any, problem: DevicesProblem) -> DevicesSchedule:
    fields = Fields(value, "schedule")
    steps = []
    for index, step in enumerate(fields.get("steps", list)):
        with naming(f"schedule.steps[{index}]"):
            found = schedule_from_json(step, problem.step.trace)
        if not isinstance(found, Schedule):
            raise InputError(f"schedule.steps[{index}] has pieces, and transfers are atomic")
        steps.append(found)
    if not steps:
        raise InputError("schedule.steps must not be empty")
    jobs = []
    for item in fields.each("jobs"):
        kind = member(JobKind, item.get("kind", str), item.path("kind"))
        job = GradientJob(kind, item.integer("gradient", 0), item.integer("device", 0))
        jobs.append(TimedJob(job, item.integer("start"), item.integer("end")))
        item.finish()
    fields.finish()
    return DevicesSchedule(steps, jobs)
