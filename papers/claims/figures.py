"""Measurements of the papers about recomputation, beside the same by formulas and a roofline.

The section of `docs/claims.md` about measurements: each printed number stands beside ours, by the
reading that agrees best; other readings are named with what they would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from offcert.core.documents import parse_rational
from papers.claims.evidence import EvidenceFile, EvidenceRow, rests_on
from papers.claims.modnn_claims import Agreement, agreement
from papers.claims.theory import Experiment, TheoryClaim

HEADING = "## Measurements of recomputation alone"
# A printed number is as exact as its last digit, and otherwise as measurements are.
_CLOSE, _TREND = Fraction(1, 20), Fraction(3, 2)
_DIGITS = 10**4
_ORDER = (Agreement.CONFIRMED, Agreement.IN_TREND, Agreement.NOT)

_INTRODUCTION = """\
The same two papers measure memory and time of networks on GPUs. Bytes here are exact, by the shapes
of the networks; what a device held is counted as PyTorch counts it
([chains](theory/checkpoint-chains.md), [graphs](theory/checkpoint-graphs.md)). Time of the
selection paper's networks is in multiplications, a backward operation twice its forward one; that
of the re-forwarding paper's by a roofline of the V100-PCIe, as neither paper lists the times of
layers.

```sh
python benchmarks/claims_figures.py
```

A figure is *confirmed* if ours is within 5 % of the paper's, or of its last digit; *in trend*
within a factor of 1.5 (of ratios, their logarithms within a factor of 2); otherwise *not
reproduced*. A claim is what the worst of its figures is. Statements about what is necessary or
possible are judged by certificates, as on the rest of this page."""


@dataclass(frozen=True)
class FigureClaim:
    """Numbers that a paper prints; attributes as for `Claim`.

    Attributes
    ----------
    why : str
        The reason of a difference, or the reading; "" if there is nothing to say.
    """

    key: str
    place: str
    statement: str
    test: str
    why: str = ""

    def verdict(self, rows: Iterable[EvidenceRow]) -> Agreement:
        """Return the agreement of its worst figure, other readings left out."""
        found = [agreement_of(row) for row in rows if not row.figures["reading"]]
        return max(found, key=_ORDER.index, default=Agreement.NOT)


def figure_row(
    claim: str,
    case: str,
    paper: Fraction | int | str,
    here: Fraction | int,
    unit: str,
    reading: str = "",
    certificate: str | None = None,
) -> EvidenceRow:
    """Return a figure as a row of evidence.

    Parameters
    ----------
    claim, case : str
        Key of the claim, and what the figure is about.
    paper, here : Fraction, int or str
        The printed number, and ours, which is rounded to four digits behind the point.
    unit : str
        ``"MiB"``, ``"MB"``, ``"%"``, or ``"×"`` for a ratio.
    reading : str
        Of which this is; "" for the one that the verdict is about.
    certificate : str, optional
        Digest of one that shows what is necessary, beside it.
    """
    rounded = Fraction(round(Fraction(here) * _DIGITS), _DIGITS)
    figures = {"paper": str(Fraction(paper)), "here": str(rounded), "unit": unit}
    return EvidenceRow(claim, case, {**figures, "reading": reading}, certificate)


def agreement_of(row: EvidenceRow) -> Agreement:
    """Return the agreement of a figure with the paper's."""
    paper, here = _number(row, "paper"), _number(row, "here")
    if row.figures["unit"] == "×":
        if paper == here:
            return Agreement.CONFIRMED
        return agreement(here, paper)
    last_digit = Fraction(1) if paper.denominator == 1 else Fraction(1, 10)
    if abs(here - paper) <= max(last_digit, _CLOSE * paper):
        return Agreement.CONFIRMED
    near = min(paper, here) > 0 and max(paper, here) <= _TREND * min(paper, here)
    return Agreement.IN_TREND if near else Agreement.NOT


def _number(row: EvidenceRow, name: str) -> Fraction:
    return parse_rational(str(row.figures[name]), f"{name} of {row.case}")


def statement_verdict(claim: TheoryClaim, rows: Iterable[EvidenceRow]) -> str:
    """Return the verdict on a statement that certificates decide."""
    return str(claim.judge([Experiment.of(row) for row in rows]).verdict)


def figures_section(
    evidence: EvidenceFile,
    heading: str,
    introduction: str,
    claims: Sequence[FigureClaim],
    statements: Sequence[TheoryClaim],
) -> str:
    """Return a section of figures and statements."""
    lines = [heading, "", introduction, "", "| claim | place | verdict |", "| --- | --- | --- |"]
    verdicts = {claim.key: str(claim.verdict(evidence.of(claim.key))) for claim in claims}
    verdicts |= {each.key: statement_verdict(each, evidence.of(each.key)) for each in statements}
    listed: list[FigureClaim | TheoryClaim] = [*claims, *statements]
    for each in listed:
        cells = [f"[{each.statement}](#{each.key})", each.place, verdicts[each.key]]
        lines.append(f"| {' | '.join(cells)} |")
    for claim in claims:
        lines += ["", f"### {claim.key}", "", f"{claim.statement} ({claim.place})", ""]
        lines += [f"- {claim.test}", *_figures(evidence.of(claim.key), verdicts[claim.key])]
        lines += [f"- {claim.why}"] if claim.why else []
        lines += [rests_on(evidence, claim.key)]
    for stated in statements:
        finding = stated.judge([Experiment.of(row) for row in evidence.of(stated.key)])
        lines += ["", f"### {stated.key}", "", f"{stated.statement} ({stated.place})", ""]
        cases = "; ".join(f"{case.label}, {case.text}" for case in finding.cases)
        lines += [f"- {stated.test}", f"- **{finding.verdict}**; {finding.counts()}: {cases}."]
        lines += [rests_on(evidence, stated.key)]
    return "\n".join(lines) + "\n"


def _figures(rows: Sequence[EvidenceRow], verdict: str) -> list[str]:
    main = [row for row in rows if not row.figures["reading"]]
    others: dict[str, list[EvidenceRow]] = {}
    for row in rows:
        if row.figures["reading"]:
            others.setdefault(str(row.figures["reading"]), []).append(row)
    shown = "; ".join(
        f"{row.case}: paper {_text(row, 'paper')}, here {_text(row, 'here')}" for row in main
    )
    lines = [f"- **{verdict}**; {shown}."]
    for reading, group in others.items():
        found = ", ".join(f"{row.case} {_text(row, 'here')}" for row in group)
        lines.append(f"- Another reading, {reading}: {found}.")
    return lines


def _text(row: EvidenceRow, name: str) -> str:
    value, unit = float(_number(row, name)), row.figures["unit"]
    digits = f"{value:.2f}" if unit == "×" else f"{value:,.1f}".removesuffix(".0")
    return f"{digits} {unit}"


_SELECTION, _REFORWARDING = "Selection, §5", "Re-forwarding, §6"
FIGURES = (
    FigureClaim(
        "selection-memory",
        f"{_SELECTION}.5, Table 2",
        "How much less memory Algorithm 6 takes than the others.",
        "Differences of peaks, so that weights and their kin cancel; ours at the ends of backward "
        "operations, where the paper measures.",
    ),
    FigureClaim(
        "selection-savings",
        f"{_SELECTION}.5",
        "Algorithm 6 saves 23 % of what the rule of roots takes, and 5.7 % of what the "
        "arbitrary-graph solver takes (VGG-19, 128 images).",
        "Weights, their gradients and their momenta, each four bytes a parameter, are added to "
        "ours; the published peaks are these and less than 23 MiB more.",
    ),
    FigureClaim(
        "selection-prediction",
        f"{_SELECTION}.2, Fig. 5",
        "The average error of the predicted memory is 2.8 %.",
        "Eqs. (9) and (10) against what there is at the end of each backward operation, for the "
        "checkpoints of Fig. 5, with weights, gradients and momenta on both sides; ours is the "
        "error against an exact count, the paper's against a device.",
    ),
    FigureClaim(
        "selection-granularity",
        f"{_SELECTION}.6, Figs. 8 and 9",
        "Pooling layers of their own take 100 MiB off the peak of AlexNet.",
        "The difference of the peaks of the published checkpoints, at the ends of operations.",
    ),
    FigureClaim(
        "selection-time",
        f"{_SELECTION}.7, Table 3",
        "Every selection takes a third more time on VGG-19.",
        "What runs again by the time of a step, if every segment runs again as a whole, the last "
        "one and the checkpoint at its end, too, as every call of `torch.utils.checkpoint` does.",
        "No other reading gives Algorithms 3 and 6 the same. The last segment is needed as soon as "
        "it has run, so that running it again brings no byte: of what Algorithm 3 runs again, "
        "three quarters are in vain.",
    ),
    FigureClaim(
        "selection-time-alexnet",
        f"{_SELECTION}.7, Table 3",
        "On AlexNet it is 14 % (4,096 images).",
        "The same.",
        "Whatever the batch, the forward pass is a third of the multiplications, and 35 % by a "
        "roofline. 14 % is no share of a step's computing; something else takes most of the time "
        "that was measured, such as bringing 2.3 GiB of images to the device.",
    ),
    FigureClaim(
        "reforwarding-chen",
        f"{_REFORWARDING}, Table 1",
        "What Chen's approach takes.",
        "Live bytes of a step with gradients and the places of maxima, of what Chen's search over "
        "budgets (Algorithm 3) stores.",
        "The paper does not say which of Chen's methods it ran, nor how. No rule that we tried "
        "(steps or numbers of segments of √n, layers with or without their activations) gives all "
        "five.",
    ),
    FigureClaim(
        "reforwarding-over-chen",
        f"{_REFORWARDING}, Table 1",
        "Due to the optimal solution, re-forwarding costs less memory than Chen's approach.",
        "Chen's live bytes by those of the optimal solution of Eq. (1).",
        "On VGG the first convolutions decide, which both leave out: the live bytes are the same, "
        "as they are for VGG-13 in the paper.",
    ),
    FigureClaim(
        "reforwarding-time",
        f"{_REFORWARDING}, Table 1",
        "Re-forwarding takes 29 to 45 % more time.",
        "The forward pass by a step, by the roofline: what it takes if everything runs again once.",
    ),
)
STATEMENTS = (
    TheoryClaim(
        "selection-published-checkpoints",
        f"{_SELECTION}.2 to 5.6, Table 2, Figs. 5 and 8",
        "What tables and figures call the checkpoints that the algorithm returned take the least "
        "memory of all.",
        "Stated are the bytes of published checkpoints by Eq. (9), the optimum is certified. The "
        "claim fails where other checkpoints take less. For VGG-19, Fig. 5 has {3, 11, 24}, and "
        "Table 2 others; those take no less than Algorithm 3's. Of the plain AlexNet they are the "
        "best only if the gradient of the input, which nobody computes, does not count.",
        attained=False,
    ),
    TheoryClaim(
        "selection-time-needed",
        f"{_SELECTION}.7, Table 3",
        "So much less memory takes a third more time.",
        "A network with as many live bytes as the published checkpoints of Algorithm 6 take: "
        "stated is the time of a step and a forward pass, the optimum is certified. The claim "
        "fails where a schedule is shorter.",
        attained=False,
    ),
    TheoryClaim(
        "reforwarding-eighty",
        "Re-forwarding, Abstract",
        "Up to 80 % of the memory is cut with an overhead of around 40 %.",
        "The deepest ResNet of Table 1 by the roofline, as a chain of stages: stated is a fifth of "
        "the peak, the optimum what is certified with 40 % more time. The claim holds where a "
        "schedule takes no more.",
        attained=True,
    ),
)


def recomputation_figures_section(evidence: EvidenceFile) -> str:
    """Return the section of the claims page about measurements of recomputation alone."""
    return figures_section(evidence, HEADING, _INTRODUCTION, FIGURES, STATEMENTS)
