"""Whether the evidence of a section shows what the page says, certificate by certificate.

What the page says, what follows from the figures, and what the certificates establish are three
things; where two of them differ, that is a disagreement, and it is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from offcert.core.errors import InputError
from offcert.core.result import Evidence
from offcert.proofs.certificate import Certificate
from offcert.proofs.placement_certificate import PlacementCertificate
from offcert.verification.document import Verification, verify
from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures
from papers.claims.selection_certificate import FORMAT, SelectionCertificate
from papers.claims.selection_check import SelectionFindings, verify_selection

# What verification finds about a document, of whatever kind.
Findings = Verification[Any] | SelectionFindings
# Computes figures of a row again, given what its certificate holds, if that is at hand.
Again = Callable[[EvidenceRow, Any], Figures]
# From the rows of a claim to its verdicts; None if these do not tell.
Judge = Callable[[Sequence[EvidenceRow]], Sequence[str] | None]
_VERDICT = re.compile(r"^- (?:On \w+: )?\*\*(.+?)\*\*", re.MULTILINE)


@dataclass
class ClaimCheck:
    """The check of one claim: what the page says, what follows, and where they disagree.

    Attributes
    ----------
    claim : str
        Its key.
    said : sequence of str
        The verdicts on the page.
    follows : sequence of str or None
        Verdicts that follow from the figures of its cases; None if these do not tell.
    here, elsewhere, lost, computed : int
        Certificates that were verified, those known by their digest alone, those that were not
        kept, and cases whose figures are computed without one.
    disagreements : list of str
        One sentence each.
    """

    claim: str
    said: Sequence[str]
    follows: Sequence[str] | None
    here: int = 0
    elsewhere: int = 0
    lost: int = 0
    computed: int = 0
    disagreements: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """All of it in a line for people; disagreements are counted only."""
        counts = (
            (self.here, "certificate", "verified"),
            (self.elsewhere, "certificate", "by digest alone"),
            (self.lost, "certificate", "not kept"),
            (self.computed, "figure", "without a certificate"),
        )
        parts = [_counted(number, noun, what) for number, noun, what in counts if number]
        parts = parts or ["nothing here"]
        if self.follows is None:
            parts.append("not judged again")
        text = f"{self.claim}: {' / '.join(self.said) or 'no verdict'}; {', '.join(parts)}"
        return f"{text}; {_counted(len(self.disagreements), 'disagreement')}"


def _counted(number: int, noun: str, what: str = "") -> str:
    return f"{number or 'no'} {noun}{'s' * (number != 1)} {what}".rstrip()


def verdicts_on(page: str) -> dict[str, list[str]]:
    """Return the verdicts that a page states below the heading of each claim."""
    found = {}
    for part in f"\n{page}".split("\n### ")[1:]:
        key, _, text = part.partition("\n")
        if verdicts := _VERDICT.findall(text.split("\n## ")[0]):
            found[key.strip()] = verdicts
    return found


def proved_range(certificate: Certificate) -> tuple[int, int | None]:
    """Return the best bound of a certificate that is proved, and its objective."""
    result = certificate.result
    proved = [each.value for each in result.bounds if each.evidence is Evidence.PROVED]
    return max(proved, default=0), result.objective


def established(verification: Findings) -> Figures:
    """Return the bounds that a valid certificate establishes: ``lower``, ``best``.

    Only bounds that are proved count. Of a problem without a schedule both are None.
    """
    found = verification.certificate
    if isinstance(found, PlacementCertificate):
        raise InputError("a certificate of addresses is no evidence for a claim")
    if isinstance(found, Certificate):
        lower, best = proved_range(found)
        return {"lower": lower, "best": best}
    return {"lower": found.lower_bound, "best": found.objective}


def check_section(
    evidence: EvidenceFile,
    page: str,
    judges: Mapping[str, Judge],
    again: Mapping[str, Again],
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[ClaimCheck]:
    """Yield the check of every claim of a section.

    Parameters
    ----------
    evidence : EvidenceFile
        Of the section.
    page : str
        `docs/claims.md`.
    judges : mapping
        For each claim, from its rows to the verdicts that follow.
    again : mapping
        For some claims, what computes figures of a row again.
    progress : callable
        Told what is being done.
    """
    said = verdicts_on(page)
    verified = _Documents(evidence)
    for number, (claim, judge) in enumerate(judges.items(), 1):
        rows = evidence.of(claim)
        progress(f"{evidence.section} {number}/{len(judges)} {claim}: {len(rows)} cases")
        check = ClaimCheck(claim, said.get(claim, []), judge(rows))
        if check.follows is not None and list(check.said) != list(check.follows):
            check.disagreements.append(
                f"the page says {' / '.join(check.said) or 'nothing'}, and what follows is "
                f"{' / '.join(check.follows) or 'nothing'}"
            )
        digests = {digest for row in rows for digest in row.digests}
        check.here = len(digests & evidence.documents.keys())
        check.elsewhere = len(digests) - check.here
        check.lost = sum(row.lost for row in rows)
        check.computed = sum(not row.digests and not row.lost for row in rows)
        for row in rows:
            faults = _row_faults(row, verified, again.get(claim))
            check.disagreements += [f"{row.case}: {fault}" for fault in faults]
        yield check
    known = {row.claim for row in evidence.rows} - judges.keys()
    for claim in sorted(known):
        yield ClaimCheck(claim, said.get(claim, []), None, disagreements=["nothing judges it"])


class _Documents:
    """Verifies each document once."""

    def __init__(self, evidence: EvidenceFile) -> None:
        self._documents = evidence.documents
        self._found: dict[str, Findings] = {}

    def __call__(self, digest: str) -> Findings | None:
        if digest not in self._found and digest in self._documents:
            document = self._documents[digest]
            selection = document["format"] == FORMAT
            self._found[digest] = verify_selection(document) if selection else verify(document)
        return self._found.get(digest)


def _row_faults(row: EvidenceRow, verified: _Documents, again: Again | None) -> Iterator[str]:
    found = None if row.certificate is None else verified(row.certificate)
    computed: Figures = {}
    if again is not None and (row.certificate is None or (found is not None and found.valid)):
        computed = again(row, None if found is None else found.certificate)
    for name, value in computed.items():
        if row.figures.get(name) != value:
            yield f"{name} is {row.figures.get(name)} in the evidence, and {value} computed again"
    if found is not None:
        left = {name: each for name, each in row.figures.items() if name not in computed}
        yield from _shown(found, left)
    other = None if row.stated is None else verified(row.stated)
    if other is not None:
        value = int(str(row.figures["stated"]))
        yield from _shown(other, {"lower": value, "best": value})
        if found is not None and instance(found) != instance(other):
            yield "its certificates are about different instances"


def instance(verification: Findings) -> Any:
    """Return the instance of a certificate: its problem, or the sizes and edges of its graph."""
    certificate = verification.certificate
    if isinstance(certificate, SelectionCertificate):
        return certificate.sizes, certificate.edges
    return certificate.problem


def _shown(verification: Findings, figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the figures that say more than a certificate establishes."""
    if not verification.valid:
        yield f"its certificate is not valid: {verification.reason}"
        return
    shown = established(verification)
    for name in ("lower", "best"):
        figure, value = figures.get(name), shown[name]
        if figure is None:
            continue
        enough = value is not None and (value >= figure if name == "lower" else value <= figure)
        if not enough:
            yield f"{name} is {figure} in the evidence, and its certificate shows {value}"


def rows_again(make: Callable[[], Iterable[EvidenceRow]]) -> Again:
    """Return a function that makes rows again, once, and looks each one up."""

    @cache
    def table() -> dict[tuple[str, str, Any], Figures]:
        found = make()
        return {(row.claim, row.case, row.figures["reading"]): dict(row.figures) for row in found}

    return lambda row, held: table().get((row.claim, row.case, row.figures["reading"]), {"": ""})


def schedule_certificate(held: Any) -> Certificate:
    """Return a row's certificate if it is one of a schedule.

    Raises
    ------
    InputError
        If it is another one.
    """
    if not isinstance(held, Certificate):
        raise InputError("the certificate is not one of a schedule")
    return held
