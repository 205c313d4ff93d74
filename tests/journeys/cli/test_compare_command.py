"""`offcert compare`, as the console script calls it: killed, interrupted, started again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from offcert.campaign.storage import read_rows
from offcert.campaign.table import CampaignTable, read
from offcert.cli import main
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.files import write_problem

# Four chains, 11 limits, six methods.
CELLS = 264
CAMPAIGN = ("library:cnn-8-*", "--memory", "0:100:10", "--no-certify", "--jobs", "2")
METHODS = ("--methods", "bounds,sequential,greedy,dynprog,vdnn,tflms")


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["compare", *arguments]) == code
    captured = capsys.readouterr()
    return captured.err if code == 2 else captured.out


def start(path: Path) -> subprocess.Popen[bytes]:
    """Start a campaign in a process group of its own."""
    command = [sys.executable, "-m", "offcert", "compare", *CAMPAIGN, *METHODS, "-o", str(path)]
    return subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_for_lines(journal: Path, count: int, campaign: subprocess.Popen[bytes]) -> None:
    while not journal.exists() or journal.read_bytes().count(b"\n") < count:
        assert campaign.poll() is None, campaign.communicate()
        time.sleep(0.005)


def test_a_campaign_killed_half_way_computes_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    journal = tmp_path / "table.parquet.journal"
    with start(path) as campaign:
        wait_for_lines(journal, CELLS // 3, campaign)
        os.killpg(campaign.pid, signal.SIGKILL)
    assert not path.exists()
    whole = [line for line in journal.read_bytes().split(b"\n")[:-1] if line]
    before = {row["key"]: row for row in map(json.loads, whole)}
    assert CELLS // 3 <= len(before) < CELLS
    command = [sys.executable, "-m", "offcert", "compare", *CAMPAIGN, *METHODS, "--json"]
    done = subprocess.run([*command, "-o", str(path)], capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout)
    assert (summary["cells"], summary["failed"]) == (CELLS, 0)
    assert summary["kept"] == len(before)
    assert summary["computed"] == CELLS - len(before)
    after = {row["key"]: row for row in read_rows(path)}
    assert len(after) == CELLS
    # Measured times cannot be the same by chance.
    assert {key: after[key] for key in before} == before
    assert sorted(tmp_path.iterdir()) == [path.with_name(".table.parquet.lock"), path]
    frame = read(path)
    assert frame.groupby("method").size().tolist() == [44] * 6
    assert sorted(frame["memory_percent"].unique()) == [float(p) for p in range(0, 101, 10)]


def test_an_interrupt_writes_the_table(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    with start(path) as campaign:
        wait_for_lines(tmp_path / "table.parquet.journal", CELLS // 10, campaign)
        # As the terminal does: to every process.
        os.killpg(campaign.pid, signal.SIGINT)
        said_last = campaign.communicate(timeout=60)[1].decode()
    rows = read_rows(path)
    assert campaign.returncode == 130
    # A process that is just being forked may complain afterwards: it is not ours yet.
    assert said_last.startswith(f"offcert: interrupted; {len(rows)} of {CELLS} rows in {path}\n")
    assert CELLS // 10 <= len(rows) < CELLS
    assert {row["status"] for row in rows} <= {"FEASIBLE", "OPTIMAL", "NO_PLAN", "UNKNOWN"}
    assert sorted(tmp_path.iterdir()) == [path.with_name(".table.parquet.lock"), path]


def test_the_optimum_stands_beside_the_methods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = tmp_path / "chain.json"
    write_problem(problem, cnn_chain(8, 2))
    arguments = (str(problem), "--methods", "greedy,bounds", "--memory", "20%,100%,1")
    arguments += ("--time-limit", "5", "--jobs", "1")
    document: dict[str, Any] = json.loads(said(capsys, *arguments, "--json"))
    assert (document["cells"], document["computed"], document["written"]) == (9, 9, None)
    rows = {(row["method"], row["memory_percent"]): row for row in document["rows"]}
    assert {row["problem"] for row in document["rows"]} == {"chain"}
    best, greedy = rows["certify", 20.0], rows["greedy", 20.0]
    assert best["status"] == "OPTIMAL"
    assert best["makespan"] == best["proved_bound"] <= greedy["makespan"]
    lines = said(capsys, *arguments).splitlines()
    assert lines[0].split() == ["problem", "memory", "makespan", "gap", "greedy", "bounds"]
    ratio = f"{greedy['makespan'] / best['makespan']:.3f}"
    assert lines[1].split()[:7] == ["chain", "20", "%", str(best["makespan"]), "0", "%", ratio]
    assert lines[2].split()[1:] == ["100", "%", str(best_at(rows)), "0", "%", "1.000", "≥", "1.000"]
    assert lines[3].split() == ["chain", "1", "infeasible", "-", "infeasible", "infeasible"]
    assert lines[-1] == "9 cells: 9 computed, 0 there before"


def best_at(rows: dict[Any, Any]) -> int:
    found = rows["certify", 100.0]
    assert found["makespan"] == found["compute_time"]
    return int(found["makespan"])


def test_certificates_and_a_second_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    arguments = ("library:cnn-8-0", "--methods", "vdnn", "--time-limit", "5", "-o", str(table))
    first = said(capsys, *arguments, "--certificates", str(tmp_path / "proofs"))
    assert f"wrote {table}" in first
    rows = read_rows(table)
    stored = [row["certificate"] for row in rows if row["method"] == "certify"]
    assert len(stored) == 3
    for name in stored:
        assert main(["verify", str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert "6 cells: 0 computed, 6 there before" in said(capsys, *arguments)
    assert read_rows(table) == rows


def test_failures_are_said_and_make_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.jsonl"
    arguments = ("library:cnn-8-0", "--methods", "greedy", "--no-certify", "-o", str(table))
    said(capsys, *arguments)
    row = read_rows(table)[0] | {"status": "FAILED", "makespan": None, "reason": "killed by X"}
    with CampaignTable(table) as found:
        found.put(row)
    text = said(capsys, *arguments, code=1)
    assert "3 cells: 0 computed, 3 there before, 1 failed" in text
    assert "failed: cnn-8-0, 0 %, greedy: killed by X" in text
    assert json.loads(said(capsys, *arguments, "--json", code=1))["failed"] == 1
    again = said(capsys, *arguments, "--again", "failed")
    assert "3 cells: 1 computed, 2 there before" in again


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["library:none", "--methods", "greedy"], 'no family of the library matches "none"'),
        (["library:cnn-8-0", "--methods", "gredy"], "methods must be of certify, bounds, .*gredy"),
        (
            ["library:cnn-8-0", "--methods", "greedy,dynprog:slots=no"],
            'option slots of method dynprog must be an integer of at least 1 or none, not "no"',
        ),
        (["library:cnn-8-0", "--methods", "greedy", "--memory", "5:1:1"], "must go up"),
        (["library:cnn-8-0", "--methods", "greedy", "--memory", "x"], 'memory must look .*"x"'),
        (["library:cnn-8-0", "--methods", "greedy", "-o", "t.xlsx"], "t.xlsx must end with"),
        (["library:cnn-8-0", "--methods", "greedy", "--process-memory", "x"], "size must be"),
        (["missing.json", "--methods", "greedy"], "missing.json cannot be read"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import re

    monkeypatch.chdir(tmp_path)
    text = said(capsys, *arguments, code=2)
    assert re.search(message, text)
    assert text.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_two_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.parquet"
    with CampaignTable(path):
        text = said(capsys, *CAMPAIGN, *METHODS, "-o", str(path), code=2)
    assert text == (
        f"offcert: {path} is being written to by another campaign; wait for its end, or choose "
        "another output\n"
    )
