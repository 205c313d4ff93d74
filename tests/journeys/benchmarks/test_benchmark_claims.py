"""The benchmark that puts the paper's claims to the test, on a chain of eight stages."""

import importlib
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from offcert.campaign.run import execute
from offcert.campaign.table import CampaignTable
from offcert.certification.ladder import certify
from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.files import read_problem, write_problem
from offcert.questions.schedule.problem import Problem, Transfers
from papers.claims.evidence import evidence_path, read_evidence
from papers.claims.evidence_check import check_section
from papers.claims.offloading import CLAIMS
from papers.claims.theory import Experiment

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
NOTHING = {"status": "NO_PLAN", "seconds": 1.0}
SOURCE = {"model": "resnet18", "input": [8, 3, 224, 224]}


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("claims")


@pytest.fixture
def theory(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("claims_theory")


class Here:
    """Computes what is quick in this process, finds nothing otherwise, and counts cells."""

    def __init__(self) -> None:
        self.computed: list[str] = []

    def __call__(self, cells: Any, table: CampaignTable, **options: Any) -> Any:
        missing = [cell for cell in cells if cell.key not in table.rows]
        for cell in missing:
            quick = cell.method in ("greedy", "vdnn")
            table.put(cell.row(execute(cell)[0] if quick else NOTHING))
        self.computed += [cell.method for cell in missing]
        facts = {"computed": len(missing), "kept": len(cells) - len(missing), "failed": 0}
        return type("Summary", (), facts)


@pytest.fixture
def here(claims: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Here:
    def experiments(folder: Path, time_limit: float) -> Iterator[Experiment]:
        yield Experiment("lemma-3", "i", Fraction(19), 17, 17)

    worker = Here()
    monkeypatch.setattr(claims, "run", worker)
    monkeypatch.setattr(claims, "experiments", experiments)
    return worker


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    problem = replace(cnn_chain(8, 0), name="resnet18-224-b8", source=SOURCE)
    bandwidth = replace(problem.platform, bandwidth=Fraction(61, 5))
    (tmp_path / "run" / "problems").mkdir(parents=True)
    path = tmp_path / "run" / "problems" / "resnet18-224-b8.json"
    write_problem(path, replace(problem, platform=bandwidth))
    (tmp_path / "docs").mkdir()
    options = ["--networks", "resnet18", "--images", "224", "--batches", "8", "--seeds", "2"]
    options += ["--memory", "0:40:20", "--few", "0:40:40", "--time-limit", "2"]
    options += ["--again-time-limit", "0", "--open-batches", "8"]
    return [*options, "--folder", str(tmp_path / "run"), "--docs", str(tmp_path / "docs")]


def test_a_campaign_is_run_reported_resumed_and_reported_the_same(
    claims: ModuleType, here: Here, arguments: list[str], tmp_path: Path
) -> None:
    claims.main(arguments)
    page = tmp_path / "docs" / "claims.md"
    first = page.read_bytes()
    # A chain at three limits, a trace at two: five methods and certify. At two limits of both,
    # two seeds of what is random.
    assert len(here.computed) == 5 * (5 + 1) + 4 * 2
    assert here.computed.count("autoswap") == 4 * 2
    assert b"38 cells: 2 problems at 5 memory limits in all (resnet18 of 8 stages;" in first
    claims.main(arguments)
    assert len(here.computed) == 38
    assert page.read_bytes() == first
    claims.main([*arguments, "--report-only"])
    assert page.read_bytes() == first
    # One more limit of the chain.
    claims.main([*arguments, "--memory", "0:60:20"])
    assert len(here.computed) == 38 + 5 + 1
    assert page.read_bytes() != first


def test_what_stays_open_is_given_less_time(
    claims: ModuleType, arguments: list[str], tmp_path: Path
) -> None:
    known = read_problem(tmp_path / "run" / "problems" / "resnet18-224-b8.json")
    dense = replace(known, name="densenet121-224-b8", source={**SOURCE, "model": "densenet121"})
    for ending in ("", "-blocks"):
        write_problem(tmp_path / "run" / "problems" / f"densenet121-224-b8{ending}.json", dense)
    arguments[1] = "resnet18,densenet121"
    options = claims._parse([*arguments, "--time-limit", "7", "--open-time-limit", "3"])
    seconds = {
        cell.point.name: cell.settings.time_limit
        for cell in claims.cells(options)
        if cell.method == "certify"
    }
    assert seconds == {
        "resnet18-224-b8-chain": 7,
        "resnet18-224-b8": 3,
        "densenet121-224-b8-chain": 3,
        "densenet121-224-b8": 3,
        "densenet121-224-b8-blocks": 7,
    }
    assert claims.stages_of(options.folder) == {
        "resnet18": 8,
        "densenet121": 8,
        "densenet121 by blocks": 8,
    }
    # With a batch that is not among those of what stays open, chains are left.
    found = claims.cells(claims._parse([*arguments, "--open-batches", "32"]))
    assert {cell.point.name for cell in found if cell.method == "certify"} == {
        "resnet18-224-b8-chain",
        "densenet121-224-b8-chain",
    }
    assert {cell.point.name for cell in found} == {
        "resnet18-224-b8-chain",
        "densenet121-224-b8-chain",
    }
    # An image on which no optimum is looked for: what is quick, on chains.
    found = claims.cells(
        claims._parse([*arguments, "--certify-images", "500", "--small-images", "500"])
    )
    assert {cell.method for cell in found} == {"greedy", "dynprog", claims.SLOTS, "vdnn", "tflms"}
    assert {cell.point.name for cell in found} == {
        "resnet18-224-b8-chain",
        "densenet121-224-b8-chain",
    }


def test_what_usually_closes_is_searched_again(
    claims: ModuleType, arguments: list[str], tmp_path: Path
) -> None:
    arguments += ["--again-time-limit", "9"]
    options = claims._parse(arguments)
    wanted = claims.cells(options)
    certified = [cell for cell in wanted if cell.method == "certify"]
    with CampaignTable(tmp_path / "table.jsonl") as table:
        for cell in wanted:
            table.put(cell.row({"status": "FEASIBLE", "seconds": 1.0}))
        again = claims.open_again(options, wanted, table)
        # Of the trace, little time is given to what stays open, and not twice.
        assert [cell.point for cell in again] == [cell.point for cell in certified[:3]]
        assert {cell.settings.time_limit for cell in again} == {9}
        table.put(certified[0].row({"status": "OPTIMAL", "seconds": 1.0}))
        table.put(certified[1].row({"status": "INFEASIBLE", "seconds": 1.0}))
        again = claims.open_again(options, wanted, table)
        assert [cell.point for cell in again] == [certified[2].point]


def test_certificates_that_no_failure_needs_any_more_are_removed(
    claims: ModuleType, here: Here, arguments: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "docs" / "certificates"
    folder.mkdir()
    (folder / "old.json").write_text("{}")
    claims.main(arguments)
    assert [path.name for path in folder.iterdir()] == ["index.json"]


def test_a_chain_says_that_it_is_one(claims: ModuleType, arguments: list[str]) -> None:
    options = claims._parse(arguments)
    (trace,) = claims.problems(options)
    chain = claims.as_chain(trace)
    assert (chain.name, trace.name) == ("resnet18-224-b8-chain", "resnet18-224-b8")
    assert chain.source == {"view": "chain", **SOURCE}
    assert chain.chain is not None
    assert trace == read_problem(options.folder / "problems" / "resnet18-224-b8.json")


def test_without_a_table_there_is_one_sentence(claims: ModuleType, arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"table\.jsonl cannot be read"):
        claims.main([*arguments, "--report-only"])


def test_the_reduction_as_printed_takes_two_units_more(theory: ModuleType) -> None:
    values = [30, 33, 37, 26, 35, 39]
    problem = theory.printed_reduction(values)
    assert problem.chain is not None
    assert problem.chain.activation == (*values, 0, 100, 0, 100, 0, 0)
    assert problem.chain.forward == (0,) * 6 + (100, 0, 100, 0, 0)
    assert (problem.chain.backward[6], sum(problem.chain.backward)) == (200, 200)
    assert certify(problem, time_limit=10, workers=1).result.lower_bound == 600


def test_propositions_2_and_3_are_what_they_say(theory: ModuleType, tmp_path: Path) -> None:
    # All of x0 has to leave for B1. F0 (10), out (600), B1 (20), back (600), B0 (20).
    chain = Chain((10, 10), (20, 20), (600, 100, 100), (0, 0, 0), backward_workspace=(0, 500))
    problem = Problem("two stages", chain, Platform(700, Fraction(1)))
    assert theory.excess(problem) == 1300 - 700
    assert theory.proposition_3(problem) == 1200
    assert theory.proposition_3(problem.with_memory(1299)) == 60
    certified = theory.Certified(tmp_path, 2.0)
    second, third = theory.at_the_peak(certified, problem)
    assert (second.claim, second.stated) == ("proposition-2", 600)
    assert second.lower == second.best == 600
    assert (third.claim, third.stated, third.lower) == ("proposition-3", 1200, 1250)
    assert [each.claim for each in theory.at_the_peak(certified, problem.with_memory(1300))] == [
        "proposition-3"
    ]


def test_the_table_is_part_of_the_evidence(
    claims: ModuleType, here: Here, arguments: list[str], tmp_path: Path
) -> None:
    claims.main(arguments)
    table = importlib.import_module("claims_table")
    evidence = read_evidence(evidence_path(tmp_path / "docs", "offloading"))
    assert len(evidence.of(table.TABLE)) == 38
    page = (tmp_path / "docs" / "claims.md").read_text()
    found = list(check_section(evidence, page, table.judges(evidence), table.stated_again()))
    assert [check.claim for check in found if check.disagreements] == []
    assert {check.claim for check in found} == {claim.key for claim in CLAIMS} | {table.TABLE}
    wrong = page.replace("**confirmed**", "**refuted**")
    found = list(check_section(evidence, wrong, table.judges(evidence), table.stated_again()))
    assert len([check for check in found if check.disagreements]) > 3


def test_experiments_have_the_instances_and_transfers_of_their_theorems(
    theory: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: dict[str, list[Any]] = {}

    def note(self: Any, claim: str, problem: Any, stated: Fraction) -> Experiment:
        seen.setdefault(claim, []).append((problem, stated))
        return Experiment(claim, problem.name, stated, 1, 1)

    monkeypatch.setattr(theory.Certified, "__call__", note)
    monkeypatch.setattr(theory, "at_the_peak", lambda certified, problem: iter(()))
    assert len(list(theory.experiments(tmp_path, 1.0))) == sum(map(len, seen.values()))
    kinds = {claim: {problem.transfers for problem, _ in found} for claim, found in seen.items()}
    assert kinds["theorem-2"] == {Transfers.FRACTIONAL}
    assert kinds["lemma-3"] == kinds["algorithm-1"] == {Transfers.INTERRUPTIBLE}
    assert kinds["theorem-1-yes"] == {Transfers.ATOMIC}
    names = [problem.name for found in seen.values() for problem, _ in found]
    by_claim = [[problem.name for problem, _ in found] for found in seen.values()]
    assert all(len(set(found)) == len(found) for found in by_claim), names
    early = next(stated for problem, stated in seen["lemma-3"] if problem.name == "early-spike")
    assert early == 251


def test_a_problem_is_certified_once_for_all_its_theorems(
    theory: ModuleType, tmp_path: Path
) -> None:
    certified = theory.Certified(tmp_path, 5.0)
    first = certified("lemma-3", theory.counterexample(), Fraction(251))
    assert (first.lower, first.best) == (219, 219)
    path = tmp_path / str(first.certificate)
    stamp = path.stat().st_mtime_ns
    second = certified("algorithm-1", theory.counterexample(), Fraction(251))
    assert (second.lower, second.best, second.certificate) == (219, 219, first.certificate)
    assert path.stat().st_mtime_ns == stamp
