"""`docs/claims.md`: every claim, what was measured, and the verdict that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from offcert_lab.comparisons.points import Point
from papers.claims.claim import Claim
from papers.claims.evidence import HEADING, INTRODUCTION, EvidenceFile, rests_on
from papers.claims.exhibits import Exhibit, exhibit_of, experiment_exhibit
from papers.claims.facts import TableFacts
from papers.claims.judge import ALWAYS, OFTEN, USUALLY, Finding, Verdict
from papers.claims.layers import NOTHING
from papers.claims.measured import (
    open_lines,
    per_image_lines,
    ranking_lines,
    scaling_lines,
    yardstick_lines,
)
from papers.claims.offloading import ALMOST, CLAIMS, GOOD, MUCH, percent
from papers.claims.predicates import BLOCKS, VIEWS, view_of
from papers.claims.published import table_evidence, theory_evidence
from papers.claims.theory import THEORY, Experiment, TheoryClaim
from papers.claims.tolerance import RULE

FOLDER = "certificates"

_INTRODUCTION = """\
# Claims of the offloading paper, put to the test

Beaumont, Eyraud-Dubois and Shilova, "Optimal GPU-CPU Offloading Strategies for Deep Neural Network
Training" (Euro-Par 2020), compare heuristics with a lower bound. Here the same heuristics stand
beside the certified optimum. This page is written by a program; every verdict follows from the
numbers beside it.

```sh
python benchmarks/claims.py
offcert plot-table out/claims/table.jsonl -o out/claims/figures
offcert plot-table out/claims/table.jsonl -o out/claims/throughput --what throughput
```

The first command takes the campaign up where it was left and writes this page; the others draw
every problem as the paper's Figures 5 to 19 do, with the certified optimum.

**The table.** {facts}

**What is compared.** The profiles are a roofline's (V100-PCIe, link of 12.2 GB/s), not the paper's
measurements, which it does not list; so a claim that fails here is refuted as a general statement,
not as a description of what the authors measured. *Chains* are the paper's model: what a stage
keeps inside for its backward operation is part of its output. *Traces* are the same networks with
these internals as tensors of their own, which may leave one by one; there, methods for chains still
plan on the chain. Memory is in percent of the way from the least with which anything runs to the
peak without offloading. Limits at which nothing has to leave are not counted. Heuristics were run
on all chains; the optimum was looked for at the limits under [What stays open](#what-stays-open),
and only these count where a claim is about optima.

**What a stage is.** What runs between two places where a single tensor is live: a convolution, a
residual block, an Inception module, and, in DenseNets, a dense layer, which hands on its input and
its new features in one tensor. That is how the authors' later code cuts DenseNets; the paper does
not print its number of stages. *Blocks* are a variant: the chains of DenseNets with every dense
block as one stage, so with fewer and larger tensors. That is another problem, and verdicts on it
stand beside the others: a certificate is about stages as they are cut.

**Verdicts.** A claim is a test with many cases: limits, or whole problems. In a case it holds,
fails, or is open. Comparisons with the optimum are exact and three-valued: such a claim holds only
against the best lower bound and fails only against a checked schedule. It is *confirmed* if it
holds in as many cases as it speaks of; for "always" one failure refutes it. It *cannot be decided*
if cases still open could change that, or if the table says nothing about it. A method without a
plan at a limit is compared nowhere there.
"""

_WORDS = f"""\
**Words.** "Almost optimal" is within {percent(ALMOST)}, "much" and "significantly" more than \
{percent(MUCH)}, "good" within {percent(GOOD)} (the paper's own measure), "loses nothing" at most \
{percent(1 + NOTHING)}. What holds "usually" has to hold {USUALLY}, "often" {OFTEN}; without such \
a word, in every case. These readings are ours, and stand beside each claim."""
_TOLERANCES = f"""\
## Tolerances

{RULE}

{fill(_WORDS, 100, break_long_words=False)}
"""

_FIGURE = """\
## At a glance

Chains, images of 224 pixels, batches of 32: the makespan by the bound of Proposition 3, as in the
paper's Figures 5, 6, 9 and 12. Black is the certified optimum, which the paper could not draw.

![relative makespan against memory]({figure})
"""

_AFTER = """\
## Which method is best at which memory

Of the heuristics: at how many problems it has (or shares) the shortest schedule, at how many it has
a plan, and its mean ratio to the best schedule known."""

_YARDSTICK = """\
## What the bound of Proposition 3 hides

The paper measures against the bound of Proposition 3. Where the best schedule is above it, a ratio
to the bound blames the method for what no schedule can do."""

_OPEN = """\
## What stays open

Limits by network: at how many the best schedule is certified optimal, and how far it may be from
the optimum where it is not."""

_SCALING = """\
## Batch and image sizes"""


@dataclass(frozen=True)
class Report:
    """The page, the certificates that it links to, and what its verdicts rest on."""

    text: str
    exhibits: tuple[Exhibit, ...]
    evidence: tuple[EvidenceFile, ...]


def write_report(
    points: Sequence[Point],
    experiments: Sequence[Experiment],
    facts: TableFacts,
    folder: Path,
    figure: str | None = None,
) -> Report:
    """Judge every claim and return the page.

    Parameters
    ----------
    points : sequence of Point
        Of the campaign; problems called ``…-chain`` are chains, all others traces.
    experiments : sequence of Experiment
        About the theorems.
    facts : TableFacts
        The facts of the table.
    folder : Path
        Of the table: certificates are found from there.
    figure : str, optional
        A picture to show, beside the page.
    """
    found = {claim.key: claim.by_view(points) for claim in CLAIMS}
    theory = {claim.key: claim.judge(experiments) for claim in THEORY}
    exhibits: dict[str, Exhibit] = {}
    for key, findings in found.items():
        if (exhibit := exhibit_of(key, list(findings.values()), folder)) is not None:
            exhibits[key] = exhibit
    for key, finding in theory.items():
        if (exhibit := experiment_exhibit(key, finding, experiments, folder)) is not None:
            exhibits[key] = exhibit
    judged = {key: list(findings.values()) for key, findings in found.items()}
    tables = table_evidence(judged, points, folder)
    theorems = theory_evidence(experiments, folder)
    lines = [_INTRODUCTION.format(facts=fill(facts.sentence(), 100, break_long_words=False))]
    lines += [_TOLERANCES]
    lines += [_FIGURE.format(figure=figure)] if figure is not None else []
    lines += [HEADING, "", INTRODUCTION, ""]
    lines += ["## Verdicts", "", *_summary(found), "", *_theory_summary(theory), ""]
    lines += ["## The evaluation, claim by claim", ""]
    for claim in CLAIMS:
        lines += _claim_section(claim, found[claim.key], exhibits, tables)
    lines += ["## The theorems, one by one", ""]
    for theorem in THEORY:
        lines += _theory_section(theorem, theory[theorem.key], exhibits, theorems)
    lines += _measured(points)
    text = "\n".join(lines).rstrip() + "\n"
    return Report(text, tuple(exhibits.values()), (tables, theorems))


def _summary(found: Mapping[str, Mapping[str, Finding]]) -> list[str]:
    heads = ["chains", "traces"]
    heads += [BLOCKS] if any(BLOCKS in findings for findings in found.values()) else []
    lines = ["| claim | place | " + " | ".join(f"on {head}" for head in heads) + " |"]
    lines += ["| --- | --- |" + " --- |" * len(heads)]
    for claim in CLAIMS:
        findings = found[claim.key]
        cells = [str(findings[head].verdict) if head in findings else "–" for head in heads]
        verdicts = " | ".join(cells)
        lines.append(f"| [{claim.statement}](#{claim.key}) | {claim.place} | {verdicts} |")
    return lines


def _theory_summary(theory: Mapping[str, Finding]) -> list[str]:
    lines = ["| theorem | place | on our instances |", "| --- | --- | --- |"]
    for claim in THEORY:
        verdict = theory_verdict(theory[claim.key])
        lines.append(f"| [{claim.statement}](#{claim.key}) | {claim.place} | {verdict} |")
    return lines


def theory_verdict(finding: Finding) -> str:
    """Return the verdict on a theorem, which instances refute but never confirm as a whole."""
    confirmed = finding.verdict is Verdict.CONFIRMED
    on = f"{finding.verdict} on {len(finding.cases)} instances"
    return on if confirmed else str(finding.verdict)


def _claim_section(
    claim: Claim,
    findings: Mapping[str, Finding],
    exhibits: Mapping[str, Exhibit],
    evidence: EvidenceFile,
) -> list[str]:
    lines = [f"### {claim.key}", "", f"{claim.statement} ({claim.place})", ""]
    lines += [f"- {_test(claim.test, str(claim.share))}"]
    for view, finding in findings.items():
        lines.append(f"- On {view}: **{finding.verdict}**; {_measure(finding)}")
    lines += _link(exhibits.get(claim.key))
    return [*lines, rests_on(evidence, claim.key, table=True), ""]


def _theory_section(
    claim: TheoryClaim, finding: Finding, exhibits: Mapping[str, Exhibit], evidence: EvidenceFile
) -> list[str]:
    lines = [f"### {claim.key}", "", f"{claim.statement} ({claim.place})", ""]
    lines += [f"- {_test(claim.test, str(ALWAYS))}"]
    lines += [f"- **{theory_verdict(finding)}**; {_measure(finding)}"]
    return [*lines, *_link(exhibits.get(claim.key)), rests_on(evidence, claim.key), ""]


def _test(test: str, share: str) -> str:
    case, holds = test.split(": ", 1)
    where = f"Each case is {case[0].lower()}{case[1:]}."
    return f"{where} The claim holds there if {holds} It has to hold {share}."


def _measure(finding: Finding) -> str:
    text = finding.counts()
    if finding.worst is not None:
        word = "Worst" if finding.failures else "Closest to failing"
        text += f". {word}: {finding.worst.label}, {finding.worst.text}"
    return text + "."


def _link(exhibit: Exhibit | None) -> list[str]:
    if exhibit is None:
        return []
    return [f"- Certificate of a failure: [{exhibit.name}]({FOLDER}/{exhibit.name})"]


def _measured(points: Sequence[Point]) -> list[str]:
    views = {view: [point for point in points if view_of(point) == view] for view in VIEWS}
    lines: list[str] = []
    tables = ((_AFTER, ranking_lines), (_YARDSTICK, yardstick_lines), (_OPEN, open_lines))
    for title, make in tables:
        lines += [title, ""]
        for view in VIEWS:
            if views[view]:
                lines += [f"On {view}:", "", *make(views[view]), ""]
    lines += [_SCALING, ""]
    for view in VIEWS:
        if views[view]:
            both = [*per_image_lines(views[view])]
            both += [*scaling_lines(views[view], "batch"), *scaling_lines(views[view], "image")]
            lines += [f"On {view}. {' '.join(both)}", ""]
    return lines
