"""Claims that a search for counterexamples decides: on all small objects, and on random ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures, rests_on
from papers.claims.judge import ALWAYS, Case, Finding, Outcome, judge


@dataclass(frozen=True)
class SearchedClaim:
    """A statement about all objects of a kind; attributes as for `Claim`."""

    key: str
    place: str
    statement: str
    test: str
    why: str = ""

    def judge(self, rows: Sequence[EvidenceRow]) -> Finding:
        """Return the finding of families of objects, other readings left out."""
        return judge([_case(row) for row in rows if not row.figures["reading"]], ALWAYS)

    def verdict(self, rows: Sequence[EvidenceRow]) -> str:
        """Return the verdict, which no number of objects confirms as a whole."""
        finding = self.judge(rows)
        on = "" if finding.failures or not finding.cases else " where it was tried"
        return f"{finding.verdict}{on}"


def searched_row(
    claim: str, case: str, found: tuple[int, int, str], reading: str = ""
) -> EvidenceRow:
    """Return a family of objects as a row: how many, how many fail, and how the first does."""
    count, failed, first = found
    figures: Figures = {"objects": count, "failed": failed, "first": first, "reading": reading}
    return EvidenceRow(claim, case, figures)


def _case(row: EvidenceRow) -> Case:
    outcome = Outcome.FAILS if row.figures["failed"] else Outcome.HOLDS
    return Case(row.case, outcome, None, _text(row))


def _text(row: EvidenceRow) -> str:
    failed, count, first = (row.figures[name] for name in ("failed", "objects", "first"))
    text = f"fails on {failed} of {count:,}" if failed else f"no failure in {count:,}"
    return f"{text} ({first})" if first else text


def searched_lines(claim: SearchedClaim, evidence: EvidenceFile) -> Iterator[str]:
    """Yield the lines of a claim below the table of its section."""
    rows = evidence.of(claim.key)
    yield from ("", f"### {claim.key}", "", f"{claim.statement} ({claim.place})", "")
    main = "; ".join(f"{row.case}: {_text(row)}" for row in rows if not row.figures["reading"])
    yield f"- {claim.test}"
    yield f"- **{claim.verdict(rows)}**; {main}."
    for row in rows:
        if row.figures["reading"]:
            yield f"- Another reading, {row.figures['reading']}: {row.case}, {_text(row)}."
    if claim.why:
        yield f"- {claim.why}"
    yield rests_on(evidence, claim.key)
