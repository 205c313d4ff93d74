"""What of loading a time limit counts."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from offcert.certification import clock
from offcert.certification.climbing import climb
from offcert.certification.clock import Loading, loading_since
from offcert.certification.method import Method
from offcert.certification.rung import Rung
from offcert.certification.running import Running
from offcert.proofs.questions import SCHEDULE


def test_half_a_second_is_free_and_two_seconds_are_left_or_half_of_a_short_limit() -> None:
    spent = Loading(10.0)
    assert spent.counted(0.375) == 0
    assert spent.counted(0.375) == 0.25
    assert spent.counted(0.5) == 0.5
    assert spent.counted(100.0) == 8 - 0.75
    assert spent.counted(100.0) == 0
    assert Loading(3.0).counted(100.0) == 1.5


def test_what_was_loaded_before_counts_for_one_search_only() -> None:
    with loading_since(100.0):
        assert Loading(10.0).counted_before(103.0) == 2.5
        assert Loading(10.0).counted_before(103.0) == 0.0
    assert Loading(10.0).counted_before(103.0) == 0.0


@pytest.mark.parametrize(("seconds", "counted"), [(0.25, 0.0), (3.0, 2.5), (60.0, 6.0)])
def test_a_search_has_less_time_by_what_was_counted(
    monkeypatch: pytest.MonkeyPatch, seconds: float, counted: float
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with loading_since(now - seconds):
        search: Running[None] = Running(8.0)
    assert search.remaining == 8.0 - counted
    free = max(0.0, clock.FREE - seconds)
    with search.untimed():
        now += 2.0
    # Kernels were loaded, none was compiled: that is counted, too, as far as it is not free.
    assert search.remaining == 8.0 - min(6.0, counted + 2.0 - free)


class _Search(Running[None]):
    """A search that knows no answer."""

    question: Any = SCHEDULE
    problem = None
    objective = None
    done = False


def test_no_step_is_begun_that_would_load_as_long_as_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, ran = 1000.0, []

    def rung(name: str, loading: float, always: bool = False) -> Rung:
        def load() -> None:
            nonlocal now
            now += loading

        warm = (cache(load),)
        run = lambda search, effort: ran.append((name, effort.seconds))  # noqa: E731
        return Rung(Method(run, warm=warm, name=name), 1.0, "", always=always)

    rungs = [
        rung("first", 3.5),
        rung("as long as the first", 1.0),
        rung("loaded", 0.0),
        rung("whatever time it is", 2.0, always=True),
    ]
    rungs[2].method.warm[0]()
    monkeypatch.setattr("time.monotonic", lambda: now)
    laddered = SimpleNamespace(ladder=SimpleNamespace(load=lambda: lambda problem: rungs))
    monkeypatch.setattr(_Search, "question", laddered)
    search = _Search(6.0)
    climb(search, lambda: None, 1, 0)
    # Half a second is free. Three are left after the first, which loaded for longer.
    assert ran == [("first", 3.0), ("loaded", 3.0), ("whatever time it is", 2.0)]
