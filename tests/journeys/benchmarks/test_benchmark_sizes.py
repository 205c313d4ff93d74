"""The benchmarks that say what a part costs: in lines, and in closures without it."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module(request.param)


@pytest.mark.parametrize("module", ["lines"], indirect=True)
def test_rooms_add_up_to_their_package(module: ModuleType) -> None:
    rows = module.rows(10**9)
    for package in module.PACKAGES:
        (whole,) = (row for row in rows if row[0] == package)
        rooms = [row for row in rows if row[0].startswith(f"{package}/")]
        beside = list((module.ROOT / package).glob("*.py"))
        assert whole[1] == sum(row[1] for row in rooms) + len(beside)
        assert whole[2] > sum(row[2] for row in rooms) > 5000
        assert any(row[3] > 1000 for row in rooms)


@pytest.mark.parametrize("module", ["ablation"], indirect=True)
def test_a_kind_that_closes_a_problem_is_missed(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "three-partition-2-100-yes"
    assert module.main(["--only", name, "--time-limit", "5"]) == 0
    said = capsys.readouterr()
    assert "1 of 1 closed" in said.out
    assert f"{name} without nothing: 0.0000% open" in said.err
    assert module.main(["--only", name, "--time-limit", "-1"]) == 2
