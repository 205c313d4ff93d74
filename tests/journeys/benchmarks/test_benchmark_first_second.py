"""In a second of a processor, or less, no plan is worse than what needs hardly any search."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from benchmarks import first_second
from benchmarks.first_second import at, drawn, main, means_of, measure, processor_clock, rivals
from offcert.questions.schedule.problem import Recompute

# Seconds of a processor. Rivals count however long they take.
LIMIT = 0.15


@pytest.mark.parametrize("seed", range(12, 15))
def test_no_plan_is_worse_than_a_rival_or_fewer_means(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", processor_clock())
    monkeypatch.setattr(first_second, "SHARE", math.inf)
    beside: dict[str, first_second.Row] = {}
    for means, problem in means_of(next(drawn([seed]))).items():
        row = measure(problem, [LIMIT], beside if means == "both" else {})
        cell = row["limits"][f"{LIMIT:g}"]
        assert cell["ratio"] <= 1, (means, cell, row["rivals"])
        beside[means] = row


def test_rivals_are_of_every_kind() -> None:
    problem = next(drawn([12]))
    assert problem.recompute is Recompute.ANY
    found = rivals(at(problem, 3, 4))
    assert {"sequential", "every layer", "persistent:slots=100", "checkpoints"} <= found.keys()


def test_the_clock_stands_still_while_nothing_is_computed() -> None:
    clock = processor_clock()
    before = clock()
    time.sleep(0.2)
    assert clock() - before < 0.1
    while clock() < before + 0.02:
        sum(range(1000))


def test_counts_of_what_is_worse_are_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", time.monotonic)
    file = tmp_path / "rows.json"
    main(["--drawn", "1", "--limits", "0.1", "-o", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [row["means"] for row in rows] == ["moving", "running again", "both"]
    assert "| 0.1 s | 3 | 0 | " in capsys.readouterr().out
