"""The command that draws tables, called as the console script calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

from offcert.campaign.table import CampaignTable
from offcert.cli import main
from offcert_lab.commands.plot_table import _grids
from offcert_lab.comparisons.curve_figures import MOST_PANELS
from offcert_lab.comparisons.points import Point
from support.problems.campaign_tables import rows


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["plot-table", *arguments]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def write(path: Path, *groups: list[dict[str, Any]]) -> str:
    with CampaignTable(path) as made:
        for group in groups:
            for row in group:
                made.put(row)
    return str(path)


@pytest.fixture
def table(tmp_path: Path) -> str:
    return write(
        tmp_path / "table.jsonl",
        rows("a-chain", 120, certify=90, greedy=99),
        rows("a-chain", 140, certify=70, greedy="NO_PLAN"),
        rows("a", 120, certify=90, greedy=99),
        rows("b", 120, certify=90, greedy=99, image=500),
        rows("c", 120, certify=90, greedy=99, image=500),
    )


@pytest.mark.slow
def test_one_file_shows_all(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all.svg"
    said = run(capsys, table, "-o", str(path), "--bandwidth", "2/1", "--json")
    assert json.loads(said) == {"written": [str(path)]}
    assert path.read_text().startswith("<?xml")


@pytest.mark.slow
def test_a_folder_has_a_figure_a_problem_and_grids(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "figures"
    run(capsys, table, "-o", str(folder), "--bandwidth", "2", "--format", "png")
    expected = {"a.png", "a-chain.png", "b.png", "c.png", "grid-500.png"}
    assert {path.name for path in folder.iterdir()} == expected
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    arguments = [table, "-o", str(folder), "--bandwidth", "2", "--what", "throughput"]
    run(capsys, *arguments, "--format", "png", "--only", "a*")
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"a.png", "a-chain.png"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "x.svg"], 'does not say the bandwidth of the link of "a"'),
        (["-o", "x.svg", "--bandwidth", "fast"], 'bandwidth must look like "12.2GB/s"'),
        (["-o", "x.pdf", "--bandwidth", "2"], "x.pdf must be a folder, or end in .svg or .png"),
        (["-o", "x.svg", "--bandwidth", "2", "--format", "png"], "ends in .svg, but --format"),
        (["-o", "/dev/null/x.svg", "--bandwidth", "2"], "/dev/null is no folder"),
        (["-o", "x.svg", "--only", "z*"], 'no problem that matches "z*"'),
        (["-o", "table.jsonl/x", "--bandwidth", "2"], "cannot be made: Not a directory"),
    ],
)
def test_bad_input_gets_one_sentence_and_writes_nothing(
    options: list[str],
    message: str,
    table: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run(capsys, table, *options, code=2)
    assert said.startswith("offcert: ")
    assert message in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["table.jsonl"]


def test_tables_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be read" in run(capsys, str(tmp_path / "no.csv"), "-o", "x", code=2)
    empty = write(tmp_path / "empty.jsonl")
    assert "empty.jsonl has no rows" in run(capsys, empty, "-o", "x", code=2)
    unknown = write(tmp_path / "t.jsonl", rows("a", 120, certify=90, batch=None))
    options = ["-o", str(tmp_path / "x.svg"), "--what", "throughput", "--bandwidth", "2"]
    assert 'does not say the batch of "a"' in run(capsys, unknown, *options, code=2)


def test_grids_are_by_image_and_view_and_in_pages() -> None:
    def point(name: str, image: int | None) -> Point:
        return Point(name, "", None, image, None, 0, 0, 0, 0.0, 0, (1, 1), {})  # type: ignore[arg-type]

    many = [f"p{number}" for number in range(MOST_PANELS + 1)]
    groups = {name: [point(name, None)] for name in many}
    groups |= {name: [point(name, 224)] for name in ("a", "a-chain")}
    found = dict(_grids(groups))
    assert found == {
        "-1": many[:MOST_PANELS],
        "-2": many[MOST_PANELS:],
        "-224": ["a"],
        "-224-chain": ["a-chain"],
    }
