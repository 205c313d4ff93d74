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
from papers.claims.searched import SearchedClaim, searched_lines
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

Lemmas are tried on all small chains and on random ones: a search that finds no counterexample is
no proof, and says how many it looked at. The counterexamples to algorithms are data:
`papers.checkpoint_graphs.counterexamples`."""


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
    assert stated is not None
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
    keys = {claim.key for claim in RECOMPUTATION}
    experiments = [Experiment.of(row) for row in evidence.rows if row.claim in keys]
    found = {claim.key: claim.judge(experiments) for claim in RECOMPUTATION}
    verdicts = {key: recomputation_verdict(finding) for key, finding in found.items()}
    verdicts |= {claim.key: claim.verdict(evidence.of(claim.key)) for claim in SEARCHED}
    lines = [HEADING, "", _INTRODUCTION, "", "| claim | place | on our instances |"]
    lines.append("| --- | --- | --- |")
    for each in (*RECOMPUTATION, *SEARCHED):
        cells = [f"[{each.statement}](#{each.key})", each.place, verdicts[each.key]]
        lines.append(f"| {' | '.join(cells)} |")
    for claim in RECOMPUTATION:
        finding = found[claim.key]
        lines += ["", f"### {claim.key}", "", f"{claim.statement} ({claim.place})", ""]
        lines += [f"- {claim.test}", f"- **{recomputation_verdict(finding)}**; {_measure(finding)}"]
        lines += [rests_on(evidence, claim.key)]
    for searched in SEARCHED:
        lines += searched_lines(searched, evidence)
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

_CHAINS = "All chains of up to six layers with sizes 1 to 3, and random ones of 2 to 30 layers."
_LEMMA = "Selection, §4.2, Lemma"
SEARCHED = (
    SearchedClaim(
        "selection-lemma-1",
        f"{_LEMMA} 1",
        "U(i, j), what the segment from i to j takes, grows with j.",
        _CHAINS,
    ),
    SearchedClaim(
        "selection-lemma-2",
        f"{_LEMMA} 2",
        "In the queue M falls with the index.",
        _CHAINS,
    ),
    SearchedClaim(
        "selection-lemma-3",
        f"{_LEMMA} 3",
        "The best next checkpoint is found among those in the queue.",
        f"{_CHAINS} The queue is that before M(i) is put there, and j runs to n.",
        "Printed is the queue after a later step (Q of i - 1), and j below n, for which the last "
        "layer has no next checkpoint at all.",
    ),
    SearchedClaim(
        "selection-lemma-4",
        f"{_LEMMA} 4",
        "The best next checkpoint does not move to the right as i falls.",
        f"{_CHAINS} Of several best ones the first counts.",
    ),
    SearchedClaim(
        "selection-batches",
        "Selection, §5.5",
        "The checkpoints that are returned do not change with the batch.",
        "Algorithms 3, 5 and 6 on VGG-19 and AlexNet: the checkpoints for every batch of 1 to 512 "
        "images, 4,096, and those of Table 2, beside those for 128.",
        "The claim is about what the algorithms see. A device's rounding of sizes, and workspaces "
        "that do not grow with the batch, are not in the paper's model.",
    ),
    SearchedClaim(
        "reforwarding-case-1",
        "Re-forwarding, §4, Case 1",
        "On N equal vertices, storing √N of them is optimal, and takes 2 √N.",
        "Every square N from 4 to 144: the least by the linear solver is 2 √N, and √N stored ones, "
        "evenly spaced, attain it. Both ends are stored and count, as the path in Algorithm 1 has "
        "them.",
    ),
)
