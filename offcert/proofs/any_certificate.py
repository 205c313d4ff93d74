"""`AnyCertificate`: the common parts of certificates, whatever question they answer."""

from __future__ import annotations

import platform as machine
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from offcert._version import __version__
from offcert.core.documents import (
    Fields,
    canonical_digest,
    rational_text,
    read_document,
    require_format,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.forms import (
    FLAG,
    NUMBER,
    TEXT,
    Absent,
    Integer,
    Object,
    Record,
    Table,
)
from offcert.core.list_forms import Each
from offcert.core.messages import cut
from offcert.core.result import BOUND, Bounded, SolveStatus
from offcert.proofs.questions import QUESTIONS, Question


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that a method was called with; None where it does not read one.

    Attributes
    ----------
    time_limit : float or None
        Seconds.
    workers : int or None
        Threads.
    target_gap : float or None
        At which to stop, as a part of the makespan.
    seed : int or None
        Seed of random choices.
    grid : int or None
        Ticks a cell, of time-indexed models.
    solver : str or None
        Linear solver, by its name.
    """

    time_limit: float | None = None
    workers: int | None = None
    target_gap: float | None = None
    seed: int | None = None
    grid: int | None = None
    solver: str | None = None


@dataclass(frozen=True, kw_only=True)
class Notes:
    """Remarks beside the result.

    Attributes
    ----------
    interrupted : bool
        Whether the user ended the search.
    unfinished : str or None
        The step that was running when this was written, if the search was going on.
    no_plan : str or None
        Why the method found no plan.
    ordered_lower_bound, ordered_objective : int or None
        Ticks: of the best schedule whose offloads all come before its prefetches.
    failed : mapping of str to str
        For each step that failed, with what message.
    refuted : mapping of str to int
        For each method whose solver claimed what a schedule refutes, the claim in ticks.
    shortened : bool
        Whether the schedule was replaced, before it was placed, by one of the same step time.
    """

    interrupted: bool = False
    unfinished: str | None = None
    no_plan: str | None = None
    ordered_lower_bound: int | None = None
    ordered_objective: int | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    refuted: Mapping[str, int] = field(default_factory=dict)
    shortened: bool = False


_INTEGER, _TEXT, _FLAG = Absent(Integer()), Absent(TEXT), Absent(FLAG, default=False)
_SETTINGS = Record(
    Settings,
    time_limit=Absent(NUMBER),
    workers=_INTEGER,
    target_gap=Absent(NUMBER),
    seed=_INTEGER,
    grid=_INTEGER,
    solver=_TEXT,
)
_NOTES = Record(
    Notes,
    interrupted=_FLAG,
    unfinished=_TEXT,
    no_plan=_TEXT,
    ordered_lower_bound=_INTEGER,
    ordered_objective=_INTEGER,
    failed=Absent(Table(), {}),
    refuted=Absent(Table(integers=True), {}),
    shortened=_FLAG,
)


def settings_to_json(settings: Settings, notes: Notes) -> dict[str, Any]:
    """Return settings and remarks as one JSON object, without those that say nothing."""
    return _SETTINGS.write(settings) | _NOTES.write(notes)


def settings_from_json(value: Any, place: str) -> tuple[Settings, Notes]:
    """Return the settings and the remarks in a JSON object."""
    document = Fields(value, place)
    settings, notes = _SETTINGS.values(document), _NOTES.values(document)
    document.finish()
    return Settings(**settings), Notes(**notes)


BOUNDS = Each(Object(BOUND))


def exact_gap(objective: int | None, lower_bound: int) -> str | None:
    """Return ``(objective - bound) / objective`` as a rational; None without an objective."""
    if objective is None:
        return None
    return rational_text(Fraction(objective - lower_bound, max(objective, 1)))


class NamedProblem(Protocol):
    """A problem of whatever kind."""

    @property
    def name(self) -> str:
        """For people."""


P = TypeVar("P", bound=NamedProblem)


@dataclass(frozen=True, repr=False)
class AnyCertificate(ABC, Generic[P]):
    """A claim about a problem, and the evidence for it.

    Subclasses say what the answer is: they turn a problem and an answer into JSON and back.

    Attributes
    ----------
    problem : Problem, DevicesProblem, SplitProblem or PlacementProblem
        Embedded whole.
    method : str
        The command of the question, or the name of the single method that ran.
    settings : Settings
        The settings that the method was given.
    notes : Notes
        Its remarks beside the result.
    versions : mapping
        Of this program and of what it computed with. Nothing names the machine.
    """

    question: ClassVar[Question]

    problem: P
    method: str = field(default="", kw_only=True)
    settings: Settings = field(default_factory=Settings, kw_only=True)
    notes: Notes = field(default_factory=Notes, kw_only=True)
    versions: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def known(self) -> Bounded:
        """The objective as far as it is known: the result, or the certificate if it has none."""
        certificate: Any = self
        known: Bounded = getattr(certificate, "result", certificate)
        return known

    @property
    def status(self) -> SolveStatus:
        """The status of the problem when the method stops: by default the result's."""
        status: SolveStatus = self.known.status  # type: ignore[attr-defined]
        return status

    @property
    def pool(self) -> Any:
        """The certificate of the addresses that it holds, if they are in one pool, or None."""
        return None

    @abstractmethod
    def summary(self) -> str:
        """Return status, value, bound and gap in a line for people."""

    @classmethod
    @abstractmethod
    def _read_answer(cls, fields: Fields, problem: P) -> dict[str, Any]:
        """Return the constructor's arguments that only this question has, read from its fields."""

    @abstractmethod
    def _write_answer(self) -> dict[str, Any]:
        """Return the fields of the document that only this question has."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {cut(self.problem.name)}: {self.summary()}>"

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as a JSON value, in the format of its question."""
        assert self.question.writer is not None
        problem = self.question.writer.load()(self.problem)
        known = {
            "problem": problem,
            "problem_sha256": canonical_digest(problem),
            **self._write_claims(),
            **self._write_answer(),
        }
        question = self.question
        document: dict[str, Any] = {"format": question.format, "version": question.version}
        document |= {name: known[name] for name in question.fields if name in known}
        document["digest"] = canonical_digest(document)
        return document

    def _write_claims(self) -> dict[str, Any]:
        """Return the fields of status, objective, bounds and origin, which every question has."""
        known = self.known
        least: int | None = known.lower_bound
        return {
            "status": str(self.status),
            "objective": known.objective,
            "lower_bound": least,
            "gap": None if least is None else exact_gap(known.objective, least),
            "bounds": BOUNDS.write(known.bounds),
            "method": self.method,
            "settings": settings_to_json(self.settings, self.notes),
            "versions": dict(self.versions),
        }

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Return the certificate that a JSON value describes, without verifying what it claims."""
        question = cls.question
        fields = Fields(document)
        other = QUESTIONS.get(str(document.get("format")))
        if other not in (None, question):
            raise InputError(
                f"it is a certificate of {other.name}, not of {question.name}: `offcert verify` "
                "shows it"
            )
        require_format(fields, question.format, question.version, question.conversion)
        assert question.reader is not None
        problem: P = question.reader.load()(fields.get("problem", dict), "problem")
        certificate = cls._read_claims(fields, problem, cls._read_answer(fields, problem))
        # What these say is derived; verification compares it with what it ought to be.
        for name in ("problem_sha256", "digest"):
            fields.get(name, str)
        fields.finish()
        return certificate

    @classmethod
    def _read_claims(cls, fields: Fields, problem: P, answer: dict[str, Any]) -> Self:
        """Return the certificate of a problem and answer, with its claims read from fields."""
        settings, notes = settings_from_json(fields.get("settings", dict), fields.path("settings"))
        if "method" in cls.question.fields:
            answer["method"] = fields.get("method", str)
        versions = fields.get("versions", dict)
        # Derived, as above.
        fields.get("status", str)
        for name in ("objective", "lower_bound"):
            if fields.get(name, (int, type(None))) is not None:
                fields.integer(name)
        fields.get("gap", (str, type(None)))
        return cls(problem=problem, settings=settings, notes=notes, versions=versions, **answer)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the certificate in a file, without verifying what it claims.

        Raises
        ------
        InputError
            If the file cannot be read or is no certificate of this kind.
        """
        return read_document(path, cls.from_json)

    def write(self, path: str | Path) -> None:
        """Write the certificate to a file, through a temporary one."""
        write_json(path, self.to_json())


def current_versions() -> dict[str, str]:
    """Return the versions of this program and of the libraries it computes with."""
    versions = {"offcert": __version__, "python": machine.python_version()}
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
