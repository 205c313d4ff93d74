"""The benchmark of the checkers: that what it times is right, on short traces."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from offcert.questions.schedule.check import check
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.simulate import simulate

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("check")


def test_its_schedules_move_much_and_are_valid(benchmark: ModuleType) -> None:
    problem = benchmark.chain_problem(40)
    schedule = simulate(problem, benchmark.furthest_first(problem))
    assert len(schedule.evicted) > 5
    assert check(problem, schedule) == []
    relaxed, pieces = benchmark.in_pieces(problem, schedule)
    assert len(pieces.pieces) == 3 * len(schedule.transfers)
    assert check_fluid(relaxed, pieces) == []
    assert check_fluid(relaxed.with_memory(problem.platform.memory // 2), pieces) != []


def test_all_is_measured(benchmark: ModuleType) -> None:
    results = benchmark.run((20, 30), 100, 40)
    compared = results["against_definition"]
    assert compared["both_refuse"]
    assert compared["moments_when_tight"] > 0
    assert compared["ratio"] > 0
    assert [row["operations"] for row in results["rows"]] == [40, 60, 100, 100]
    assert all(row["check"] > 0 and row["verify"] > 0 for row in results["rows"])
    assert results["peak_mib"] > 10


def test_a_time_is_only_taken_of_what_is_right(benchmark: ModuleType) -> None:
    with pytest.raises(AssertionError):
        benchmark.seconds(lambda: ["a fault"], [])
