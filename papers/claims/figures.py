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
from papers.claims.searched import SearchedClaim, searched_lines
from papers.claims.theory import Experiment, TheoryClaim
from papers.claims.tolerance import Agreement, agreement

HEADING = "## Measurements of recomputation alone"
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

Figures are judged by [the rule for numbers](#tolerances); statements about what is necessary or
possible by certificates, as on the rest of this page."""


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
    *,
    digit: Fraction | None = None,
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
    digit : Fraction, optional
        How far the number that was meant may be from the printed one: by default half a unit of
        its last digit; a whole one where two printed numbers are subtracted.
    """
    paper = Fraction(paper)
    # What is a quotient of printed numbers has no last digit.
    half = Fraction(0 if unit == "×" else 1, 2 if paper.denominator == 1 else 20)
    exact = half if digit is None else digit
    rounded = Fraction(round(Fraction(here) * _DIGITS), _DIGITS)
    figures = {"paper": str(paper), "here": str(rounded), "unit": unit, "digit": str(exact)}
    return EvidenceRow(claim, case, {**figures, "reading": reading})


def agreement_of(row: EvidenceRow) -> Agreement:
    """Return the agreement of a figure with the paper's."""
    digit = _number(row, "digit")
    factor = row.figures["unit"] == "×"
    return agreement(_number(row, "here"), _number(row, "paper"), digit=digit, factor=factor)


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
    searched: Sequence[SearchedClaim] = (),
) -> str:
    """Return a section of figures and statements."""
    lines = [heading, "", introduction, "", "| claim | place | verdict |", "| --- | --- | --- |"]
    verdicts = {claim.key: str(claim.verdict(evidence.of(claim.key))) for claim in claims}
    verdicts |= {each.key: statement_verdict(each, evidence.of(each.key)) for each in statements}
    verdicts |= {each.key: each.verdict(evidence.of(each.key)) for each in searched}
    listed: list[FigureClaim | TheoryClaim | SearchedClaim] = [*claims, *statements, *searched]
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
    for each in searched:
        lines += searched_lines(each, evidence)
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
        "Algorithm 6 saves 2 GiB (23 %) of what the rule of roots takes, and 392 MiB (5.7 %) of "
        "what the arbitrary-graph solver takes (VGG-19, 128 images).",
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
        "selection-figure-7",
        f"{_SELECTION}.4, Fig. 7",
        "Both selections have the same peak; on the first half and more of the first segment the "
        "arbitrary-graph solver's takes around 2 GiB more, on the rest of it around 2 GiB less.",
        "Bytes at the end of every backward operation, with the checkpoints of Fig. 5 and those of "
        "Fig. 7, 128 images. A part of the segment that is not as the paper says counts as 0.",
        "The paper does not say with which checkpoints of its own, nor with how many images; by "
        "those of Table 2 the peaks would differ. Of Fig. 6 the text gives no number but the "
        "ticks: there is nothing to judge beyond Table 2.",
    ),
    FigureClaim(
        "selection-search",
        f"{_SELECTION}.7",
        "Algorithm 3 searches 20 ms on VGG-19, Algorithm 6 1.1 ms.",
        "How often the loops of both run: the ratio of both counts beside that of both times.",
        "Milliseconds are of a machine and of programs in Python that are not published, so they "
        "can be neither confirmed nor refuted here; only how the two compare can, as far as a turn "
        "of a loop takes as long in both. In so short a call, what Python does besides counts.",
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
        "reforwarding-regular",
        f"{_REFORWARDING}, Table 1",
        "What regular training takes.",
        "Live bytes of a step with gradients and the places of maxima, everything stored.",
    ),
    FigureClaim(
        "reforwarding-memory",
        f"{_REFORWARDING}, Table 1",
        "What re-forwarding takes, on all 15 networks.",
        "The same of what the paper's solver (Algorithm 5, on chains Algorithm 1) stores.",
        "Of VGG the live bytes are those of the first convolutions, whose gradients are as large "
        "as they are; the paper's numbers are below these, for a reason not known.",
    ),
    FigureClaim(
        "reforwarding-cut",
        f"{_REFORWARDING}, Table 1",
        "How much memory re-forwarding cuts, on all 15 networks.",
        "By how much the second is less than the first of the two numbers above.",
    ),
    FigureClaim(
        "reforwarding-eighty",
        "Re-forwarding, Abstract",
        "Up to 80 % of the memory is cut with an overhead of around 40 %.",
        "ResNet-152, for which the paper says so, by the paper's own solver: its memory cut, and "
        "the forward pass by a step by the roofline.",
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
        "reforwarding-eighty-possible",
        "Re-forwarding, Abstract, as a statement about what can be had",
        "So much is possible, by whatever algorithm.",
        "The deepest ResNet of Table 1 by the roofline, as a chain of stages: stated is a fifth of "
        "the peak, the optimum what is certified with 40 % more time. The claim holds where a "
        "schedule takes no more.",
        attained=True,
    ),
)


def recomputation_figures_section(evidence: EvidenceFile) -> str:
    """Return the section of the claims page about measurements of recomputation alone."""
    return figures_section(evidence, HEADING, _INTRODUCTION, FIGURES, STATEMENTS)
