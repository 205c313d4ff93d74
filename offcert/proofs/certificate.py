"""`Certificate`: a problem, the best schedule known, the bounds on it, and where all came from."""

from __future__ import annotations

import platform as machine
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import offcert
from offcert.core.documents import (
    Fields,
    canonical_digest,
    read_document,
    require_format,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.files import problem_digest, problem_from_json, problem_to_json
from offcert.core.messages import cut
from offcert.core.network_json import execution_from_json, execution_to_json
from offcert.core.notebook import html
from offcert.core.problem import Minimise, Problem
from offcert.core.result import Infeasibility, Result, SolveStatus
from offcert.core.units import format_size
from offcert.proofs.bounds_json import bound_from_json, bounds_to_json, exact_gap, member
from offcert.proofs.placement.certificate import PlacementCertificate, placement_part_from_json
from offcert.proofs.robust import Robust, robust_from_fields
from offcert.proofs.schedule_json import schedule_from_json, schedule_to_json
from offcert.proofs.settings import Notes, Settings
from offcert.proofs.settings import from_json as settings_from_json
from offcert.proofs.settings import to_json as settings_to_json

CERTIFICATE_FORMAT = "offcert-certificate"
CERTIFICATE_VERSION = 1


@dataclass(frozen=True)
class Certificate:
    """What is claimed about a problem, and the evidence for it.

    Attributes
    ----------
    problem : Problem
        Embedded whole.
    result : Result
        Status, schedule and bounds.
    method : str
        ``"certify"`` or the name of the single method that ran.
    settings : Settings
        What it was asked, the seed among it.
    notes : Notes
        What it remarked beside the result.
    versions : mapping
        Of this program and of what it computed with. Nothing names the machine.
    placement : PlacementCertificate or None
        An address for every residence of the schedule's tensors and workspaces, if some were
        found, and bounds on the pool.
    robust : Robust or None
        What holds in the whole box of the problem's uncertain times, if it has one.
    """

    problem: Problem
    result: Result
    method: str
    settings: Settings = field(default_factory=Settings)
    notes: Notes = field(default_factory=Notes)
    versions: Mapping[str, str] = field(default_factory=dict)
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

    def __repr__(self) -> str:
        problem, units = self.problem, self.problem.units
        memory = format_size(problem.platform.memory, units)
        return f"<Certificate {cut(problem.name)} at {memory}: {self.result.summary(units)}>"

    def _repr_html_(self) -> str:
        return html(self)

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as a JSON value (``offcert-certificate``, version 1)."""
        result = self.result
        document: dict[str, Any] = {
            "format": CERTIFICATE_FORMAT,
            "version": CERTIFICATE_VERSION,
            "problem": problem_to_json(self.problem),
            "problem_sha256": problem_digest(self.problem),
            "status": str(result.status),
            "objective": result.objective,
            "lower_bound": result.lower_bound,
            "gap": exact_gap(result.objective, result.lower_bound),
            "bounds": bounds_to_json(result.bounds),
            "schedule": None
            if result.schedule is None
            else schedule_to_json(result.schedule, self.executed.trace),
            "infeasibility": _infeasibility_to_json(result.infeasibility),
            "method": self.method,
            "settings": settings_to_json(self.settings, self.notes),
            "versions": dict(self.versions),
        }
        if result.execution is not None:
            document["execution"] = execution_to_json(result.execution)
        if self.placement is not None:
            document["placement"] = self.placement.part_to_json()
        if self.robust is not None:
            document["robust"] = self.robust.to_json()
        document["digest"] = canonical_digest(document)
        return document

    def write(self, path: str | Path) -> None:
        """Write the certificate to a file, through a temporary one."""
        write_json(path, self.to_json())


def read_certificate(path: str | Path) -> Certificate:
    """Return the certificate in a file, without verifying what it claims.

    Raises
    ------
    InputError
        If the file cannot be read or is no certificate.
    """
    return read_document(path, certificate_from_json)


def certificate_from_json(document: Any) -> Certificate:
    """Return the certificate that a JSON value describes, without verifying what it claims.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(document)
    require_format(fields, CERTIFICATE_FORMAT, CERTIFICATE_VERSION)
    problem = problem_from_json(fields.get("problem", dict), "problem")
    bounds = tuple(bound_from_json(item) for item in fields.each("bounds"))
    schedule = fields.optional("schedule", (dict, type(None)))
    infeasibility = fields.optional("infeasibility", (dict, type(None)))
    execution = None
    if fields.has("execution"):
        execution = execution_from_json(fields.get("execution", dict), "execution")
    trace = problem.trace if execution is None else problem.executed(execution).trace
    memory = None
    if fields.get("objective", (int, type(None))) is not None:
        objective = fields.integer("objective", 0)
        memory = objective if problem.minimise is Minimise.MEMORY else None
    result = Result(
        status=member(SolveStatus, fields.get("status", str), "status"),
        schedule=None if schedule is None else schedule_from_json(schedule, trace),
        bounds=bounds,
        infeasibility=None if infeasibility is None else _infeasibility_from_json(infeasibility),
        execution=execution,
        memory=memory,
        minimise=problem.minimise,
    )
    settings, notes = settings_from_json(fields.get("settings", dict), "settings")
    placement = None
    if fields.has("placement"):
        placement = placement_part_from_json(fields.get("placement", dict), problem.name)
    certificate = Certificate(
        problem=problem,
        result=result,
        method=fields.get("method", str),
        settings=settings,
        notes=notes,
        versions=fields.get("versions", dict),
        placement=placement,
        robust=robust_from_fields(fields),
    )
    # What these say is derived; `verify` compares it with what it ought to be.
    for name, kind in (("problem_sha256", str), ("gap", (str, type(None))), ("digest", str)):
        if name not in document:
            raise InputError(f'the field "{name}" is missing')
        fields.optional(name, kind)
    fields.integer("lower_bound")
    fields.finish()
    return certificate


def current_versions() -> dict[str, str]:
    """Return the versions of this program and of the libraries it computes with."""
    versions = {"offcert": offcert.__version__, "python": machine.python_version()}
    for package in ("numpy", "numba", "scipy", "ortools"):
        installed = _installed(package)
        if installed is not None:
            versions[package] = installed
    return versions


# Reading a package's metadata takes longer than a heuristic.
@cache
def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _infeasibility_to_json(value: Infeasibility | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {
        "operation": value.operation,
        "name": value.name,
        "needed": value.needed,
        "lacking": value.lacking,
    }


def _infeasibility_from_json(value: Any) -> Infeasibility:
    fields = Fields(value, "infeasibility")
    result = Infeasibility(
        fields.integer("operation", -1),
        fields.get("name", str),
        fields.integer("needed", 0),
        fields.integer("lacking", 1),
    )
    fields.finish()
    return result
