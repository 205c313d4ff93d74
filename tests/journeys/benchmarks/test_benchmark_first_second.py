"""In a second of a processor, or less, no plan is worse than what needs hardly any search."""

from __future__ import annotations

import json
import math
import random
import time
from fractions import Fraction
from pathlib import Path

import pytest

from benchmarks import first_second
from benchmarks.first_second import at, main, means_of, measure, processor_clock, rivals
from offcert.questions.schedule.problem import Problem, Recompute
from support.problems.random_networks import checkpoint_chain, random_network, recompute_problem
from support.problems.residual_networks import residual_problem

# Seconds of a processor. Rivals count however long they take.
LIMIT = 0.15


def problems() -> list[Problem]:
    """Chains, random networks and residual ones, at limits from tight to wide."""
    found = []
    for seed in range(6):
        rng = random.Random(seed)
        part = Fraction(1 + seed % 3, 4)
        kind = seed % 3
        if kind == 0:
            found.append(recompute_problem(rng, checkpoint_chain(rng, 9 + seed), part))
        elif kind == 1:
            found.append(recompute_problem(rng, random_network(rng, 8 + seed), part))
        else:
            found.append(residual_problem(2 + seed, part))
    return found


@pytest.mark.parametrize("number", range(6))
def test_no_plan_is_worse_than_a_rival_or_fewer_means(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", processor_clock())
    monkeypatch.setattr(first_second, "SHARE", math.inf)
    beside: dict[str, first_second.Row] = {}
    for means, problem in means_of(problems()[number]).items():
        row = measure(problem, [LIMIT], beside if means == "both" else {})
        cell = row["limits"][f"{LIMIT:g}"]
        assert cell["ratio"] <= 1, (means, cell, row["rivals"])
        beside[means] = row


def test_rivals_are_of_every_kind() -> None:
    problem = problems()[0]
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
    main(["--only", "random-4 *", "--limits", "0.1", "-o", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [row["means"] for row in rows] == ["moving", "running again", "both"]
    assert "| 0.1 s | 3 | 0 | " in capsys.readouterr().out
