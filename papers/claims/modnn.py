"""The section of `docs/claims.md` about the evaluation of the moDNN paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import ceil, exp, floor, log
from statistics import mean
from textwrap import fill

from papers.claims.evidence import EvidenceFile, rests_on
from papers.claims.judge import Finding, Outcome
from papers.claims.modnn_cases import CASES, CaseClaim
from papers.claims.modnn_claims import NumberClaim, Numbers, certified_times
from papers.claims.modnn_list import NUMBERS
from papers.claims.modnn_rows import GB, MemoryRow, ModnnRows, TimeRow

HEADING = "## Claims of the moDNN paper"

_INTRODUCTION = """\
Chen, Chen, Han and Hu, "moDNN: Memory Optimal Deep Neural Network Training on Graphics Processing
Units" (TPDS 2019), measure six networks on K40s. Here they are by [a stated
model](theory/modnn.md): a roofline of the K40 and of its link, and formulas for convolutions. The
paper prints no times and no workspaces; so what depends on those can be reproduced or not, but not
be refuted as a description of what the authors measured.

```sh
python benchmarks/devices.py measure -o out/devices.json
python benchmarks/claims_modnn.py measure --devices out/devices.json
```"""

_COUNTED = """\
**Verdicts** follow from the numbers by [the rule](#tolerances), as factors. *Fitted*: it agrees, by
a reading that was chosen so that it does. *Certified* is between what the same mean lies for the
best that there is, from a checked schedule to a proved bound: of all choices on one GPU, of all
schedules with the same sub-batches on four. Where that excludes what the paper says, it is *out of
reach* in the model. *Exact* are sums of sizes and times. Statements about every network are judged
as on the rest of this page.

**Readings.** Where the paper leaves room, the numbers that it prints decide what is meant: what
Eq. 8 counts, what vDNN waits for, what a GB is. `python benchmarks/modnn_readings.py` prints them
reading by reading; [the theory](theory/modnn.md#modnn-readings) says which is taken.

**Out of reach.** Power and energy (Figs. 15 and 16) were measured; a roofline has neither. Of §7.4
only sub-batches, transfers and times are judged. Sub-batches are printed for ResNet-34 only, and
neither transfers nor algorithms of single networks are; how far those agree cannot be told."""


def modnn_section(rows: ModnnRows, figure: str, evidence: EvidenceFile | None = None) -> str:
    """Return the section, with a picture beside the page.

    Parameters
    ----------
    rows : ModnnRows
        Its figures.
    figure : str
        The picture's name.
    evidence : EvidenceFile, optional
        Certificates that claims rest on; the figures alone, where there are none.
    """
    lines = [HEADING, "", _INTRODUCTION, "", _COUNTED, "", *_evidence(rows), ""]
    lines += [f"![times, memory and four GPUs, with what is certified]({figure})", ""]
    lines += ["| claim | place | paper | here | certified | verdict |"]
    lines += ["| --- | --- | ---: | ---: | ---: | --- |", *_summary(rows), ""]
    lines += ["### Memory", "", *_memory(rows), "", "### Time by memory", "", *_times(rows)]
    lines += ["", "### Sub-batches", "", *_sizes(rows)]
    for number in NUMBERS:
        lines += [*_number_lines(number, rows), _rests(number.key, evidence)]
    for case in CASES:
        lines += [*_case_lines(case, rows), _rests(case.key, evidence)]
    return "\n".join(lines) + "\n"


def _rests(claim: str, evidence: EvidenceFile | None) -> str:
    if evidence is not None and evidence.of(claim):
        return rests_on(evidence, claim)
    return "- Rests on: figures in [claims-modnn.json](claims-modnn.json)."


def _evidence(rows: ModnnRows) -> Iterator[str]:
    gaps = [Fraction(row.best_time - row.bound, row.best_time) for row in rows.times]
    optimal, largest = sum(gap == 0 for gap in gaps), float(100 * max(gaps))
    text = (
        f"**Evidence.** Every certificate is verified: {len(gaps)} of steps with all choices on "
        f"one GPU, at most {rows.seconds:g} s each on a core, largest gap {largest:.2f} %, "
        f"{optimal} optimal; those of least memory; and those [of several GPUs]"
        "(theory/several-gpus.md), where the tables of Figures 17 to 19 are."
    )
    yield fill(text, 100, break_long_words=False)


def written(value: Fraction, kind: str, to: Callable[[Fraction], int] = round) -> str:
    """Return a factor for people: ``"times"``, ``"more"`` or ``"less"``, as in `NumberClaim`.

    Three digits, of percentages two, rounded by `to`.
    """
    if kind == "times":
        return f"{_digits(value, 3, to)}×"
    percent = 100 * (value - 1) if kind == "more" else 100 * (1 - 1 / value)
    return f"{_digits(percent, 2, to)} %"


def _digits(value: Fraction, count: int, to: Callable[[Fraction], int]) -> str:
    places = count
    while places and value * 10**places >= 10**count:
        places -= 1
    return f"{to(value * 10**places) / 10**places:g}"


def _certified(numbers: Numbers, kind: str) -> str:
    if numbers.certified is None:
        return "exact" if numbers.exact else "–"
    low, high = numbers.certified
    if low == high:
        return written(low, kind)
    # What is proved is rounded to the safe side.
    return f"{written(low, kind, floor)} to {written(high, kind, ceil)}"


def _summary(rows: ModnnRows) -> Iterator[str]:
    for claim in NUMBERS:
        numbers, kind = claim.numbers(rows), claim.written
        cells = [f"[{claim.statement}](#{claim.key})", claim.place, written(claim.paper, kind)]
        cells += [written(numbers.mean, kind), _certified(numbers, kind), claim.verdict(rows)]
        yield f"| {' | '.join(cells)} |"
    for case in CASES:
        finding = case.judge(rows)
        holds = f"{finding.count(Outcome.HOLDS)} of {len(finding.cases)}"
        cells = [f"[{case.statement}](#{case.key})", case.place, "all", holds, case.certified]
        yield f"| {' | '.join([*cells, case.verdict(rows)])} |"


def _number_lines(claim: NumberClaim, rows: ModnnRows) -> list[str]:
    numbers, kind = claim.numbers(rows), claim.written
    certified = f"; certified {_certified(numbers, kind)}" if numbers.certified else ""
    lines = ["", f"### {claim.key}", "", f"{claim.statement} ({claim.place})", ""]
    found = f"**{claim.verdict(rows)}**: {written(numbers.mean, kind)}{certified}"
    lines += [f"- {claim.test}", f"- {found}. {_each(claim, rows)}"]
    return lines + ([f"- {claim.why}"] if claim.why else [])


def _each(claim: NumberClaim, rows: ModnnRows) -> str:
    """Return the numbers of all networks, or, if there are too many, the range they are in."""
    ours = claim.numbers(rows).ours
    if len(ours) > len(rows.networks):
        low, high = (written(each(ours.values()), claim.written) for each in (min, max))
        return f"From {low} to {high} in {len(ours)} cases{_beside(claim, rows)}."
    parts = [f"{name} {written(value, claim.written)}" for name, value in ours.items()]
    middle = Fraction(exp(mean(log(value) for value in ours.values())))
    text = f"{', '.join(parts)}"
    if max(ours.values()) > 10 * min(ours.values()):
        text += f"; geometric mean {written(middle, claim.written)}"
    return f"{text}{_beside(claim, rows)}."


def _beside(claim: NumberClaim, rows: ModnnRows) -> str:
    if claim.beside is None:
        return ""
    what, numbers = claim.beside
    found, kind = numbers(rows), claim.written
    text = f"; {what}, {written(found.mean, kind)}"
    low, high = found.certified or (found.mean, found.mean)
    return text if low == high else f"{text} ({_certified(found, kind)})"


def _case_lines(claim: CaseClaim, rows: ModnnRows) -> list[str]:
    finding = claim.judge(rows)
    lines = ["", f"### {claim.key}", "", f"{claim.statement} ({claim.place})", ""]
    found = f"**{claim.verdict(rows)}**; {finding.counts()}{_cases(finding)}"
    lines += [f"- {claim.test}", f"- {found}."]
    return lines + ([f"- {claim.why}"] if claim.why else [])


def _cases(finding: Finding) -> str:
    """Return the cases for people; if there are many of an outcome, only how they range."""
    text = ""
    for outcome in (Outcome.FAILS, Outcome.OPEN, Outcome.HOLDS):
        cases = [case for case in finding.cases if case.outcome is outcome]
        if not 0 < len(cases) <= 12:
            counts = Counter(case.text for case in cases).most_common(1)
            text += f". {str(outcome).title()}: most often {counts[0][0]}" if counts else ""
            continue
        named = "; ".join(f"{case.label}, {case.text}" for case in cases)
        text += f". {str(outcome).title()}: {named}"
    return text


def _memory(rows: ModnnRows) -> Iterator[str]:
    yield (
        "GB. *Live*: the most that is there at a time, everything from its first to its last use. "
        "*Offloading*, *sub-batches*, *algorithms*: the least with one technique alone. *Least*: "
        "certified, with the time a step then takes at best, by the ideal one."
    )
    yield ""
    heads = ["network", "ideal", "live", "offloading", "sub-batches", "algorithms"]
    heads += ["least", "time", "weights leave", "time"]
    yield f"| {' | '.join(heads)} |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for row in rows.memory:
        sizes = (row.ideal, row.live, row.offloading, row.sub_batches, row.algorithms, row.least)
        cells = [row.network, *(f"{size / GB:.3g}" for size in sizes)]
        cells += [_time(row, row.least_time, row.least_bound), f"{row.least_weights / GB:.3f}"]
        cells += [_time(row, row.least_time_weights, row.least_bound_weights)]
        yield f"| {' | '.join(cells)} |"


def _time(row: MemoryRow, best: int | None, bound: int | None) -> str:
    if best is None or bound is None:
        return "–"
    found, proved = f"{best / row.ideal_time:.2f}", f"{bound / row.ideal_time:.2f}"
    return found if found == proved else f"{found} (≥ {proved})"


def _times(rows: ModnnRows) -> Iterator[str]:
    yield (
        "Mean over the networks of the time of a batch by the ideal case; in brackets for how many "
        "there is a plan, if not for all. *Best policy*: of vDNN's, offloading nothing among them; "
        "otherwise it offloads all layers. *Whole*: Algorithm 1 and vDNN with the whole batch."
    )
    yield ""
    heads = ["GB", "moDNN", "vDNN+", "vDNN+, best policy", "whole, moDNN", "whole, vDNN"]
    heads += ["best", "bound"]
    yield f"| {' | '.join(heads)} |"
    yield "| ---: |" + " ---: |" * (len(heads) - 1)
    names = ("modnn", "plus", "dynamic", "whole", "vdnn")
    for memory in sorted({row.memory for row in rows.times}, reverse=True):
        found = rows.at(memory)
        bound, best = certified_times(found)
        cells = [f"{memory / GB:g}", *(slowed(found, name) for name in names)]
        cells += [f"{float(best):.3f}", f"{float(bound):.3f}"]
        yield f"| {' | '.join(cells)} |"


def _sizes(rows: ModnnRows) -> Iterator[str]:
    memories = sorted({row.memory for row in rows.times}, reverse=True)
    yield "Images at a time, as Eq. 8 selects them; in brackets the certified best."
    yield ""
    yield f"| GB | {' | '.join(rows.networks)} |"
    yield "| ---: |" + " ---: |" * len(rows.networks)
    for memory in memories:
        cells = [f"{row.modnn_size} ({row.best_size})" for row in rows.at(memory)]
        yield f"| {memory / GB:g} | {' | '.join(cells)} |"


def slowed(rows: Sequence[TimeRow], name: str) -> str:
    """Return the mean slow-down of a method where it has a plan, and for how many that is."""
    known = [(getattr(row, f"{name}_time"), row.ideal_time) for row in rows]
    ratios = [Fraction(time, ideal) for time, ideal in known if time is not None]
    if not ratios:
        return "–"
    text = f"{float(mean(ratios)):.3f}"
    return text if len(ratios) == len(rows) else f"{text} ({len(ratios)})"
