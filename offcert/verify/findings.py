"""What verification says of a document, whatever it is about, and what all have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from offcert.core.documents import canonical_digest
from offcert.core.messages import cut
from offcert.core.result import Bound, Evidence
from offcert.proofs.attestation import Kind, witness
from offcert.proofs.claims import solver_of
from offcert.verify.limits import BeyondLimitsError

# Characters of a fault or finding, and of a value in one: a hash is shown whole.
LONGEST, _SHOWN = 300, 80


class Outcome(StrEnum):
    """What verification says of a document as a whole."""

    VALID = "valid"
    INVALID = "invalid"
    BEYOND_LIMITS = "not verified within the limits"


@dataclass(frozen=True)
class CheckedBound:
    """A bound and what verification can say for it."""

    method: str
    value: int
    evidence: Evidence
    finding: str


@dataclass
class Findings:
    """The outcome of verifying a document.

    Attributes
    ----------
    faults : list of str
        Every reason why the document is not valid, each with its place; empty if it is valid.
    bounds : list of CheckedBound
        What evidence each bound has.
    unverified : list of str
        What could not be established within the limits, each with its place.
    """

    faults: list[str] = field(default_factory=list)
    bounds: list[CheckedBound] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        """``INVALID`` if anything is wrong, else whether everything could be established."""
        if self.faults:
            return Outcome.INVALID
        return Outcome.BEYOND_LIMITS if self.unverified else Outcome.VALID

    @property
    def valid(self) -> bool:
        """Whether nothing was found wrong, and nothing left unverified."""
        return self.outcome is Outcome.VALID

    @property
    def reason(self) -> str | None:
        """The first reason why it is not valid: a fault, or what the limits left open."""
        return next(iter((*self.faults, *self.unverified)), None)


def rewriting_faults(document: dict[str, Any], rewritten: dict[str, Any]) -> Iterator[str]:
    """Yield what differs between a document and what is written of what was read in it.

    Writing gives every derived field, such as a hash, its right value.
    """
    content = {name: value for name, value in document.items() if name != "digest"}
    expected = {name: value for name, value in rewritten.items() if name != "digest"}
    for place, found, right in _differences(content, expected, ""):
        yield (
            f"{place}: the document says {cut(repr(found), _SHOWN)}, but it should be "
            f"{cut(repr(right), _SHOWN)}"
        )
    if document["digest"] != canonical_digest(content):
        yield "digest: the document was changed after it was written"


def _differences(found: Any, expected: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places at which two JSON values of the same shape differ."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        for name in found:
            yield from _differences(
                found[name], expected[name], f"{place}.{name}" if place else name
            )
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for index, pair in enumerate(zip(found, expected, strict=True)):
            yield from _differences(*pair, f"{place}[{index}]")
    elif type(found) is not type(expected) or found != expected:
        yield place, found, expected


@dataclass(frozen=True)
class BoundCheck:
    """How the bounds of a document are checked.

    Attributes
    ----------
    bounds : sequence of Bound
        All of them.
    objective : int or None
        Which none may exceed.
    recheck : callable
        Establishes a proved bound again; returns what is wrong, or None.
    kinds : callable
        Returns what the registry knows of a name.
    searched : callable
        Whether verifying a bound of that name searches.
    misfit : callable
        Returns why a claim that is not proved means nothing for what the document is about, or
        None.
    intact : bool
        Whether nothing else is wrong: what was tampered with is not worth a search.
    place : str
        Where the bounds stand in the document.
    """

    bounds: Sequence[Bound]
    objective: int | None
    recheck: Callable[[Bound], str | None]
    kinds: Callable[[str], Kind | None]
    searched: Callable[[str], bool]
    intact: bool
    place: str = "bounds"
    misfit: Callable[[Bound], str | None] = lambda bound: None

    def run(self, findings: Findings) -> Iterator[CheckedBound]:
        """Yield what can be said for each bound; add what is wrong to the findings."""
        for index, bound in enumerate(self.bounds):
            place = f"{self.place}[{index}] ({cut(bound.method)})"
            if self.objective is not None and bound.value > self.objective:
                findings.faults.append(
                    f"{place}: the bound {bound.value} exceeds the objective {self.objective}"
                )
            finding = self._finding(findings, place, index)
            yield CheckedBound(bound.method, bound.value, bound.evidence, cut(finding, LONGEST))

    def _finding(self, findings: Findings, place: str, index: int) -> str:
        bound = self.bounds[index]
        if bound.evidence is Evidence.PROVED:
            if self.searched(bound.method) and not self.intact:
                return "not computed again, because the document is not what it was"
            return self._establish(findings, place, bound)
        misfit = self.misfit(bound)
        if misfit is not None:
            findings.faults.append(f"{place}: {misfit}")
            return misfit
        if bound.evidence is Evidence.CROSS_ATTESTED:
            other = witness(self.bounds, index, self.kinds)
            if other is None:
                finding = "no other formulation on another solver in the document reaches it"
                findings.faults.append(f"{place}: {finding}")
                return finding
            return f"claimed by two solvers, the other with {other.method}; not checked again"
        return f"claimed by {solver_of(bound) or 'one solver'}; not checked again"

    def _establish(self, findings: Findings, place: str, bound: Bound) -> str:
        """Establish a proved bound again; return what was found."""
        try:
            fault = self.recheck(bound)
        except (BeyondLimitsError, MemoryError) as error:
            finding = f"not verified within the limits: {str(error) or 'the memory is used up'}"
            findings.unverified.append(f"{place}: {finding}")
            return finding
        if fault is not None:
            findings.faults.append(f"{place}: {fault}")
        return "computed again" if fault is None else fault
