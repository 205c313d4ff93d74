"""What docs/claims.md says of the combined paper's program is what the program does."""

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from offcert.proofs.certificate import certificate_from_json
from offcert.questions.schedule.schedule import FluidSchedule, TransferPiece
from papers.claims.evidence import evidence_path, read_evidence
from papers.claims.evidence_check import check_section
from papers.claims.program import HEADING, program_section

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
EVIDENCE = read_evidence(evidence_path(ROOT / "docs", "program"))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims_program")


def test_the_published_section_follows_from_the_evidence(program: ModuleType) -> None:
    sections = importlib.import_module("claims_sections")
    assert sections.section_of(PAGE, HEADING) == program_section(EVIDENCE)


def test_the_counterexample_is_verified_and_keeps_to_the_assumptions(program: ModuleType) -> None:
    key = "combined-theorem-1"
    own = replace(EVIDENCE, rows=tuple(EVIDENCE.of(key)))
    judges = {key: program.judges(own)[key]}
    (check,) = check_section(own, PAGE, judges, program.stated_again())
    assert check.disagreements == []
    assert check.follows == ["refuted"]
    (document,) = EVIDENCE.documents.values()
    certificate = certificate_from_json(document)
    assert program.assumption_faults(certificate) == []
    schedule = certificate.result.schedule
    assert isinstance(schedule, FluidSchedule)
    # The last byte goes out after everything instead.
    first, *others = schedule.pieces
    end = schedule.makespan
    late = TransferPiece(first.kind, first.gap, end + first.start, end + first.end, first.size)
    moved = FluidSchedule(schedule.starts, schedule.ends, [*others, late])
    forged = replace(certificate, result=replace(certificate.result, schedule=moved))
    assert program.assumption_faults(forged) == ["a2 leaves after the loss"]


def test_figures_of_a_network_are_computed_again(program: ModuleType) -> None:
    published = {(row.claim, row.case): row for row in EVIDENCE.rows}
    found = list(program.slot_rows(["resnet18"]))
    assert len(found) == len(program.PARTS) + 1
    assert all(published[row.claim, row.case] == row for row in found[:-1])
    problem = program.network("resnet18")
    least = program.least_memory(problem)
    limit = problem.trace.compute_time * (1 + program.OVERHEAD)
    step = int(problem.trace.peak_memory * program._STEP)
    taken = program.time_of(problem.with_memory(least))
    below = program.time_of(problem.with_memory(least - step))
    assert taken is not None
    assert taken <= limit
    assert below is None or below > limit
    row = published["combined-program-factor", "resnet18"]
    assert row in list(program.factor_rows(["resnet18"]))
