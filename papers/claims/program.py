"""Claims of the combined paper about its own dynamic program, and what that finds here.

The section of `docs/claims.md` about Theorem 1, Lemma 1, complexity, slots, and the headline by the
paper's program instead of by certified plans.
"""

from __future__ import annotations

from papers.claims.evidence import EvidenceFile
from papers.claims.figures import FigureClaim, figures_section
from papers.claims.searched import SearchedClaim
from papers.claims.theory import TheoryClaim

HEADING = "## Claims about the combined paper's own program"

_INTRODUCTION = """\
The same paper has [a dynamic program](theory/combined.md), and measures what it finds: on chains of
stages, with transfers that may pause, in 50 slots of memory. Here it runs on networks as the paper
has them (batches of 16, images of 500 pixels), by a roofline of the V100-PCIe with a link of
12.2 GB/s; a stage is the longest stretch that a single value separates, and dense layers hand on
one value each. The program's decisions are timed in bytes. Figures are judged by [the rule for
numbers](#tolerances).

**Sources.** Of this paper we have the supplement, not the paper. What is said to come from the
*abstract* is known to us at second hand, so a verdict on it is one on that sentence: what the
authors average over, which memory they count, and with which networks they reach which end of their
range, it cannot settle. What the supplement states, Lemma 1, the program and its complexity, is
theirs to the letter; the assumptions of Theorem 1 ("of Section 3.2") are not in the supplement.

```sh
python benchmarks/claims_program.py
```"""

PROGRAM = (
    FigureClaim(
        "combined-program-factor",
        "Combined, Abstract (at second hand)",
        "Together they take 4 to 6 times less memory, with an overhead below 20 % (by the paper's "
        "program).",
        "The peak of the step in which everything runs once by the least memory with which the "
        "program's plan takes at most 1.2 times the computing; the paper's is the nearer end of "
        "its range.",
        "Stages are few and large here: within a block of a ResNet, all that the block keeps is "
        "there at a time. By modules instead of stages, [certified plans](#combined-least) take up "
        "to 9 times less; for ResNet-18 four times less is impossible there, too.",
    ),
    FigureClaim(
        "combined-third",
        "Combined, Abstract (at second hand)",
        "Offloading removes a third of the overhead of recomputation.",
        "By how much the overhead of the program's plan is less with a link than without one, on "
        "average over networks and memories; memories are parts of the way from what a single "
        "operation takes to the peak.",
    ),
    FigureClaim(
        "combined-slots",
        "Combined, supplement, B.4",
        "50 slots are enough: a finer discretisation improves nothing in practice.",
        "By how much the time of a step is less with twice as many slots. Limits at which 50 slots "
        "have no plan are counted apart.",
    ),
)
THEOREMS = (
    TheoryClaim(
        "combined-theorem-1",
        "Combined, §4.2, Theorem 1, and supplement, B",
        "Under the paper's assumptions, as we reconstruct them, its program finds the optimum.",
        "The assumptions are those that the supplement's program makes: stored tensors stay until "
        "their backward operation, nothing leaves after the loss or returns before it, only "
        "outputs of stages leave, transfers may pause. Section 3.2, which states them, we do not "
        "have; an assumption there that forbids what happens here would save the theorem. The "
        "smallest chain we found: stated is what the program returns without rounding, the "
        "optimum is at most what a checked execution and schedule take, which keep to the "
        "assumptions. Where the device waits for a prefetch, it runs something again that has to "
        "run later anyway ([how](theory/errata.md#errata-combined)).",
        attained=False,
        shown="under these assumptions",
    ),
)
SEARCHED = (
    SearchedClaim(
        "combined-lemma-1",
        "Combined, supplement, A, Lemma 1",
        "A sequence that is run while memory falls waits exactly as long as the operation says "
        "that lacks most, less what is carried after it.",
        "Random sequences of operations, on a grid of ticks: the formula, and the least waiting by "
        "a search through all ways to run, to wait and to carry. Offloading is the same in "
        "reversed time.",
    ),
    SearchedClaim(
        "combined-complexity",
        "Combined, Theorem 1, and supplement, B.4",
        "The program takes O(L² N³ + L³ N²).",
        "Chains of 4 to 24 stages and 6 to 48 slots, of random sizes: all choices in all states "
        "that the equations of B.1 to B.3 reach. The claim fails where these are more than "
        "L² N³ + L³ N².",
        "An order of growth speaks of all sizes and of some constant; counted are sizes that "
        "a program can go through, with the constant 1.",
    ),
)


def program_section(evidence: EvidenceFile) -> str:
    """Return the section of the claims page about the combined paper's program."""
    return figures_section(evidence, HEADING, _INTRODUCTION, PROGRAM, THEOREMS, SEARCHED)
