"""Findings of verification about a document, and proved bounds established again.

Verifiers share no code with what finds bounds. They derive everything again from the definition of
the problem: what an operation needs, which tensors may be absent meanwhile, and how fast a link
moves them. Finders and verifiers state the same arguments twice, and that is on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.notebook import Shown, html
from offcert.core.result import Bound, Bounded, Evidence
from offcert.proofs.kinds.computed import MemoryByTime
from offcert.proofs.proof import Claimable, Provable
from offcert.proofs.questions import Question
from offcert.proofs.registry import PROOFS, solver_of, witness
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.verification.limits import UNLIMITED, Allowance, BeyondLimitsError


def recheck(
    bound: Bound,
    problem: Any,
    allowance: Allowance | None = None,
    proofs: Mapping[str, Provable] = PROOFS,
) -> str | None:
    """Establish a proved bound again; return None if it holds, or the fault of its proof.

    Only the verifiers' own limits count without an `allowance`; `proofs` is the registry of the
    question that the problem, a feasible one, belongs to. Raises `BeyondLimitsError` if it takes
    more than is allowed.
    """
    kind = proofs.get(bound.method)
    if kind is None:
        return "no proof is known for a bound of this kind"
    misfit = kind.misfit(problem)
    if misfit is not None:
        return misfit
    try:
        proof = kind.proof.read(bound.details)
    except InputError as error:
        return str(error)
    allowance = UNLIMITED.begin() if allowance is None else allowance
    allowance.require_time()
    fault = kind.verifier.load()(problem, bound.value, proof, allowance)
    if fault is not None and kind.searched:
        return f"the search it names does not establish {bound.value}: {fault}"
    return fault


def by_time(problem: Problem, value: int, proof: MemoryByTime, allowance: Allowance) -> str | None:
    """Return None if within one byte less the deadline cannot be met, or the fault.

    The proof holds a bound on time, which is established again: docs/theory/least-memory.md.
    """
    if problem.deadline is None:
        return "it rests on a deadline, and the problem has none"
    if proof.limit < value - 1:
        return f"details.limit {proof.limit} says nothing about {value - 1} bytes"
    if proof.ticks <= problem.deadline:
        return f"details.ticks {proof.ticks} are within the deadline, {problem.deadline}"
    platform = replace(problem.platform, memory=proof.limit)
    timed = replace(problem, platform=platform, minimise=Minimise.TIME, deadline=None)
    bound = Bound(proof.method, proof.ticks, Evidence.PROVED, proof.details)
    fault = recheck(bound, timed, allowance)
    return None if fault is None else f"details: {fault}"


# Characters of a fault or finding, and of a value in one: a hash is shown whole. Arbitrary.
LONGEST, _SHOWN = 300, 80


class VerificationOutcome(StrEnum):
    """The outcome of verifying a document as a whole."""

    VALID = "valid"
    INVALID = "invalid"
    BEYOND_LIMITS = "not verified within the limits"


@dataclass(frozen=True)
class CheckedBound:
    """A bound with its evidence, and a sentence on how verification established it."""

    method: str
    value: int
    evidence: Evidence
    finding: str


C = TypeVar("C")


@dataclass
class Verification(Generic[C]):
    """The outcome of verifying a certificate.

    Attributes
    ----------
    certificate : Certificate, or that of another question
        The certificate that was verified.
    question : Question
        The question that the certificate answers.
    faults : list of str
        Every reason why the document is not valid, each with its place; empty if it is valid.
    bounds : list of CheckedBound
        The bounds, each with the evidence that was found for it.
    unverified : list of str
        The bounds that could not be established within the limits, each with its place.
    placement_bounds : list of CheckedBound
        The bounds on the pool with their evidence, if a schedule's certificate holds addresses.
    robust_bounds : list of CheckedBound
        Bounds that hold for a box of uncertain times, with their evidence, if any is claimed.
    """

    certificate: C
    question: Question
    faults: list[str] = field(default_factory=list)
    bounds: list[CheckedBound] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    placement_bounds: list[CheckedBound] = field(default_factory=list)
    robust_bounds: list[CheckedBound] = field(default_factory=list)

    def __repr__(self) -> str:
        known: Any = self.certificate
        said = f"; {known.summary()}" if hasattr(known, "summary") else ""
        return f"<Verification {self.outcome}, {len(self.faults)} faults{said}>"

    def _repr_html_(self) -> str:
        known: Any = self.certificate
        faults = [("fault", fault) for fault in self.faults]
        faults += [("not verified", reason) for reason in self.unverified]
        facts = [("claims", known.summary())] if hasattr(known, "summary") else []
        checked = (*self.bounds, *self.placement_bounds, *self.robust_bounds)
        rows = ((f"{b.value}", b.method, str(b.evidence), b.finding) for b in checked)
        header = ("lower bound", "method", "evidence", "found")
        return html(Shown(f"{self.outcome}".upper(), [*facts, *faults], header, rows))

    @property
    def evidence(self) -> Evidence | None:
        """The strongest evidence among the bounds that attain the lower bound; None if invalid."""
        known: Any = self.certificate
        return known.known.evidence if self.valid else None

    @property
    def outcome(self) -> VerificationOutcome:
        """``INVALID`` if anything is wrong, else whether everything could be established."""
        if self.faults:
            return VerificationOutcome.INVALID
        return VerificationOutcome.BEYOND_LIMITS if self.unverified else VerificationOutcome.VALID

    @property
    def valid(self) -> bool:
        """Whether nothing was found wrong, and nothing left unverified."""
        return self.outcome is VerificationOutcome.VALID

    @property
    def reason(self) -> str | None:
        """The first reason why it is not valid: a fault, or what the limits left open."""
        return next(iter((*self.faults, *self.unverified)), None)


def examined(
    certificate: C,
    question: Question,
    document: Any,
    check: Callable[[Verification[C], Any, Allowance], None],
    allowance: Allowance,
) -> Verification[C]:
    """Return the findings about a certificate that was read from a JSON value.

    `check`, the checker of the question, examines the answer and establishes the bounds.
    """
    verification = Verification(certificate, question)
    written: Any = certificate
    verification.faults += rewriting_faults(document, written.to_json())
    check(verification, document, allowance)
    # Names in the document are of any length.
    verification.faults = [cut(fault, LONGEST) for fault in verification.faults]
    return verification


def rewriting_faults(document: dict[str, Any], rewritten: dict[str, Any]) -> Iterator[str]:
    """Yield where a document differs from what is written of the certificate read from it.

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
    """How the bounds of a document are checked."""

    known: Bounded  # All bounds, and the objective, which none may exceed
    problem: Any  # The problem that the bounds are about
    # What the registry knows of a name: of bounds that can be established again, and of those that
    # rest on a solver's word.
    proofs: Mapping[str, Provable]
    claims: Mapping[str, Claimable]
    allowance: Allowance  # Seconds and memory that checking them may take
    intact: bool  # Whether nothing else is wrong: what was tampered with is not worth a search
    place: str = "bounds"  # Where the bounds stand in the document
    # Whether somebody's word counts only for bounds that the registry knows as such.
    closed: bool = False

    def run(self, findings: Verification[Any]) -> Iterator[CheckedBound]:
        """Yield each bound with a sentence about its evidence; add faults to the findings."""
        objective = self.known.objective
        for index, bound in enumerate(self.known.bounds):
            place = f"{self.place}[{index}] ({cut(bound.method)})"
            if objective is not None and bound.value > objective:
                findings.faults.append(
                    f"{place}: the bound {bound.value} exceeds the objective {objective}"
                )
            finding = self._finding(findings, place, index)
            yield CheckedBound(bound.method, bound.value, bound.evidence, cut(finding, LONGEST))

    def _finding(self, findings: Verification[Any], place: str, index: int) -> str:
        bound = self.known.bounds[index]
        kind = self._kind(bound.method)
        if bound.evidence is Evidence.PROVED:
            if isinstance(kind, Provable) and kind.searched and not self.intact:
                return "not computed again, because the document is not what it was"
            return self._establish(findings, place, bound)
        misfit = None if kind is None else kind.misfit(self.problem)
        if self.closed and (kind is None or kind.evidence is not bound.evidence):
            misfit = f"no {bound.evidence} bound is known by this name"
        if misfit is not None:
            findings.faults.append(f"{place}: {misfit}")
            return misfit
        if bound.evidence is Evidence.CROSS_ATTESTED:
            other = witness(self.known.bounds, index, self._kind)
            if other is None:
                finding = "no other formulation on another solver in the document reaches it"
                findings.faults.append(f"{place}: {finding}")
                return finding
            return f"claimed by two solvers, the other with {other.method}; not checked again"
        return f"claimed by {solver_of(bound) or 'one solver'}; not checked again"

    def _kind(self, method: str) -> Provable | Claimable | None:
        return self.proofs.get(method) or self.claims.get(method)

    def _establish(self, findings: Verification[Any], place: str, bound: Bound) -> str:
        """Establish a proved bound again; return the finding."""
        try:
            fault = recheck(bound, self.problem, self.allowance, self.proofs)
        except (BeyondLimitsError, MemoryError) as error:
            finding = f"not verified within the limits: {str(error) or 'the memory is used up'}"
            findings.unverified.append(f"{place}: {finding}")
            return finding
        if fault is not None:
            findings.faults.append(f"{place}: {fault}")
        return "computed again" if fault is None else fault
