"""Three statements about networks of equal layers that are made without a paper's number.

The section of `docs/claims.md` that compares plans which keep to a rule with all plans: the best
one found within the rule, what is proved of all within the rule, and the same without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from papers.claims.evidence import EvidenceFile, EvidenceRow, rests_on
from papers.claims.judge import ALWAYS, Case, Finding, Outcome, judge

HEADING = "## Claims of today's field: equal layers"
# The part of a step that counts as nothing. Arbitrary.
NOTHING = Fraction(1, 100)

_INTRODUCTION = """\
Networks of equal layers are planned layer by layer: what is good for one is done in all, or a whole
block is stored, moved or computed again, or layers choose from a short list. Each of these is a
*rule* that some plans keep to and others do not. So what a rule loses can be enclosed by four
numbers: the best plan found within it, what is proved of all plans within it, the best plan found
at all, and what is proved of all plans. At least lost is how far the rule's bound lies above the
best plan of all; at most lost is how far the rule's best plan lies above the bound of all. What
leaves, and when, is free within every rule, which is more than the statements allow: so what fails
here fails as it is usually meant, too. A claim *holds* at a limit if at most one per cent of the
step is lost, and *fails* if at least that is lost; otherwise the limit is *open*.

Steps are captured from public shapes ([how](models.md)), with times of a roofline; plans are
programs of segments, within the memory limit at every operation. The bounds are those of [the
joint program](theory/joint.md), with the rule added: where runs go together the cheapest *option*
counts, by weights that are worked out in integers again from the evidence, and for layers that
are all alike by a tree of cases (place by place of a layer: in all layers again, or in none). They
are about programs of segments, in which a layer runs again only once its backward pass has begun.

```sh
python benchmarks/claims_layers.py
```"""


@dataclass(frozen=True)
class LayerClaim:
    """A statement about a rule; attributes as for `Claim`.

    Attributes
    ----------
    short : str
        Head of its column.
    """

    key: str
    statement: str
    test: str
    short: str

    def judge(self, rows: Sequence[EvidenceRow]) -> Finding:
        """Return the finding of rows about the claim."""
        return judge([case_of(row) for row in rows], ALWAYS)


KNOWN = LayerClaim(
    "layers-known",
    "The best plans known of these steps are nearly optimal.",
    "How far the best plan lies above what is proved of all plans, as a part of that: what the "
    "claims below are held against. It holds if that is at most 1 %.",
    "any plan",
)
RULES = (
    LayerClaim(
        "layers-alike",
        "Solving one layer and copying its plan loses nothing.",
        "The rule: in all equal layers the same computations run again; which ones, and in which "
        "segments within a layer, is free.",
        "all layers alike",
    ),
    LayerClaim(
        "layers-blocks",
        "Blocks are fine enough: of a layer everything runs again, or nothing.",
        "The rule: all that a segment around the whole layer runs again does so, or nothing of it; "
        "each layer may do otherwise.",
        "whole blocks",
    ),
    LayerClaim(
        "layers-menu",
        "Two levels come near one: plans of a layer alone, then which layer takes which.",
        "The rule: each layer takes a set of computations to run again from the list of those that "
        "are good for a layer alone: no other set keeps at most as many bytes and takes at most as "
        "long.",
        "list of a layer's plans",
    ),
)
CLAIMS = (KNOWN, *RULES)


def lost(row: EvidenceRow) -> tuple[Fraction, Fraction]:
    """Return the part of the step that a rule loses at least, and at most."""
    lower, best, known, within = (_whole(row, n) for n in ("lower", "best", "known", "within"))
    least = max(Fraction(0), Fraction(within - known, known))
    return least, Fraction(best - lower, lower)


def case_of(row: EvidenceRow) -> Case:
    """Return the case of a row."""
    least, most = lost(row)
    outcome = Outcome.OPEN
    if most <= NOTHING:
        outcome = Outcome.HOLDS
    elif least >= NOTHING:
        outcome = Outcome.FAILS
    text = f"{float(100 * least):.2f} to {float(100 * most):.2f} % lost"
    return Case(row.case, outcome, least if row.claim != KNOWN.key else most, text)


def _whole(row: EvidenceRow, name: str) -> int:
    return int(str(row.figures[name]))


def layers_section(evidence: EvidenceFile) -> str:
    """Return the section of the claims page about equal layers."""
    lines = [HEADING, "", _INTRODUCTION, "", "| claim | verdict |", "| --- | --- |"]
    for claim in CLAIMS:
        verdict = claim.judge(evidence.of(claim.key)).verdict
        lines.append(f"| [{claim.statement}](#{claim.key}) | {verdict} |")
    lines += ["", *_table(evidence)]
    for claim in CLAIMS:
        finding = claim.judge(evidence.of(claim.key))
        lines += ["", f"### {claim.key}", "", claim.statement, "", f"- {claim.test}"]
        lines += [f"- **{finding.verdict}**; {finding.counts()}. {cases_text(finding)}."]
        lines += [rests_on(evidence, claim.key)]
    return "\n".join(lines) + "\n"


# Cases with one outcome that are named one by one. Arbitrary.
_NAMED = 30


def cases_text(finding: Finding) -> str:
    """Return the cases for people, those with which outcome together, unless they are many."""
    parts = []
    for outcome, word in zip(Outcome, ("Holds", "Fails", "Open"), strict=True):
        found = [f"{case.label}: {case.text}" for case in finding.cases if case.outcome is outcome]
        if 0 < len(found) <= _NAMED:
            parts.append(f"{word}: {'; '.join(found)}")
    return ". ".join(parts)


def _table(evidence: EvidenceFile) -> list[str]:
    """Return the table of steps: each plan by the computing time, and its bound."""
    heads = [claim.short for claim in CLAIMS]
    lines = ["Step by computing time, and in brackets what is proved; then what is lost, in %:", ""]
    lines += [f"| step and limit | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    rows = {(row.claim, row.case): row for row in evidence.rows}
    for known in evidence.of(KNOWN.key):
        cells = []
        for claim in CLAIMS:
            row = rows[claim.key, known.case]
            computing = _whole(row, "computing")
            cell = (
                f"{_whole(row, 'best') / computing:.3f} ({_whole(row, 'within') / computing:.3f})"
            )
            if claim is not KNOWN:
                least, most = (float(100 * part) for part in lost(row))
                cell += f"; {least:.1f} to {most:.1f}"
            cells.append(cell)
        lines.append(f"| {known.case} | {' | '.join(cells)} |")
    return lines
