"""Test the combined paper's claims about its own program: a section of docs/claims.md.

    python benchmarks/claims_program.py

Everything is computed anew, in some minutes: the evidence and the section, which is replaced.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from claims_sections import replace_section

from offcert.certification.ladder import certify
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import NoPlanError
from offcert.core.platform import Platform
from offcert.core.result import SolveStatus
from offcert.core.units import Units
from offcert.heuristics.combined.search import SLOTS, combined_plan
from offcert.proofs.certificate import Certificate, current_versions
from offcert.questions.schedule.problem import Problem, Recompute, Transfers
from offcert.questions.schedule.result import Result
from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures, evidence_of
from papers.claims.evidence_check import (
    Again,
    Judge,
    proved_range,
    rows_again,
    schedule_certificate,
)
from papers.claims.figures import figure_row, statement_verdict
from papers.claims.program import HEADING, PROGRAM, SEARCHED, THEOREMS, program_section
from papers.claims.searched import searched_row
from papers.claims.theory import Experiment
from papers.combined.assumptions import PUBLISHED
from papers.combined.exact import solve_combined
from papers.combined.supplement import allowed, counted, sequences
from papers.combined.turned import fluid

DOCS = Path(__file__).parent.parent / "docs"
SECTION, COMMAND = "program", "python benchmarks/claims_program.py"
HARDWARE = "v100-pcie"
NETWORKS = ("resnet18", "resnet50", "resnet101", "resnet152", "densenet121", "inception_v3")
SHAPE = (16, 3, 500, 500)
# How far limits are from the least for any plan, on the way to the peak.
PARTS = (Fraction(1, 12), Fraction(1, 6), Fraction(1, 3))
OVERHEAD = Fraction(1, 5)
_LEAST, _MOST = 4, 6
# On which Lemma 1 is tried. Arbitrary.
_SEQUENCES = 1000
# The least memory is found to this part of the peak.
_STEP = Fraction(1, 500)
Shown = tuple[EvidenceRow, list[Any]]


@cache
def network(name: str) -> Problem:
    """Return a network as a chain, with memory for everything."""
    import torch

    from offcert.runtime import zoo
    from offcert.runtime.hardware import hardware
    from offcert.runtime.workloads.workload import Workload
    from papers.combined.checkpoints import profile_checkpoints

    with torch.device("meta"):
        module = zoo.build(name, **zoo.stage_options(name))
    model = hardware(HARDWARE, peak=True)
    chain = profile_checkpoints(module, Workload(name, SHAPE), model)
    platform = Platform(chain.network().trace().peak_memory, Fraction(model.link_bandwidth, 10**9))
    return Problem(name, chain, platform, units=Units("ns", "B"), recompute=Recompute.CHAIN)


def limits(problem: Problem) -> dict[str, Problem]:
    """Return the problem at each limit, by its name."""
    peak = problem.trace.peak_memory
    chain = problem.checkpoint_chain
    assert chain is not None
    least = max(chain.network().own_memory)
    return {
        f"{problem.name} at {part}": problem.with_memory(least + int((peak - least) * part))
        for part in PARTS
    }


@cache
def time_of(problem: Problem, slots: int = SLOTS, offload: bool = True) -> int | None:
    """Return the ticks that the program's plan takes in bytes; None if it has none."""
    with suppress(NoPlanError):
        plan = combined_plan(problem, slots, offload=offload)
        return fluid(plan, problem).makespan if offload else plan.execution.trace.compute_time
    return None


def least_memory(problem: Problem) -> int:
    """Return the least memory, to a part of the peak, with which the plan meets the overhead."""
    peak, compute = problem.trace.peak_memory, problem.trace.compute_time
    step = int(peak * _STEP)
    low, high = 0, -(-peak // step)
    while high - low > 1:
        middle = (low + high) // 2
        found = time_of(problem.with_memory(middle * step))
        if found is not None and found <= compute * (1 + OVERHEAD):
            high = middle
        else:
            low = middle
    return high * step


def factor_rows(names: Sequence[str] = NETWORKS) -> Iterator[EvidenceRow]:
    """Yield how many times less memory the program's plans take within the overhead."""
    for name in names:
        problem = network(name)
        here = Fraction(problem.trace.peak_memory, least_memory(problem))
        here = Fraction(round(100 * here), 100)
        paper = min(max(here, Fraction(_LEAST)), Fraction(_MOST))
        yield figure_row("combined-program-factor", name, paper, here, "×")


def third_rows(names: Sequence[str] = NETWORKS) -> Iterator[EvidenceRow]:
    """Yield the part of the overhead that a link removes, in percent."""
    removed: dict[str, list[Fraction]] = {}
    for name in names:
        for problem in limits(network(name)).values():
            compute = problem.trace.compute_time
            both, alone = time_of(problem), time_of(problem, SLOTS, False)
            if both is not None and alone is not None and alone > compute:
                part = Fraction(alone - both, alone - compute)
                removed.setdefault(name, []).append(100 * max(part, Fraction(0)))
    values = [each for found in removed.values() for each in found]
    case = f"{len(values)} networks and memories"
    yield figure_row("combined-third", case, "100/3", mean(values), "%")
    for name, found in removed.items():
        yield figure_row("combined-third", name, "100/3", mean(found), "%", "network by network")


def slot_rows(names: Sequence[str] = NETWORKS) -> Iterator[EvidenceRow]:
    """Yield by how much twice as many slots improve the program's plans, in percent."""
    without = 0
    for name in names:
        for case, problem in limits(network(name)).items():
            few, many = time_of(problem), time_of(problem, 2 * SLOTS)
            if many is None:
                continue
            if few is None:
                without += 1
                continue
            better = 100 * max(Fraction(0), 1 - Fraction(many, few))
            yield figure_row("combined-slots", case, 0, better, "%")
    reading = "how many limits have a plan with 100 slots and none with 50"
    yield figure_row("combined-slots", "limits", 0, without, "", reading)


def waiting() -> Problem:
    """Return the chain on which the program waits in vain (`docs/theory/errata.md`)."""
    chain = CheckpointChain(
        forward=(1, 4, 0, 0),
        backward=(0, 0, 0, 0),
        output=(0, 1, 1, 7, 0),
        saved=(1, 2, 8, 2),
        gradient=(0, 0, 0, 0, 1),
    )
    platform = Platform(10, Fraction(1, 2))
    transfers = Transfers.INTERRUPTIBLE
    return Problem("waiting", chain, platform, transfers, recompute=Recompute.CHAIN)


def theorem_rows() -> Iterator[Shown]:
    """Yield the counterexample to Theorem 1, with a certificate of the better schedule."""
    problem = waiting()
    stated = Fraction(combined_plan(problem, None).value)
    better = solve_combined(problem, PUBLISHED.without("nested"))
    assert better.objective is not None
    bounds = certify(problem, time_limit=5, workers=1).result.bounds
    result = Result(SolveStatus.FEASIBLE, better.schedule, bounds, execution=better.execution)
    certificate = Certificate(problem, result, method="combined-exact", versions=current_versions())
    document = certificate.to_json()
    lower, best = proved_range(certificate)
    assert best is not None
    row = Experiment("combined-theorem-1", problem.name, stated, lower, best)
    yield row.row(document["digest"]), [document]


def assumption_faults(certificate: Certificate) -> list[str]:
    """Return how a certificate's schedule goes against what the paper assumes of transfers.

    That stored tensors stay is part of the problem, and verified. Nothing may leave after the loss,
    or return before it, and what leaves has to be the output of a stage.
    """
    from offcert.core.platform import Kind
    from offcert.questions.schedule.schedule import FluidSchedule

    schedule, trace = certificate.result.schedule, certificate.executed.trace
    assert isinstance(schedule, FluidSchedule)
    names = [operation.name for operation in trace.operations]
    loss = next(index for index, name in enumerate(names) if name.startswith("B"))
    faults = []
    for piece in schedule.pieces:
        out = piece.kind is Kind.OFFLOAD
        tensor = trace.tensors[trace.gaps[piece.gap].tensor]
        if out and piece.end > schedule.starts[loss]:
            faults.append(f"{tensor.name} leaves after the loss")
        if not out and piece.start < schedule.ends[loss - 1]:
            faults.append(f"{tensor.name} returns before the loss")
        if not tensor.name.startswith("a"):
            faults.append(f"{tensor.name} is no output of a stage")
    return faults


def lemma_rows() -> Iterator[EvidenceRow]:
    """Yield the supplement's Lemma 1 on random sequences."""
    found = [(each.idle_by_lemma(), each.idle_by_search(), each) for each in sequences(_SEQUENCES)]
    wrong = [f"{each}: {stated}, not {least}" for stated, least, each in found if stated != least]
    result = len(found), len(wrong), wrong[0] if wrong else ""
    yield searched_row("combined-lemma-1", "random sequences", result)


def complexity_rows() -> Iterator[EvidenceRow]:
    """Yield whether the program's choices keep to the bound of B.4, by stages."""
    for layers in (4, 8, 16, 24):
        cases = [(slots, seed) for slots in (6, 12, 24, 48) for seed in range(3)]
        wrong = []
        for slots, seed in cases:
            count, most = counted(layers, slots, seed), allowed(layers, slots)
            if count > most:
                wrong.append(f"{slots} slots: {count}, not {most}")
        result = len(cases), len(wrong), wrong[0] if wrong else ""
        yield searched_row("combined-complexity", f"{layers} stages", result)


_COMPUTED = {
    "combined-program-factor": factor_rows,
    "combined-third": third_rows,
    "combined-slots": slot_rows,
    "combined-lemma-1": lemma_rows,
    "combined-complexity": complexity_rows,
}


def evidence() -> EvidenceFile:
    """Compute everything and return it."""

    def rows() -> Iterator[Shown]:
        for make in _COMPUTED.values():
            for row in make():
                yield row, []
        yield from theorem_rows()

    return evidence_of(SECTION, COMMAND, rows())


def judges(known: EvidenceFile) -> dict[str, Judge]:
    """Return the function that judges each claim by the rows of its cases."""
    found: dict[str, Judge] = {
        claim.key: lambda rows, claim=claim: [str(claim.verdict(rows))] for claim in PROGRAM
    }
    found |= {claim.key: lambda rows, claim=claim: [claim.verdict(rows)] for claim in SEARCHED}
    return found | {
        claim.key: lambda rows, claim=claim: [statement_verdict(claim, rows)] for claim in THEOREMS
    }


def published(docs: Path) -> EvidenceFile:
    """Return empty evidence, where there is no file of it."""
    return EvidenceFile(SECTION, COMMAND, (), {})


def stated_again() -> dict[str, Again]:
    """Return the functions that run the program again."""

    def theorem(row: EvidenceRow, held: Any) -> Figures:
        certificate = schedule_certificate(held)
        faults = assumption_faults(certificate)
        value = combined_plan(certificate.problem, None).value
        return {"stated": str(value)} | ({"against the assumptions": faults[0]} if faults else {})

    found = {key: rows_again(make) for key, make in _COMPUTED.items()}
    return found | {"combined-theorem-1": theorem}


def main() -> None:
    """Compute everything, write the evidence and replace the section."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    found = evidence()
    found.write(DOCS)
    replace_section(DOCS / "claims.md", HEADING, program_section(found))
    for row in found.rows:
        print(row.claim, row.case, row.figures)
    print(f"wrote evidence and section about the program in {DOCS}", file=sys.stderr)


if __name__ == "__main__":
    main()
