"""Claims of the combined paper about memory at an overhead of a fifth, against certificates.

The section of `docs/claims.md` about recomputation and offloading together. Each row is what
`benchmarks/certify_joint.py` says of a network and some means: bytes of a checked plan, and bytes
that no execution can do without. So a factor lies between two numbers, and a case is open as long
as the claim's lies between them, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from offcert.core.documents import Fields, require_format
from offcert.core.units import Units, format_size
from papers.claims.evidence import EvidenceFile, rests_on
from papers.claims.judge import ALWAYS, Case, Finding, Outcome, Share, Verdict, judge

HEADING = "## Claims about recomputation and offloading together"
FORMAT, VERSION = "offcert-combined-rows", 1
MEANS = ("offload", "recompute", "both")
# Of the networks that the paper measures.
_PUBLISHED = ("resnet", "densenet", "inception")
_LEAST, _MOST = 4, 6
_BYTES = Units("ns", "B")
_HEAD = "| network | peak | offloading | recomputation | both | times less |"
# The input on which the paper measures its networks.
_IMAGES = "16x3x500x500"

_INTRODUCTION = """\
Beaumont, Eyraud-Dubois and Shilova, "Efficient Combination of Rematerialization and Offloading for
Training DNNs" (NeurIPS 2021), say in the abstract that both together reduce the memory used for
activations by a factor of 4 to 6, with an overhead below 20 %. That is measured against training in
which everything runs once and stays, by their dynamic program, on ResNets, DenseNets and Inception
of torchvision (batches of 16, images of 500 pixels, a V100 whose link moves 12 GB/s). Of the paper
we have the supplement only, so that sentence is known at second hand, and a verdict is one on it:
over what the authors average, and which memory they count, cannot be settled here."""

_COUNTED = """\
**What is counted.** *Memory* is what is live beside parameters and their gradients, buffers, the
batch and the state of the optimiser, as the runtime counts it: activations, what autograd keeps,
gradients of activations, and the workspaces that a profile knows. The *peak* is that of the step in
which everything runs once. The *least memory* is the smallest limit at which there is a schedule
that takes at most 1.2 times the computing time; by a roofline of the V100-PCIe with a link of
12.2 GB/s, at the granularity of modules. Plans are such that the runtime carries them out: what
runs again are segments of the user's modules. Bounds are for every execution, whatever runs again
and whenever. Every certificate has been verified. A claim that fails here is refuted as a general
statement, not as a description of what the authors measured.

In the table: the part of the peak that the best plan takes and, in brackets, what is proved that
every plan takes. *Times less* is the peak divided by these two, for both means together. Searches
had the seconds that the commands name, on two busy cores; more time narrows what is open."""


@dataclass(frozen=True)
class CombinedRow:
    """The least memory of a network with some means, as found and as proved.

    Attributes
    ----------
    network : str
        Its name, and its input.
    means : str
        One of `MEANS`.
    peak, found, bound : int
        Bytes: all that runs once and stays, the best plan, and what is proved.
    seconds : float
        Time limit of the search.
    """

    network: str
    means: str
    peak: int
    found: int
    bound: int
    seconds: float


def rows_to_json(rows: Sequence[CombinedRow]) -> dict[str, Any]:
    """Return rows as a JSON value."""
    return {"format": FORMAT, "version": VERSION, "rows": [asdict(row) for row in rows]}


def rows_from_json(document: Any) -> list[CombinedRow]:
    """Return the rows that a JSON value holds.

    Raises
    ------
    InputError
        If a field is missing, wrong or unknown.
    """
    fields = Fields(document)
    require_format(fields, FORMAT, VERSION)
    rows = []
    for item in fields.each("rows"):
        peak, found, bound = (item.integer(name, 1) for name in ("peak", "found", "bound"))
        names = item.get("network", str), item.get("means", str)
        seconds = float(item.get("seconds", (int, float)))
        rows.append(CombinedRow(*names, peak, found, bound, seconds))
        item.finish()
    fields.finish()
    return rows


@dataclass(frozen=True)
class Comparison:
    """The rows of one network, by means."""

    network: str
    rows: dict[str, CombinedRow]

    @property
    def published(self) -> bool:
        """Whether the paper measures networks of its family."""
        return self.network.startswith(_PUBLISHED)

    @property
    def factors(self) -> tuple[Fraction, Fraction]:
        """How many times less both means take: at least, and at most."""
        both = self.rows["both"]
        return Fraction(both.peak, both.found), Fraction(both.peak, both.bound)


@dataclass(frozen=True)
class CombinedClaim:
    """A statement of the paper; attributes as for `Claim`.

    Attributes
    ----------
    published : bool or None
        Whether it is about networks of the paper's families or about others; None for both.
    """

    key: str
    place: str
    statement: str
    test: str
    published: bool | None = None
    share: Share = ALWAYS

    def judge(self, comparisons: Iterable[Comparison]) -> Finding:
        """Return the finding of certificates about the claim."""
        own = [each for each in comparisons if self.published in (None, each.published)]
        case = {"least": _least, "most": _most, "better": _better}[self.key.split("-")[1]]
        if case is _better:
            own = [each for each in own if all(means in each.rows for means in MEANS)]
        return judge([case(each) for each in own], self.share)


def _least(comparison: Comparison) -> Case:
    least, most = comparison.factors
    return _case(comparison, least >= _LEAST, most < _LEAST, Fraction(_LEAST) - most)


def _most(comparison: Comparison) -> Case:
    least, most = comparison.factors
    return _case(comparison, most <= _MOST, least > _MOST, least - _MOST)


def _better(comparison: Comparison) -> Case:
    both = comparison.rows["both"]
    alone = [comparison.rows[means] for means in MEANS[:2]]
    holds = all(both.found < row.bound for row in alone)
    fails = any(both.bound >= row.found for row in alone)
    return _case(comparison, holds, fails, max(Fraction(both.found, row.found) for row in alone))


def _case(comparison: Comparison, holds: bool, fails: bool, amount: Fraction) -> Case:
    outcome = Outcome.HOLDS if holds else Outcome.FAILS if fails else Outcome.OPEN
    return Case(comparison.network, outcome, amount, f"{_range(*comparison.factors)} times less")


def _range(least: Fraction, most: Fraction) -> str:
    low, high = f"{_down(least):.2f}", f"{_up(most):.2f}"
    return low if low == high else f"{low} to {high}"


def _down(value: Fraction) -> float:
    return int(value * 100) / 100


def _up(value: Fraction) -> float:
    # What is proved is rounded to the safe side, unless that would only hide that it is met.
    return -int(-value * 100 // 1) / 100


def comparisons_of(rows: Sequence[CombinedRow]) -> list[Comparison]:
    """Return the rows by network, in their order; only of those that have both means."""
    names = dict.fromkeys(row.network for row in rows)
    found = [
        Comparison(name, {row.means: row for row in rows if row.network == name}) for name in names
    ]
    return [each for each in found if "both" in each.rows]


def combined_section(rows: Sequence[CombinedRow], evidence: EvidenceFile) -> str:
    """Return the section of the claims page about recomputation and offloading together."""
    comparisons = comparisons_of(rows)
    found = {claim.key: claim.judge(comparisons) for claim in COMBINED}
    lines = [HEADING, "", _INTRODUCTION, "", *_commands(comparisons), ""]
    lines += [_COUNTED, "", _HEAD]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    lines += [_line(each) for each in comparisons]
    lines += ["", "| claim | place | on these networks |", "| --- | --- | --- |"]
    for claim in COMBINED:
        verdict = found[claim.key].verdict
        lines.append(f"| [{claim.statement}](#{claim.key}) | {claim.place} | {verdict} |")
    for claim in COMBINED:
        finding = found[claim.key]
        lines += ["", f"### {claim.key}", "", f"{claim.statement} ({claim.place})", ""]
        lines += [f"- {claim.test}", f"- **{finding.verdict}**; {_measure(finding)}"]
        lines += [rests_on(evidence, claim.key)]
    return "\n".join(lines) + "\n"


def _commands(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the commands that made the figures and the section; other limits in other calls."""
    calls: dict[tuple[bool, tuple[str, ...], float], list[str]] = {}
    for each in comparisons:
        given = each.network.endswith(_IMAGES)
        usual = min(row.seconds for row in each.rows.values())
        names = calls.setdefault((given, tuple(each.rows), usual), [])
        names.append(each.network.split()[0])
        for row in each.rows.values():
            if row.seconds > usual:
                names = calls.setdefault((given, (row.means,), row.seconds), [])
                names.append(each.network.split()[0])
    lines, files = ["```sh"], []
    for number, ((given, means, seconds), names) in enumerate(calls.items(), 1):
        files.append(f"out/combined-{number}.json")
        shape = f"--input {_IMAGES} " if given else ""
        lines.append(f"python benchmarks/certify_joint.py {' '.join(names)} {shape}\\")
        lines.append(f"    --overhead 20% --means {' '.join(means)} --time-limit {seconds:g} \\")
        lines.append(f"    -o {files[-1]} --certificates out/combined")
    lines.append(f"python benchmarks/claims_combined.py {' '.join(files)} \\")
    return [*lines, "    --certificates out/combined", "```"]


def _line(comparison: Comparison) -> str:
    peak = comparison.rows["both"].peak
    cells = [comparison.network, format_size(peak, _BYTES)]
    for means in MEANS:
        row = comparison.rows.get(means)
        cells.append("–" if row is None else f"{row.found / peak:.3f} ({row.bound / peak:.3f})")
    cells.append(_range(*comparison.factors))
    return f"| {' | '.join(cells)} |"


def _measure(finding: Finding) -> str:
    text = finding.counts()
    for word, outcome in (("Fails", Outcome.FAILS), ("Open", Outcome.OPEN)):
        cases = [case for case in finding.cases if case.outcome is outcome]
        if cases:
            text += f". {word}: {'; '.join(f'{case.label}, {case.text}' for case in cases)}"
    if finding.verdict is Verdict.CONFIRMED and finding.worst is not None:
        text += f". Closest to failing: {finding.worst.label}, {finding.worst.text}"
    return text + "."


# Known from what others say of the paper: the texts that we have are its supplement alone.
_ABSTRACT = "Combined, Abstract (at second hand)"
COMBINED = (
    CombinedClaim(
        "combined-least",
        _ABSTRACT,
        "Together they take at least 4 times less memory, with an overhead below 20 % (ResNets, "
        "DenseNets, Inception).",
        "Each case is a network of a family that the paper measures. The claim holds there if a "
        "checked plan takes at most a quarter of the peak, and fails if it is proved that none "
        "does.",
        published=True,
    ),
    CombinedClaim(
        "combined-least-others",
        f"{_ABSTRACT}, as a general statement",
        "They do so on other networks.",
        "The same on networks of other families.",
        published=False,
    ),
    CombinedClaim(
        "combined-most",
        f"{_ABSTRACT}, read as a range",
        "It is at most 6 times less (ResNets, DenseNets, Inception).",
        "The claim fails on a network if a checked plan takes less than a sixth of the peak, and "
        "holds if it is proved that none does.",
        published=True,
    ),
    CombinedClaim(
        "combined-better",
        _ABSTRACT,
        "Combining them saves more memory than either alone.",
        "Each case is a network. The claim holds there if the plan with both takes less than what "
        "is proved that any plan with one of them takes, and fails if a plan with one takes no "
        "more than what is proved for both.",
    ),
)
