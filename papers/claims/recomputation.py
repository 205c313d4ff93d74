"""Claims of two papers about least memory by recomputation, against the optimum.

The section of `docs/claims.md` about the re-forwarding and the selection paper. Each experiment
sets what an algorithm returns against the least there is, found by trying everything or by a search
of our own; no profile is involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from papers.claims.evidence import EvidenceFile, rests_on
from papers.claims.judge import ALWAYS, Case, Finding, Outcome, Verdict, judge
from papers.claims.predicates import number
from papers.claims.theory import Experiment

HEADING = "## Claims about recomputation alone"

_INTRODUCTION = """\
Feng and Huang, "Cutting Down Training Memory by Re-forwarding" (2018), and Hong, Tsai, Wang, Liu
and Wu, "GPU Memory Usage Optimization for Backward Propagation in Deep Network Training", say of
their algorithms that they are optimal. Each is run on instances and compared with the optimum in
the paper's own memory model, which [a certificate](formats/selection.md) establishes; all numbers
are bytes, or units of synthetic instances. The theory is on the pages about [checkpoints of
chains](theory/checkpoint-chains.md) and [on graphs](theory/checkpoint-graphs.md); corrections are
among the [errata](theory/errata.md).

```sh
python benchmarks/claims_recomputation.py
```

The counterexamples are data: `papers.checkpoint_graphs.counterexamples`."""


@dataclass(frozen=True)
class RecomputationClaim:
    """A statement that an algorithm is optimal; attributes as for `Claim`."""

    key: str
    place: str
    statement: str
    test: str

    def judge(self, experiments: Sequence[Experiment]) -> Finding:
        """Return the finding of experiments: whether the stated value is the optimum."""
        own = [experiment for experiment in experiments if experiment.claim == self.key]
        return judge([_case(experiment) for experiment in own], ALWAYS)


def _case(experiment: Experiment) -> Case:
    stated, lower, best = experiment.stated, experiment.lower, experiment.best
    if lower == best:
        outcome = Outcome.HOLDS if stated == best else Outcome.FAILS
    else:
        outcome = Outcome.OPEN if lower <= stated <= best else Outcome.FAILS
    ratio = max(stated / best, best / stated) if best and stated else Fraction(1)
    reached = str(best) if lower == best else f"from {lower} to {best}"
    text = f"stated {stated}, optimum {reached} ({number(ratio)} × apart)"
    return Case(experiment.instance, outcome, ratio, text)


def recomputation_section(evidence: EvidenceFile) -> str:
    """Return the section of the claims page about recomputation alone."""
    experiments = [Experiment.of(row) for row in evidence.rows]
    found = {claim.key: claim.judge(experiments) for claim in RECOMPUTATION}
    lines = [HEADING, "", _INTRODUCTION, "", "| claim | place | on our instances |"]
    lines.append("| --- | --- | --- |")
    for claim in RECOMPUTATION:
        verdict = recomputation_verdict(found[claim.key])
        lines.append(f"| [{claim.statement}](#{claim.key}) | {claim.place} | {verdict} |")
    for claim in RECOMPUTATION:
        finding = found[claim.key]
        lines += ["", f"### {claim.key}", "", f"{claim.statement} ({claim.place})", ""]
        lines += [f"- {claim.test}", f"- **{recomputation_verdict(finding)}**; {_measure(finding)}"]
        lines += [rests_on(evidence, claim.key)]
    return "\n".join(lines) + "\n"


def recomputation_verdict(finding: Finding) -> str:
    """Return the verdict on an algorithm, which instances refute but never confirm as a whole."""
    if finding.verdict is Verdict.CONFIRMED:
        return f"{finding.verdict} on {len(finding.cases)} instances"
    return str(finding.verdict)


def _measure(finding: Finding) -> str:
    text = finding.counts()
    if finding.failures:
        worst, first = finding.failures[0], finding.failures[-1]
        text += f". Worst: {worst.label}, {worst.text}"
        if first is not worst:
            text += f"; least: {first.label}, {first.text}"
    return text + "."


RECOMPUTATION = (
    RecomputationClaim(
        "linear-solver",
        "Re-forwarding, §4, Algorithm 1",
        "The linear solver finds an optimal solution of Eq. (1) on linear graphs.",
        "Each case is a random chain; the optimum is the best of all subsets.",
    ),
    RecomputationClaim(
        "arbitrary-graph-solver",
        "Re-forwarding, Abstract, §5, Algorithm 5",
        "The arbitrary-graph solver achieves the optimal memory solution of arbitrary graphs.",
        "Each case is a graph: random ones of 4 to 10 vertices (optimum: the best of all "
        "selections), the counterexamples, and the residual networks of Table 1 (a better "
        "selection, found by our search, and what is proved of all). What is not stored is "
        "computed again component by component.",
    ),
    RecomputationClaim(
        "reforwarding-theorem-1",
        "Re-forwarding, §5.1, Theorem 1",
        "The optimum over the division tree, which is unique and complete, is the optimum of the "
        "whole computation graph.",
        "Each case is a counterexample or one of the random graphs. Over the tree, every component "
        "that is computed again is a closed set; stated is the least of all these selections, the "
        "optimum that of all selections.",
    ),
    RecomputationClaim(
        "arbitrary-graph-solver-closed",
        "Re-forwarding, §5 (our restriction)",
        "It does so among the selections of which every component is a closed set: entered from "
        "one vertex, left to one.",
        "Each case is one of the same random graphs; the optimum is the best of all such "
        "selections.",
    ),
    RecomputationClaim(
        "selection-algorithm-3",
        "Selection, §3, Theorem 1",
        "Algorithm 3 solves checkpoint selection, Eq. (6), with our corrections.",
        "Each case is a random chain; the optimum is the best of all subsets.",
    ),
    RecomputationClaim(
        "selection-algorithm-3-as-printed",
        "Selection, §3, Theorem 1",
        "Algorithm 3 does so as printed.",
        "Each case is a chain; the optimum is the best of all subsets.",
    ),
    RecomputationClaim(
        "selection-algorithm-5",
        "Selection, §4.1, Theorem 2",
        "Algorithm 5 solves dynamic checkpoint selection, Eq. (9), with our corrections.",
        "Each case is a random chain; the optimum is the best of all subsets.",
    ),
    RecomputationClaim(
        "selection-algorithm-5-as-printed",
        "Selection, §4.1, Theorem 2",
        "Algorithm 5 does so as printed.",
        "Each case is a chain; the optimum is the best of all subsets.",
    ),
    RecomputationClaim(
        "selection-algorithm-6",
        "Selection, §4.2, Theorem 3",
        "Algorithm 6 solves it, too, with our corrections.",
        "Each case is a random chain; the optimum is the best of all subsets.",
    ),
    RecomputationClaim(
        "selection-algorithm-6-as-printed",
        "Selection, §4.2, Theorem 3",
        "Algorithm 6 does so as printed.",
        "Each case is a chain; the optimum is the best of all subsets.",
    ),
)
