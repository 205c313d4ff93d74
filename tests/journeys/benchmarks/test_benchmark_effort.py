"""The rank correlation by which counted effort is compared with time."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("effort")


def test_ranks_and_their_correlation(module: ModuleType) -> None:
    assert module.ranks([30, 10, 10, 20]) == [3, 0.5, 0.5, 2]
    assert module.rank_correlation([1, 2, 3, 4], [1, 4, 9, 16]) == pytest.approx(1)
    assert module.rank_correlation([1, 2, 3, 4], [9, 8, 7, 1]) == pytest.approx(-1)
    # By hand: ranks 0 1 2 and 1 0 2, so 1 - 6 * 2 / (3 * 8).
    assert module.rank_correlation([1, 2, 3], [5, 4, 6]) == pytest.approx(0.5)


def test_what_is_open_counts_by_its_gap_whatever_it_took(module: ModuleType) -> None:
    def row(gap: float, seconds: float, effort: tuple[float, int]) -> dict[str, float]:
        return {
            "gap": gap, "seconds": seconds, "effort_gap": effort[0], "labels": effort[1],
        }  # fmt: skip

    agreeing = [row(0, 1, (0, 5)), row(0, 9, (0, 7)), row(0.1, 3, (0, 9)), row(0.2, 2, (0.1, 1))]
    assert module.correlation(agreeing) == pytest.approx(1)
    agreeing[0]["seconds"] = 10
    assert module.correlation(agreeing) < 1
