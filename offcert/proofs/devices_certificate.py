"""`DevicesCertificate`: a problem on several devices, its best schedule, and the bounds on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offcert.core.devices.files import devices_digest, devices_from_json, devices_to_json
from offcert.core.devices.problem import DevicesProblem, Job, JobKind
from offcert.core.devices.schedule import DevicesSchedule, TimedJob
from offcert.core.documents import (
    Fields,
    canonical_digest,
    read_document,
    require_format,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.result import Bound, SolveStatus, relative_gap
from offcert.core.schedule import Schedule
from offcert.core.units import format_time
from offcert.proofs.bounds_json import bound_from_json, bounds_to_json, exact_gap, member
from offcert.proofs.schedule_json import schedule_from_json, schedule_to_json
from offcert.proofs.settings import Notes, Settings
from offcert.proofs.settings import from_json as settings_from_json
from offcert.proofs.settings import to_json as settings_to_json

DEVICES_CERTIFICATE_FORMAT = "offcert-devices-certificate"
DEVICES_CERTIFICATE_VERSION = 2

# How to make version 2 of version 1.
_CONVERSION = 'version 1 lacks "method" and "settings": certify its problem again'


@dataclass(frozen=True)
class DevicesCertificate:
    """What is claimed about a problem on several devices, and the evidence for it.

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
        What found the schedule, in words.
    method : str
        ``"devices"``, or the name of the single rule that was followed.
    settings : Settings
        What the search was asked.
    notes : Notes
        What it remarked beside the result.
    versions : mapping
        Of this program and of what it computed with.
    """

    problem: DevicesProblem
    schedule: DevicesSchedule | None
    bounds: tuple[Bound, ...]
    alone: Bound | None = None
    found_by: str = ""
    method: str = "devices"
    settings: Settings = field(default_factory=Settings)
    notes: Notes = field(default_factory=Notes)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def objective(self) -> int | None:
        """Makespan of the schedule in ticks."""
        return None if self.schedule is None else self.schedule.makespan

    @property
    def lower_bound(self) -> int:
        """The best lower bound, in ticks."""
        return max((bound.value for bound in self.bounds), default=0)

    @property
    def gap(self) -> float:
        """``(objective - lower bound) / objective``; infinite without a schedule."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def status(self) -> SolveStatus:
        """``OPTIMAL`` only if the makespan equals the best bound."""
        if self.schedule is None:
            short = self.problem.step.trace.least_memory > self.problem.step.platform.memory
            return SolveStatus.INFEASIBLE if short else SolveStatus.UNKNOWN
        optimal = self.objective == self.lower_bound
        return SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE

    def __repr__(self) -> str:
        return f"<DevicesCertificate {cut(self.problem.name)}: {self.summary()}>"

    def summary(self) -> str:
        """Return status, makespan, bound and gap in a line for people."""
        units = self.problem.step.units
        bound = format_time(self.lower_bound, units)
        if self.objective is None:
            return f"{self.status}: no schedule, lower bound {bound}"
        made = format_time(self.objective, units)
        return f"{self.status}: {made}, lower bound {bound}, gap {100 * self.gap:.3g} %"

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as a JSON value (``offcert-devices-certificate``, version 2)."""
        document: dict[str, Any] = {
            "format": DEVICES_CERTIFICATE_FORMAT,
            "version": DEVICES_CERTIFICATE_VERSION,
            "problem": devices_to_json(self.problem),
            "problem_sha256": devices_digest(self.problem),
            "status": str(self.status),
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "gap": exact_gap(self.objective, self.lower_bound),
            "alone": None if self.alone is None else bounds_to_json([self.alone])[0],
            "bounds": bounds_to_json(self.bounds),
            "schedule": None if self.schedule is None else self._schedule_to_json(self.schedule),
            "found_by": self.found_by,
            "method": self.method,
            "settings": settings_to_json(self.settings, self.notes),
            "versions": dict(self.versions),
        }
        document["digest"] = canonical_digest(document)
        return document

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

    def write(self, path: str | Path) -> None:
        """Write the certificate to a file, through a temporary one."""
        write_json(path, self.to_json())


def read_devices_certificate(path: str | Path) -> DevicesCertificate:
    """Return the certificate in a file, without verifying what it claims.

    Raises
    ------
    InputError
        If the file cannot be read or is no certificate for several devices.
    """
    return read_document(path, devices_certificate_from_json)


def devices_certificate_from_json(document: Any) -> DevicesCertificate:
    """Return the certificate that a JSON value describes, without verifying what it claims.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(document)
    require_format(fields, DEVICES_CERTIFICATE_FORMAT, DEVICES_CERTIFICATE_VERSION, _CONVERSION)
    problem = devices_from_json(fields.get("problem", dict), "problem")
    alone = fields.optional("alone", (dict, type(None)))
    schedule = fields.optional("schedule", (dict, type(None)))
    settings, notes = settings_from_json(fields.get("settings", dict), "settings")
    certificate = DevicesCertificate(
        problem,
        None if schedule is None else _schedule_from_json(schedule, problem),
        tuple(bound_from_json(item) for item in fields.each("bounds")),
        None if alone is None else bound_from_json(Fields(alone, "alone")),
        fields.get("found_by", str),
        fields.get("method", str),
        settings,
        notes,
        fields.get("versions", dict),
    )
    # What these say is derived; `verify` compares it with what it ought to be.
    for name, kind in (
        ("problem_sha256", str),
        ("status", str),
        ("gap", (str, type(None))),
        ("objective", (int, type(None))),
        ("digest", str),
    ):
        fields.get(name, kind)
    member(SolveStatus, fields.get("status", str), "status")
    fields.integer("lower_bound")
    fields.finish()
    return certificate


def _schedule_from_json(value: Any, problem: DevicesProblem) -> DevicesSchedule:
    fields = Fields(value, "schedule")
    steps = []
    for index, step in enumerate(fields.get("steps", list)):
        try:
            found = schedule_from_json(step, problem.step.trace)
        except InputError as error:
            raise InputError(f"schedule.steps[{index}]: {error}") from None
        if not isinstance(found, Schedule):
            raise InputError(f"schedule.steps[{index}] has pieces, and transfers are atomic")
        steps.append(found)
    if not steps:
        raise InputError("schedule.steps must not be empty")
    jobs = []
    for item in fields.each("jobs"):
        kind = member(JobKind, item.get("kind", str), item.path("kind"))
        job = Job(kind, item.integer("gradient", 0), item.integer("device", 0))
        jobs.append(TimedJob(job, item.integer("start"), item.integer("end")))
        item.finish()
    fields.finish()
    return DevicesSchedule(steps, jobs)
