"""Test claims of today's frameworks about what to keep: a section of docs/claims.md.

    python benchmarks/claims_field.py [--only PATTERN] [--time-limit 30]
    python benchmarks/claims_field.py --report-only

Steps of twelve models are captured on fake tensors and certified half of the way from the least
memory to all, beside what planners decide; Megatron's modules are run again in four of them, and
certified at the peak that this takes; PyTorch's partitioner divides four small networks at 19
budgets. What is in the folder already is not made again. Then the evidence and the section are
written, which takes seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import budget
from claims_layers import Step, captured
from claims_sections import replace_section

import offcert
from offcert.certification.ladder import certify
from offcert.certification.other_ways import beginning, carried_out
from offcert.core.documents import read_json, write_json
from offcert.proofs.certificate import certificate_from_json
from offcert.questions.schedule.problem import Problem, Recompute
from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures, evidence_of
from papers.claims.evidence_check import Again, Judge, proved_range, schedule_certificate
from papers.claims.field import FIELD, HEADING, field_section
from papers.field.carried import shortest
from papers.field.hand_chosen import HAND_CHOSEN, hand_chosen
from papers.field.planners import PLANNERS, decisions

DOCS = Path(__file__).parent.parent / "docs"
SECTION, COMMAND = "field", "python benchmarks/claims_field.py"
FOLDER = Path("out/claims-field")
# Larger certificates, as JSON, are named by their digests.
LARGEST = 3 * 2**18
BUDGETS = [part / 20 for part in range(21)]
# What PyTorch asks its solvers for: neither nothing nor everything.
DIVIDED = BUDGETS[1:-1]
# Of each network, the budgets at whose peak another division is looked for. Arbitrary.
COMPARED = (0.1, 0.3, 0.5)
# The part of the way from the least memory to the peak.
PART = Fraction(1, 2)
# Decoders of five families, encoders of text and of images, and both, on cards that they fit.
STEPS = {
    step.model: step
    for step in (
        Step("llama-3.2-1b", 4, 2048, "rtx-4090", ()),
        Step("llama-3.1-8b", 1, 4096, "h100-sxm", ()),
        Step("qwen3-0.6b", 4, 2048, "rtx-4090", ()),
        Step("gemma-3-1b", 2, 2048, "rtx-4090", ()),
        Step("llama-3.2-3b", 1, 4096, "h100-sxm", ()),
        Step("qwen3-4b", 1, 4096, "h100-sxm", ()),
        Step("mistral-7b", 1, 4096, "h100-sxm", ()),
        Step("phi-4", 1, 4096, "h100-sxm", ()),
        Step("gpt2", 4, 1024, "a10", ()),
        Step("bert-large", 8, 512, "a10", ()),
        Step("vit-l-16", 32, 0, "a10", ()),
        Step("whisper-small", 8, 448, "a10", ()),
    )
}
MEGATRON = ("llama-3.2-1b", "llama-3.1-8b", "qwen3-0.6b", "gemma-3-1b")
Made = dict[str, Any]


def limited(model: str) -> Problem:
    """Return a step with memory for a part of the way from the least to all."""
    problem = replace(captured(STEPS[model]), recompute=Recompute.ANY)
    least, peak = problem.least_memory, problem.peak_memory
    return problem.with_memory(least + int((peak - least) * PART))


def step_of(problem: Problem, planner: str) -> int | None:
    """Return the ticks of a planner's shortest decision that fits."""
    return shortest(problem, decisions(problem, planner, BUDGETS))


def planned(model: str, time_limit: float) -> Made:
    """Return the steps of all planners, and a certificate within the same memory."""
    problem = limited(model)
    steps = {planner: step_of(problem, planner) for planner in PLANNERS}
    found = certify(problem, time_limit=time_limit, workers=1)
    return {"steps": steps, "certificate": found.to_json()}


def by_hand(model: str, words: str, time_limit: float) -> Made:
    """Return the step with some modules run again, and a certificate within its peak."""
    problem = replace(captured(STEPS[model]), recompute=Recompute.ANY)
    assert problem.computed is not None
    decision = hand_chosen(problem.computed, words)
    done = carried_out(problem, decision)
    assert not done.faults, done.faults[0]
    within = problem.with_memory(done.peak)
    known = beginning(within, decision.execution, done.schedule)
    found = certify(within, time_limit=time_limit, workers=1, known=known)
    return {"steps": {"by hand": done.schedule.makespan}, "certificate": found.to_json()}


def divided(name: str, time_limit: float) -> Made:
    """Return costs and peaks of a network's divisions, and the least costs within some peaks."""
    costs = dict(zip(DIVIDED, budget.divided(name, [(b, "dp") for b in DIVIDED]), strict=True))
    rows: list[Made] = []
    for part, cost in costs.items():
        row: Made = {"budget": part, "again": cost.again, "peak": cost.peak}
        if part in COMPARED:
            ours = offcert.budget_solver(peak=cost.peak, time_limit=time_limit)
            (best,) = budget.divided(name, [(1e-6, ours)])
            report = ours.reports[0]
            row["best"] = best.again if report.kept else None
        rows.append(row)
    return {"rows": rows}


def cases(time_limit: float) -> dict[str, Callable[[], Made]]:
    """Return the function that makes each case, by its name."""
    found: dict[str, Callable[[], Made]] = {
        f"{name} divided": lambda name=name: divided(name, time_limit) for name in budget.MODELS
    }
    for model in STEPS:
        found[f"{model} at {PART}"] = lambda m=model: planned(m, time_limit)
    for model in MEGATRON:
        for words in HAND_CHOSEN:
            found[f"{model}: {words}"] = lambda m=model, w=words: by_hand(m, w, time_limit)
    return found


def rows_of(case: str, made: Made) -> Iterator[tuple[EvidenceRow, list[Any]]]:
    """Yield the rows of a case, with its certificate if that is small enough for the evidence."""
    if "rows" in made:
        yield from ((row, []) for row in divided_rows(case.removesuffix(" divided"), made["rows"]))
        return
    document = made["certificate"]
    lower, best = proved_range(certificate_from_json(document))
    assert best is not None, case
    steps = made["steps"]
    known = min(best, *(step for step in steps.values() if step is not None))
    small = [document] * (len(json.dumps(document)) <= LARGEST)
    for name, step in steps.items():
        figures: Figures = {"lower": lower, "best": best, "known": known, "step": step}
        key = "megatron-selective" if name == "by hand" else f"planner-{name}"
        yield EvidenceRow(key, case, figures, document["digest"]), small
    if "ilp" in steps:
        figures = {"step": steps["ilp"], "other": steps["greedy"]}
        yield EvidenceRow("planner-ilp-better", case, figures, document["digest"]), small


def divided_rows(name: str, rows: list[Made]) -> Iterator[EvidenceRow]:
    """Yield the rows about a network's divisions."""
    for small, large in pairwise(rows):
        case = f"{name}, {large['budget']:g} to {small['budget']:g}"
        figures: Figures = {"peak": small["peak"], "other": large["peak"]}
        yield EvidenceRow("budget-peak", case, figures)
    for row in rows:
        if "best" in row:
            again, best = row["again"], row["best"]
            known = again if best is None else min(again, best)
            figures = {"known": known, "step": again, "peak": row["peak"]}
            yield EvidenceRow("budget-least", f"{name} at {row['budget']:g}", figures)


def evidence(folder: Path = FOLDER, only: str = "*", time_limit: float = 30.0) -> EvidenceFile:
    """Return the evidence; what is not in the folder is made."""
    rows: list[tuple[EvidenceRow, list[Any]]] = []
    for case, make in cases(time_limit).items():
        path = folder / f"{case.replace(' ', '-').replace('/', '_')}.json"
        if not path.exists():
            if not fnmatchcase(case, only):
                continue
            _say(case)
            folder.mkdir(parents=True, exist_ok=True)
            write_json(path, make())
        rows += rows_of(case, read_json(path))
    keys = [claim.key for claim in FIELD]
    rows.sort(key=lambda item: keys.index(item[0].claim))
    return evidence_of(SECTION, COMMAND, rows)


def judges(known: EvidenceFile) -> dict[str, Judge]:
    """Return the function that judges each claim by the rows of its cases."""
    return {
        claim.key: lambda rows, claim=claim: [str(claim.judge(rows).verdict)] for claim in FIELD
    }


def published(docs: Path) -> EvidenceFile:
    """Return empty evidence, where there is no file of it."""
    return EvidenceFile(SECTION, COMMAND, (), {})


def stated_again() -> dict[str, Again]:
    """Return functions that let planners decide again on the certificates' own problems."""

    def problem_of(row: EvidenceRow, held: Any) -> Problem | None:
        return None if held is None else schedule_certificate(held).problem

    def planner(name: str) -> Again:
        def again(row: EvidenceRow, held: Any) -> Figures:
            problem = problem_of(row, held)
            return {} if problem is None else {"step": step_of(problem, name)}

        return again

    def better(row: EvidenceRow, held: Any) -> Figures:
        problem = problem_of(row, held)
        if problem is None:
            return {}
        return {"step": step_of(problem, "ilp"), "other": step_of(problem, "greedy")}

    def modules(row: EvidenceRow, held: Any) -> Figures:
        problem = problem_of(row, held)
        if problem is None or problem.computed is None:
            return {}
        decision = hand_chosen(problem.computed, row.case.partition(": ")[2])
        done = carried_out(problem, decision)
        within = {} if done.peak == problem.platform.memory else {"peak": done.peak}
        return {"step": done.schedule.makespan, **within}

    @cache
    def costs(name: str) -> dict[float, budget.Cost]:
        return dict(zip(DIVIDED, budget.divided(name, [(b, "dp") for b in DIVIDED]), strict=True))

    def peaks(row: EvidenceRow, held: Any) -> Figures:
        name, _, parts = row.case.partition(", ")
        large, small = (costs(name)[float(part)] for part in parts.split(" to "))
        return {"peak": small.peak, "other": large.peak}

    def again(row: EvidenceRow, held: Any) -> Figures:
        name, _, part = row.case.partition(" at ")
        return {"step": costs(name)[float(part)].again, "peak": costs(name)[float(part)].peak}

    found = {f"planner-{name}": planner(name) for name in PLANNERS}
    found |= {"planner-ilp-better": better, "megatron-selective": modules}
    return found | {"budget-peak": peaks, "budget-least": again}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Iterable[str] | None = None) -> None:
    """Make the missing cases, write the evidence and replace the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="pattern of cases that are made")
    parser.add_argument("--time-limit", type=float, default=30.0, help="of certify (%(default)s)")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--report-only", action="store_true")
    options = parser.parse_args(None if arguments is None else list(arguments))
    only = "" if options.report_only else options.only
    found = evidence(options.folder, only, options.time_limit)
    found.write(options.docs)
    replace_section(options.docs / "claims.md", HEADING, field_section(found))
    _say(f"wrote evidence and section about planners in {options.docs}")


if __name__ == "__main__":
    main()
