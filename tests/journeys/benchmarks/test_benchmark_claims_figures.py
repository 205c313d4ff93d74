"""The measurements of recomputation on docs/claims.md, computed again and counted otherwise."""

import importlib
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import torch

from offcert.runtime import zoo
from papers.checkpoint_chains.memory_models import dynamic_memory
from papers.checkpoint_chains.networks import selection_network
from papers.checkpoint_chains.stage_ends import stage_end_bytes
from papers.claims.evidence import evidence_path, read_evidence
from papers.claims.evidence_check import check_section
from papers.claims.figures import HEADING, recomputation_figures_section

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
EVIDENCE = read_evidence(evidence_path(ROOT / "docs", "figures"))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims_figures")


def test_the_published_section_follows_from_the_evidence(figures: ModuleType) -> None:
    sections = importlib.import_module("claims_sections")
    assert sections.section_of(PAGE, HEADING) == recomputation_figures_section(EVIDENCE)


def test_figures_are_computed_again_and_certificates_verified(figures: ModuleType) -> None:
    # The roofline of all networks, the deepest ones, and their steps take longer.
    names = ("time", "eighty", "eighty-possible", "regular", "memory", "cut")
    left_out = {f"reforwarding-{name}" for name in names}
    rows = tuple(row for row in EVIDENCE.rows if row.claim not in left_out)
    own = replace(EVIDENCE, rows=rows)
    judges = {key: judge for key, judge in figures.judges(own).items() if key not in left_out}
    found = list(check_section(own, PAGE, judges, figures.stated_again()))
    assert [check.disagreements for check in found if check.disagreements] == []
    assert sum(check.here for check in found) == 3 + 2
    (row,) = figures.overhead_rows(["alexnet"])
    assert row in EVIDENCE.rows
    table = importlib.import_module("claims_table_1")
    plain, less = table.reforwarding_bytes("resnet34")
    here = {row.claim: row.figures["here"] for row in EVIDENCE.rows if row.case == "resnet34"}
    assert here["reforwarding-regular"] == str(Fraction(plain, table.MIB))
    assert here["reforwarding-memory"] == str(Fraction(less, table.MIB))
    assert Fraction(str(here["reforwarding-cut"])) == Fraction(round(table.cut_of("resnet34"), 4))


def test_parameters_are_those_of_the_networks(figures: ModuleType) -> None:
    for name, count in figures.PARAMETERS.items():
        with torch.device("meta"):
            module = zoo.build(name)
        assert sum(each.numel() for each in module.parameters()) == count


@pytest.mark.parametrize("name", ["vgg19", "alexnet"])
def test_curves_have_the_peaks_of_their_models(figures: ModuleType, name: str) -> None:
    model, real = (selection_network(name, 8, pytorch=each) for each in (False, True))
    for checkpoints in figures.PUBLISHED[name].values():
        predicted = list(figures.predicted_bytes(model.output, checkpoints))
        counted = list(figures.counted_bytes(real, checkpoints))
        assert len(predicted) == len(counted) == len(model)
        assert max(predicted) == dynamic_memory(model.output, checkpoints)
        assert max(counted) == stage_end_bytes(real, checkpoints)


def test_only_whole_segments_cost_all_selections_the_same(figures: ModuleType) -> None:
    chain = selection_network("vgg19", 128, pytorch=True)
    for reading, again in figures.READINGS.items():
        ticks = {again(chain, each) for each in figures.PUBLISHED["vgg19"].values()}
        assert (len(ticks) == 1) is (reading == "")
    assert figures.again_whole(chain, (0, 3, 24)) == sum(chain.forward)
    missing = [set(range(h, i - 1)) for h, i in pairwise((0, 3, 24))]
    stages = set().union(*missing)
    assert figures.again_missing(chain, (0, 3, 24)) == sum(chain.forward[each] for each in stages)


def test_another_problem_than_the_statements_is_found(figures: ModuleType) -> None:
    again = figures.stated_again()["selection-time-needed"]
    row = next(row for row in EVIDENCE.of("selection-time-needed") if row.case == "vgg19")
    problem = figures.needed_problem("vgg19")
    held = type("Held", (), {"problem": problem})
    assert again(row, held) == {"stated": row.figures["stated"]}
    network = problem.computed
    assert network is not None
    assert Fraction(str(row.figures["stated"])) * 3 == 4 * network.compute_time
    assert again(row, type("Held", (), {"problem": problem.with_memory(1)})) == {"problem": "vgg19"}
