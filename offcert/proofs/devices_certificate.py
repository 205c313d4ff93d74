"""`DevicesCertificate`: a problem on several devices, its best schedule, and the bounds on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offcert.core.documents import Fields, read_document
from offcert.core.errors import InputError
from offcert.core.forms import member
from offcert.core.result import Bound, Bounded, SolveStatus
from offcert.core.units import format_time
from offcert.proofs.any_certificate import AnyCertificate, bound_from_json, bounds_to_json
from offcert.proofs.questions import DEVICES
from offcert.proofs.schedule_json import schedule_from_json, schedule_to_json
from offcert.questions.devices.problem import DevicesProblem, Job, JobKind
from offcert.questions.devices.schedule import DevicesSchedule, TimedJob
from offcert.questions.schedule.schedule import Schedule


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
    def known(self) -> Bounded:
        """The certificate itself: it has no result beside it."""
        return self

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
            "alone": None if self.alone is None else bounds_to_json([self.alone])[0],
            "schedule": None if self.schedule is None else self._schedule_to_json(self.schedule),
            "found_by": self.found_by,
        }

    @classmethod
    def _read_answer(cls, fields: Fields, problem: DevicesProblem) -> dict[str, Any]:
        member(SolveStatus, fields.get("status", str), "status")
        alone = fields.optional("alone", (dict, type(None)))
        schedule = fields.optional("schedule", (dict, type(None)))
        return {
            "schedule": None if schedule is None else _schedule_from_json(schedule, problem),
            "bounds": tuple(bound_from_json(item) for item in fields.each("bounds")),
            "alone": None if alone is None else bound_from_json(Fields(alone, "alone")),
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


def read_devices_certificate(path: str | Path) -> DevicesCertificate:
    """Return the certificate in a file, without verifying what it claims.

    Raises
    ------
    InputError
        If the file cannot be read or is no certificate for several devices.
    """
    return read_document(path, DevicesCertificate.from_json)


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
