"""A campaign: what is missing is computed, what fails costs one row, what is there stays."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offcert.campaign import run as module
from offcert.campaign.cells import Cell, CellSettings, grid
from offcert.campaign.pool import PoolTask, ProcessPool
from offcert.campaign.run import CampaignProgress, batches, run
from offcert.campaign.storage import Row
from offcert.campaign.table import CampaignTable
from offcert.core.errors import InputError
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.problem import Problem
from offcert.verification.document import verify_file
from offcert_lab.cluster.dask import run_on_cluster
from support.workers import campaign_workers
from support.workers.campaign_workers import DOOMED, PRELOADED
from support.workers.pool_workers import square

FAILING = {
    "segfault": "killed by SIGSEGV",
    "kill": "killed by SIGKILL, as the system does when it is out of memory",
    "exit": "the process ended with exit code 9",
    "raise": "RuntimeError: no luck at all",
    "eat": "out of memory",
}


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes know the methods that fail, and start from what is loaded already."""
    monkeypatch.setattr(module, "execute", campaign_workers.work)
    monkeypatch.setattr(module, "PRELOADED", PRELOADED)
    monkeypatch.setattr(module, "PRELOADED_TO_SEARCH", PRELOADED)


def doomed() -> Problem:
    return replace(cnn_chain(8, 0), name=DOOMED)


def limits(problem: Problem, count: int) -> list[str | int]:
    return [problem.trace.least_memory + index for index in range(count)]


def facts(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "seconds"}


def test_what_is_there_is_not_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    cells = grid([cnn_chain(8, 0)], ["greedy", "sequential"], ["0%", "25%", "50%"])
    steps: list[CampaignProgress] = []
    with CampaignTable(path) as table:
        first = run(cells[:4], table, jobs=2, progress=steps.append)
    assert (first.cells, first.kept, first.computed, first.failed) == (4, 0, 4, 0)
    assert sorted(step.done for step in steps) == [1, 2, 3, 4]
    assert {step.missing for step in steps} == {4}
    with CampaignTable(path) as table:
        second = run(cells, table, jobs=2, progress=steps.append)
    assert (second.cells, second.kept, second.computed) == (6, 4, 2)
    assert {step.row["key"] for step in steps[4:]} == {cell.key for cell in cells[4:]}
    assert second.rows[:4] == first.rows
    assert [row["key"] for row in second.rows] == [cell.key for cell in cells]
    with CampaignTable(path) as table:
        third = run(cells, table, again="all", jobs=2)
        assert (third.kept, third.computed, len(table.rows)) == (0, 6, 6)
    assert [facts(row) for row in third.rows] == [facts(row) for row in second.rows]


def test_a_crash_costs_one_row_of_its_batch() -> None:
    problem = doomed()
    cells = grid([problem], [*FAILING, "greedy"], limits(problem, 4))
    assert all(cell.batchable for cell in cells)
    with CampaignTable() as table:
        summary = run(cells, table, jobs=2)
    assert summary.failed == 2 * len(FAILING)
    for row in summary.rows:
        dies = row["method"] in FAILING and row["memory"] % 2
        assert (row["status"] == "FAILED") == bool(dies)
        assert row["reason"] == (FAILING[row["method"]] if dies else None)
        assert (row["makespan"] is None) == bool(dies)
        assert row["seconds"] >= 0


def test_failures_are_computed_again_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.jsonl"
    problem = doomed()
    cells = grid([problem], ["exit"], limits(problem, 4))
    with CampaignTable(path) as table:
        assert run(cells, table, jobs=1).failed == 2
    with CampaignTable(path) as table:
        summary = run(cells, table, jobs=1)
    assert (summary.computed, summary.failed) == (0, 2)
    with CampaignTable(path) as table:
        summary = run(cells, table, jobs=1, again="failed")
        assert (summary.computed, summary.kept, summary.failed) == (2, 2, 2)
        assert len(table.rows) == 4


def test_what_never_answers_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 1.0)
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    problem = doomed()
    cells = grid([problem], ["hang"], limits(problem, 2))
    with CampaignTable() as table:
        summary = run(cells, table, jobs=1)
    assert [row["status"] for row in summary.rows].count("FAILED") == 1
    [failed] = [row for row in summary.rows if row["status"] == "FAILED"]
    assert failed["reason"].startswith("killed after")
    assert failed["seconds"] >= 1.0


def test_changed_settings_are_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    for settings, computed in (
        (CellSettings(time_limit=5.0), 2),
        (CellSettings(time_limit=5.0), 0),
        (CellSettings(time_limit=5.0, seed=1), 1),
        (CellSettings(time_limit=4.0), 1),
    ):
        cells = grid([cnn_chain(8, 0)], ["greedy", "certify"], ["50%"], settings)
        with CampaignTable(path) as table:
            assert run(cells, table, jobs=1).computed == computed
    assert len(table.rows) == 4


def test_certificates_are_beside_the_table(tmp_path: Path) -> None:
    path = tmp_path / "results" / "table.parquet"
    path.parent.mkdir()
    folder = tmp_path / "proofs"
    problem = cnn_chain(8, 0)
    least = problem.trace.least_memory
    cells = grid([problem], ["certify", "greedy"], [least - 1, least], CellSettings(time_limit=5.0))
    with CampaignTable(path) as table:
        assert all(row["certificate"] is None for row in run(cells, table, jobs=1).rows)
    # A row without a certificate is not what is asked for now.
    with CampaignTable(path) as table:
        summary = run(cells, table, jobs=1, certificates=folder)
    assert (summary.kept, summary.computed) == (2, 2)
    for row in summary.rows:
        if row["method"] == "greedy":
            assert row["certificate"] is None
            continue
        assert not os.path.isabs(row["certificate"])
        verification = verify_file(path.parent / row["certificate"])
        assert verification.valid
        result = verification.certificate.result
        assert verification.certificate.problem.platform.memory == row["memory"]
        assert (str(result.status), result.objective) == (row["status"], row["makespan"])
    assert {row["status"] for row in summary.rows} == {"INFEASIBLE", "OPTIMAL"}
    with CampaignTable(path) as table:
        assert run(cells, table, jobs=1, certificates=folder).computed == 0
        lost = next(row["certificate"] for row in summary.rows if row["certificate"])
        (path.parent / lost).unlink()
        assert run(cells, table, jobs=1, certificates=folder).computed == 1
        assert (path.parent / lost).exists()


def test_a_problems_name_is_no_path(tmp_path: Path) -> None:
    problem = replace(cnn_chain(8, 0), name="../../a b/ü")
    cells = grid([problem], ["certify"], ["100%"], CellSettings(time_limit=5.0))
    with CampaignTable(tmp_path / "table.jsonl") as table:
        [row] = run(cells, table, jobs=1, certificates=tmp_path / "proofs").rows
    [path] = (tmp_path / "proofs").iterdir()
    assert row["certificate"] == f"proofs/{path.name}"
    assert row["problem"] == problem.name


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    cells = grid([cnn_chain(8, 0)], ["greedy"], [f"{p}%" for p in range(20)])

    def stop(step: CampaignProgress) -> None:
        if step.done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), CampaignTable(path) as table:
        run(cells, table, jobs=2, progress=stop)
    with CampaignTable(path) as table:
        assert len(table.rows) == 7
        assert run(cells, table, jobs=2).computed == 13


def test_batches_hold_cheap_cells_of_one_problem() -> None:
    cells = grid(
        [cnn_chain(8, 0), cnn_chain(8, 1)],
        ["certify", "greedy", "vdnn", "autoswap"],
        [f"{p}%" for p in range(50)],
    )
    for processes in (1, 2, 64):
        tasks = batches(cells, processes)
        assert sorted(c.key for task in tasks for c in task.items) == sorted(c.key for c in cells)
        for task in tasks:
            assert len({cell.point.name for cell in task.items}) == 1
            assert len(task.items) == 1 or all(cell.batchable for cell in task.items)
        sizes = [len(task.items) for task in tasks if task.items[0].batchable]
        assert max(sizes) == {1: 32, 2: 32, 64: 2}[processes]
        cheap = [task.items[0].batchable for task in tasks]
        assert cheap == sorted(cheap, reverse=True)
    assert batches([], 4) == []


def test_patience_is_for_each_cell() -> None:
    cells = grid([cnn_chain(8, 0)], ["greedy", "certify"], None, CellSettings(time_limit=10.0))
    assert [task.patience for task in batches(cells, 1)] == [
        module.PATIENCE * 10 + module.GRACE
    ] * 2


def test_nothing_to_do_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class NeverStarts(ProcessPool):
        def _start(self, task: PoolTask) -> None:
            raise AssertionError

    monkeypatch.setattr(module, "ProcessPool", NeverStarts)
    with CampaignTable() as table:
        assert run([], table).cells == 0


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    cells: list[Cell] = grid([cnn_chain(8, 0)], ["greedy"])
    (tmp_path / "file").write_text("")
    with CampaignTable() as table:
        with pytest.raises(InputError, match='again must be one of no, failed, all, not "maybe"'):
            run(cells, table, again="maybe")
        with pytest.raises(InputError, match="jobs must be at least 1, not 0"):
            run(cells, table, jobs=0)
        with pytest.raises(InputError, match="file cannot be made"):
            run(cells, table, certificates=tmp_path / "file")
    with pytest.raises(InputError, match="no Dask scheduler answers at nonsense:7"):
        list(run_on_cluster(square, [], "nonsense:7", connect_seconds=0.5))


def test_a_row_is_json_whatever_a_solver_returns() -> None:
    cells = grid(
        [cnn_chain(8, 0)], ["atomic-heads", "bounds"], ["30%"], CellSettings(time_limit=5.0)
    )
    with CampaignTable() as table:
        rows = run(cells, table, jobs=1).rows
    assert json.loads(json.dumps(rows)) == list(rows)
