"""Claims of today's frameworks about what to keep, to run again and to offload, certified.

The section of `docs/claims.md` about planners of torchtitan and PyTorch, and about Megatron's
hand-chosen modules: each stands beside the best plan known within the same peak, and beside what
is proved of all plans within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from papers.claims.evidence import EvidenceFile, EvidenceRow, rests_on
from papers.claims.judge import ALWAYS, USUALLY, Case, Finding, Outcome, Share, judge
from papers.claims.layers import NOTHING, cases_text

HEADING = "## Claims of today's field: planners"

_INTRODUCTION = f"""\
Frameworks decide by budgets, by ranks, by small integer programs or by hand which results stay,
run again or leave, and none says how far that is from the best. Here their decisions stand beside
certificates **within the same peak**: a decision loses at least what it takes more than the best
plan known, and at most what it takes more than what is proved of all plans. A claim *holds* in a
case if at most {100 * NOTHING} % is lost, *fails* if at least that is, and is *open* otherwise; a
planner that finds nothing that fits fails.

Steps are captured from public shapes ([how](models.md)) at the granularity of modules, with times
of a roofline. *Planners*: budgets from 0 to 1 in steps of a twentieth are tried, and of what fits
the shortest counts; what is to leave does so by the best ordered transfers, so that what is lost
is lost by decisions. torchtitan's planner is a linear program over layers, then ranks or an
integer program inside each; both are written anew here, from the description of its pull requests
(pytorch/torchtitan#3943, #4636), and see what it sees: a result's bytes, and the time of the
computation that makes it. PyTorch's knapsack is its own code, with the captured results as items.
*Budgets*: PyTorch's partitioner itself divides joint graphs of small networks, operator by
operator; nothing is modelled. *Megatron*: each module that it names is a checkpoint.

What stays out: planners on graphs of operators after fusion, several devices, and modules of
mixtures of experts (`moe`, `moe_act`), whose sizes depend on data.

```sh
python benchmarks/claims_field.py
```"""


@dataclass(frozen=True)
class FieldClaim:
    """A statement about decisions; attributes as for `Claim`.

    Attributes
    ----------
    source : str
        Who says or asks it.
    """

    key: str
    source: str
    statement: str
    test: str
    share: Share = ALWAYS

    def judge(self, rows: Sequence[EvidenceRow]) -> Finding:
        """Return the finding of rows about the claim."""
        case = _CASES.get(self.key, case_of)
        return judge([case(row) for row in rows], self.share)


def case_of(row: EvidenceRow) -> Case:
    """Return the case of a decision beside what is best: how much it loses."""
    step, lower, known = (_whole(row, name) for name in ("step", "lower", "known"))
    if step is None:
        return Case(row.case, Outcome.FAILS, None, "nothing fits")
    assert lower is not None
    assert known is not None
    least, most = (max(Fraction(0), Fraction(step - one, max(one, 1))) for one in (known, lower))
    text = f"{float(100 * least):.2f} to {float(100 * most):.2f} % lost"
    return Case(row.case, _between(least, most), least, text)


def again_case(row: EvidenceRow) -> Case:
    """Return the case of what runs again: which part of it a division within the peak spares.

    How much the best one would spare nobody has proved, so that no case holds in which any runs.
    """
    again, known = (_whole(row, name) or 0 for name in ("step", "known"))
    least = Fraction(again - known, max(again, 1))
    text = f"at least {float(100 * least):.1f} % of it in vain"
    return Case(row.case, _between(least, Fraction(min(again, 1))), least, text)


def _between(least: Fraction, most: Fraction) -> Outcome:
    if most <= NOTHING:
        return Outcome.HOLDS
    return Outcome.FAILS if least >= NOTHING else Outcome.OPEN


def better_case(row: EvidenceRow) -> Case:
    """Return the case of two steps: whether the first is at least a hundredth shorter."""
    step, other = _whole(row, "step"), _whole(row, "other")
    if step is None or other is None:
        holds = step is not None
        return Case(row.case, _decided(holds), None, "fits alone" if holds else "nothing fits")
    gain = Fraction(other - step, step)
    return Case(row.case, _decided(gain >= NOTHING), -gain, f"{float(100 * gain):.2f} % shorter")


def peak_case(row: EvidenceRow) -> Case:
    """Return the case of two neighbouring budgets: whether the smaller one's peak is no larger."""
    peak, other = _whole(row, "peak"), _whole(row, "other")
    assert peak is not None
    assert other is not None
    more = Fraction(peak - other, max(other, 1))
    text = f"{float(100 * more):+.1f} %"
    return Case(row.case, _decided(more <= 0), more, text)


_CASES = {
    "planner-ilp-better": better_case,
    "budget-peak": peak_case,
    "budget-least": again_case,
}


def _decided(holds: bool) -> Outcome:
    return Outcome.HOLDS if holds else Outcome.FAILS


def _whole(row: EvidenceRow, name: str) -> int | None:
    value = row.figures[name]
    return None if value is None else int(str(value))


_TITAN, _PYTORCH, _MEGATRON = "torchtitan#4636", "PyTorch", "Megatron-LM"
_LOSES = "A step of a model at an equal peak, half of the way from the least memory to all."
FIELD = (
    FieldClaim(
        "planner-greedy",
        _TITAN,
        "Two levels, with greedy ranks inside of layers, lose nothing.",
        _LOSES,
    ),
    FieldClaim(
        "planner-ilp",
        _TITAN,
        "Two levels, with an integer program inside of layers, lose nothing.",
        _LOSES,
    ),
    FieldClaim(
        "planner-ilp-better",
        _TITAN,
        "An integer program inside of layers beats greedy ranks.",
        "The same steps: the claim holds where its step is at least 1 % shorter.",
        USUALLY,
    ),
    FieldClaim(
        "planner-knapsack",
        f"{_PYTORCH}, `activation_memory_budget`",
        "PyTorch's knapsack (dp) loses nothing to what may run again and leave.",
        _LOSES,
    ),
    FieldClaim(
        "planner-knapsack-greedy",
        f"{_PYTORCH}, `activation_memory_budget`",
        "Its greedy solver loses nothing, either.",
        _LOSES,
    ),
    FieldClaim(
        "budget-peak",
        "pytorch#197838",
        "A smaller `activation_memory_budget` takes no more memory at the peak.",
        "Two neighbouring budgets of a network (a twentieth apart), divided by PyTorch's "
        "partitioner; the peak is that of the tensors of both passes, node by node. The claim "
        "fails where it rises as the budget falls.",
    ),
    FieldClaim(
        "budget-least",
        f"{_PYTORCH}, `activation_memory_budget`",
        "What PyTorch's partitioner runs again at a budget is what its peak needs.",
        "A budget of a network: PyTorch's estimate of what runs again beside that of the best "
        "division of the same joint graph within the same peak that was found "
        "(`offcert.budget_solver`). The claim fails where 1 % of it or more is in vain, and else "
        "is open, as of a better one nothing is known.",
    ),
    FieldClaim(
        "megatron-selective",
        f"{_MEGATRON}, `recompute_modules`",
        "Hand-chosen modules lose nothing to a plan within the same peak.",
        "A model and what Megatron is told to run again, within the peak that this takes.",
    ),
)


def field_section(evidence: EvidenceFile) -> str:
    """Return the section of the claims page about planners of today."""
    lines = [HEADING, "", _INTRODUCTION, "", "| claim | from | verdict |", "| --- | --- | --- |"]
    found = {claim.key: claim.judge(evidence.of(claim.key)) for claim in FIELD}
    for claim in FIELD:
        verdict = found[claim.key].verdict
        lines.append(f"| [{claim.statement}](#{claim.key}) | {claim.source} | {verdict} |")
    for claim in FIELD:
        finding = found[claim.key]
        lines += ["", f"### {claim.key}", "", f"{claim.statement} ({claim.source})", ""]
        lines += [f"- {claim.test}", f"- **{finding.verdict}**; {finding.counts()}."]
        lines[-1] = f"{lines[-1]} {cases_text(finding)}."
        lines += [rests_on(evidence, claim.key)]
    return "\n".join(lines) + "\n"
