"""The benchmark of compiling: what it compares, on kernels that are there already."""

import importlib
import json
import types
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.compile import GROUPS

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("compile")


def test_rates_and_ratios_to_another_version(
    benchmark: types.ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Into an empty folder it would take a minute.
    emptied: list[str] = []

    def in_place(call: list[str], env: dict[str, str], **options: Any) -> Any:
        emptied.append(env.pop("NUMBA_CACHE_DIR"))
        return run(call, env=env, **options)

    run: Any = benchmark.subprocess.run
    rates: Any = benchmark.rates
    monkeypatch.setattr(benchmark.subprocess, "run", in_place)
    monkeypatch.setattr(benchmark, "REPEATS", 1)
    monkeypatch.setattr(benchmark, "rates", lambda: rates(labels=5000, steps=100))
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert benchmark.main(["-o", str(first)]) == 0
    assert not Path(emptied[0]).exists()
    before = json.loads(first.read_text())
    assert {group["name"] for group in before["compilation"]["groups"]} == set(GROUPS)
    assert before["rates"].keys() == {"pivot labels", "heads labels", "annealing steps"}
    again = {name: {**before[name]} for name in ("compilation", "rates")}
    monkeypatch.setattr(benchmark, "compilation", lambda workers: again["compilation"])
    monkeypatch.setattr(benchmark, "rates", lambda: again["rates"])
    before["compilation"]["cpu_seconds"] *= 1000
    before["rates"]["pivot labels"] /= 1000
    first.write_text(json.dumps(before))
    capsys.readouterr()
    assert benchmark.main(["--baseline", str(first), "-o", str(second)]) == 0
    ratios = json.loads(second.read_text())["ratios"]
    same = {"heads labels": 1.0, "annealing steps": 1.0}
    assert ratios == pytest.approx({"compiling": 1000, "pivot labels": 1000, **same})
    assert "times as fast: compiling" in capsys.readouterr().out
