"""Test claims about planning equal layers: a section of docs/claims.md.

    python benchmarks/claims_layers.py [--only PATTERN] [--time-limit 60] [--seconds 30]
    python benchmarks/claims_layers.py --report-only

Steps of six models are captured on fake tensors and certified at two limits each; then plans that
keep to a rule are searched for, and bounds on all such plans are proved. What is in the folder
already is not made again. Then the evidence and the section are written, which takes seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from claims_sections import replace_section

from offcert.certification.ladder import certify
from offcert.core.documents import read_json, write_json
from offcert.core.result import SolveStatus
from offcert.core.units import parse_size
from offcert.proofs.certificate import Certificate, certificate_from_json, current_versions
from offcert.proofs.joint_document import read, write
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.result import Result
from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures, evidence_of
from papers.claims.evidence_check import Again, Judge, proved_range, schedule_certificate
from papers.claims.layers import CLAIMS, HEADING, KNOWN, RULES, layers_section
from papers.layers.bound import Facts, cut_of, members_of, restricted_bound
from papers.layers.rules import Alike, Rule, blocks, faults, two_levels
from papers.layers.search import best_within
from papers.layers.stretches import Layers, with_memory

DOCS = Path(__file__).parent.parent / "docs"
SECTION, COMMAND = "layers", "python benchmarks/claims_layers.py"
FOLDER = Path("out/claims-layers")
# Larger certificates, as JSON, are named by their digests.
LARGEST = 3 * 2**18
# Cases of a proof at most: of the places of a layer, and of the layers. Arbitrary.
_PLACES, _LAYERS = 150, 1
MAKERS = dict(zip((rule.key for rule in RULES), (Alike, blocks, two_levels), strict=True))


class Step(NamedTuple):
    """A training step and its limits."""

    model: str
    batch: int
    sequence: int
    hardware: str
    limits: tuple[str, ...]


# Six models whose layers repeat, of four kinds (decoders with and without a norm of queries and
# keys, an image encoder, encoder and decoder), on cards that they are trained on.
STEPS = (
    Step("llama-3.2-1b", 4, 2048, "rtx-4090", ("14GiB", "12GiB")),
    Step("llama-3.1-8b", 1, 4096, "h100-sxm", ("16GiB", "10GiB")),
    Step("qwen3-8b", 1, 4096, "h100-sxm", ("16GiB", "10GiB")),
    Step("vit-h-14", 32, 0, "a10", ("3GiB", "1GiB")),
    Step("whisper-large-v3", 4, 448, "a10", ("4GiB", "2GiB")),
    Step("llama-3.1-70b", 1, 8192, "h100-sxm", ("60GiB", "30GiB")),
)
CASES = {f"{step.model} at {limit}": (step, limit) for step in STEPS for limit in step.limits}
# All models come before the second limit of any.
_ORDER = [f"{step.model} at {step.limits[turn]}" for turn in (1, 0) for step in STEPS]


@cache
def captured(step: Step) -> Problem:
    """Return a step, captured on fake tensors."""
    import torch

    from offcert.runtime.profiling.profile import profile
    from offcert.runtime.workloads.configured import training_step

    with torch.device("meta"):
        size = (step.batch, step.sequence) if step.sequence else (step.batch,)
        made = training_step(step.model, *size)
    return profile(
        made, hardware=step.hardware, optimiser="adamw", name=step.model, recompute="none"
    )


def problem_of(case: str) -> Problem:
    """Return the problem of a case."""
    step, limit = CASES[case]
    return with_memory(captured(step), int(parse_size(limit)))


def _timed(text: str) -> None:
    _say(f"  {time.process_time():.0f} s: {text}")


def measure(case: str, time_limit: float, seconds: float) -> dict[str, Any]:
    """Return certificates and proofs of a case, by the keys of claims."""
    problem = problem_of(case)
    free = certify(problem, time_limit=time_limit, workers=1)
    layers = Layers(problem)
    made: dict[str, Any] = {}
    certificates = {KNOWN.key: free}
    for claim in RULES:
        rule: Rule = MAKERS[claim.key](layers)
        choices = rule.choices()
        most = _PLACES if isinstance(rule, Alike) else _LAYERS
        bound = restricted_bound(problem, choices, 20 * seconds, most)
        assert bound is not None, f"{case}: no bound within {claim.key}"
        plan = best_within(layers, rule.starts(bound.chosen), rule.change, seconds)
        assert plan is not None, f"{case}: no plan within {claim.key}"
        wrong = faults(problem, choices, plan.execution)
        assert not wrong, f"{case}, {claim.key}: {wrong}"
        result = Result(
            SolveStatus.FEASIBLE, plan.schedule, free.result.bounds, execution=plan.execution
        )
        certificates[claim.key] = Certificate(
            problem, result, method="papers.layers", versions=current_versions()
        )
        made[claim.key] = {"within": bound.value, "proof": write(bound.cases)}
        _timed(
            f"{claim.key}: {plan.schedule.makespan / problem.trace.compute_time:.4f}, bound "
            f"{bound.value / problem.trace.compute_time:.4f}"
        )
    made[KNOWN.key] = {}
    for key, certificate in certificates.items():
        made[key]["certificate"] = certificate.to_json()
    return made


def rows_of(case: str, made: dict[str, Any]) -> Iterator[tuple[EvidenceRow, list[Any]]]:
    """Yield the rows of a case, with the certificates that are small enough for the evidence."""
    found = {key: certificate_from_json(each["certificate"]) for key, each in made.items()}
    ranges = {key: proved_range(each) for key, each in found.items()}
    objectives = {key: best for key, (_, best) in ranges.items() if best is not None}
    shortest = min(objectives, key=objectives.__getitem__)
    for claim in CLAIMS:
        # A plan within a rule is a plan, too.
        key = shortest if claim is KNOWN else claim.key
        lower, best = ranges[key][0], objectives[key]
        document = made[key]["certificate"]
        figures: Figures = {
            "lower": lower,
            "best": best,
            "known": objectives[shortest],
            # What holds for all plans holds within a rule.
            "within": max(lower, made[claim.key].get("within", lower)),
            "computing": found[key].problem.trace.compute_time,
            "proof": made[claim.key].get("proof", ""),
        }
        small = len(json.dumps(document)) <= LARGEST
        yield EvidenceRow(claim.key, case, figures, document["digest"]), [document] * small


def evidence(
    folder: Path = FOLDER, only: str = "*", time_limit: float = 60.0, seconds: float = 30.0
) -> EvidenceFile:
    """Return the evidence; what is not in the folder is made."""
    rows: list[tuple[EvidenceRow, list[Any]]] = []
    for case in _ORDER:
        path = folder / f"{case.replace(' ', '-')}.json"
        if not path.exists():
            if not fnmatchcase(case, only):
                continue
            _say(case)
            folder.mkdir(parents=True, exist_ok=True)
            write_json(path, measure(case, time_limit, seconds))
        rows += rows_of(case, read_json(path))
    claims, cases = [claim.key for claim in CLAIMS], list(CASES)
    rows.sort(key=lambda item: (claims.index(item[0].claim), cases.index(item[0].case)))
    return evidence_of(SECTION, COMMAND, rows)


def judges(known: EvidenceFile) -> dict[str, Judge]:
    """Return the function that judges each claim by the rows of its cases."""
    return {
        claim.key: lambda rows, claim=claim: [str(claim.judge(rows).verdict)] for claim in CLAIMS
    }


def published(docs: Path) -> EvidenceFile:
    """Return empty evidence, where there is no file of it."""
    return EvidenceFile(SECTION, COMMAND, (), {})


def stated_again() -> dict[str, Again]:
    """Return functions that compute again the ticks proved for all plans within a rule."""

    def within(row: EvidenceRow, held: Any) -> Figures:
        problem = problem_of(row.case) if held is None else schedule_certificate(held).problem
        choices = MAKERS[row.claim](Layers(problem)).choices()
        facts = Facts(problem, cut_of(problem, members_of(choices)), choices)
        proved = facts.least(read(str(row.figures["proof"])))
        found: Figures = {"within": max(proved, int(str(row.figures["lower"])))}
        found["computing"] = problem.trace.compute_time
        if held is not None:
            execution = schedule_certificate(held).result.execution
            assert execution is not None
            if wrong := faults(problem, choices, execution):
                found["against the rule"] = wrong
        return found

    return {rule.key: within for rule in RULES}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure the missing cases, write the evidence and replace the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="pattern of cases that are made")
    parser.add_argument("--time-limit", type=float, default=60.0, help="of certify (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="a rule's (%(default)s)")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--report-only", action="store_true")
    options = parser.parse_args(None if arguments is None else list(arguments))
    only = "" if options.report_only else options.only
    found = evidence(options.folder, only, options.time_limit, options.seconds)
    found.write(options.docs)
    replace_section(options.docs / "claims.md", HEADING, layers_section(found))
    _say(f"wrote evidence and section about equal layers in {options.docs}")


if __name__ == "__main__":
    main()
