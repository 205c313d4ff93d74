"""The benchmark of addresses: what it reads, measures and prints."""

from pathlib import Path

import pytest

from benchmarks.placement import Row, main, measure, table
from offcert.questions.placement.problem import PlacementProblem, Residence


def test_a_folder_becomes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "A.8.csv").write_text("id,lower,upper,size\na,0,2,4\nb,1,3,4\n")
    (tmp_path / "B.8.csv").write_text("id,lower,upper,size\na,0,2,3\n")
    (tmp_path / "readme.md").write_text("nothing")
    main([str(tmp_path), "--time-limit", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:6] for line in lines[2:]] == [
        ["| A", "2", "8", "8", "8", "1.0000"],
        ["| B", "1", "3", "3", "3", "1.0000"],
    ]
    main([str(tmp_path), "--only", "A", "--capacity", "7", "--time-limit", "2"])
    assert "| A | 2 | 8 | – | 8 | – |" in capsys.readouterr().out


def test_a_row_says_what_was_found() -> None:
    problem = PlacementProblem("two", [Residence("a", 1, 0, 2), Residence("b", 2, 1, 3)])
    row = measure("two", problem, "greedy-size", time_limit=2.0)
    assert (row.residences, row.load, row.pool) == (2, 3, 3)
    assert "| x | 1 | 2 | 3 | 2 | 1.5000 | 0.1 | feasible |" in table(
        [Row("x", 1, 2, 3, 2, 0.1, "feasible")]
    )
