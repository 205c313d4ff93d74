"""What of loading a time limit counts."""

from __future__ import annotations

import pytest

from offcert.certify import loading
from offcert.certify.loading import Loading, loading_since
from offcert.certify.running import Running


def test_half_a_second_is_free_and_half_of_the_limit_can_be_counted() -> None:
    spent = Loading(10.0)
    assert spent.counted(0.375) == 0
    assert spent.counted(0.375) == 0.25
    assert spent.counted(0.5) == 0.5
    assert spent.counted(100.0) == 5 - 0.75
    assert spent.counted(100.0) == 0


def test_what_was_loaded_before_counts_for_one_search_only() -> None:
    with loading_since(100.0):
        assert Loading(10.0).counted_before(103.0) == 2.5
        assert Loading(10.0).counted_before(103.0) == 0.0
    assert Loading(10.0).counted_before(103.0) == 0.0


@pytest.mark.parametrize(("seconds", "counted"), [(0.25, 0.0), (3.0, 2.5), (60.0, 4.0)])
def test_a_search_has_less_time_by_what_was_counted(
    monkeypatch: pytest.MonkeyPatch, seconds: float, counted: float
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with loading_since(now - seconds):
        search: Running[None] = Running(8.0)
    assert search.remaining == 8.0 - counted
    free = max(0.0, loading.FREE - seconds)
    with search.untimed():
        now += 2.0
    # Kernels were loaded, none was compiled: that is counted, too, as far as it is not free.
    assert search.remaining == 8.0 - min(4.0, counted + 2.0 - free)
