"""Kernels that nobody has compiled yet: searches do not wait for them, and take turns later."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from offcert.certification import climbing
from offcert.certification.climbing import climb, climb_at_once
from offcert.certification.compile import GROUPS, main
from offcert.certification.method import Method
from offcert.certification.rung import Rung
from offcert.certification.running import Running
from offcert.certification.warm import WAIT, Compiling, KernelGroup, waits_for_kernels
from offcert.core.kernel_cache import NotCompiledError
from offcert.proofs.questions import SCHEDULE

_KERNEL = "offcert.formulations.labels.pivot.kernel.run"
_CODE = """
import sys
from offcert.core.compiled import compiled
from offcert.core.kernel_cache import NotCompiledError, only_loading

@compiled
def twice(x):
    return 2 * x

try:
    with only_loading():
        print(twice(int(sys.argv[1])))
except NotCompiledError as error:
    print(error)
    print(twice(int(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_kernel_that_is_only_to_be_loaded_is_not_compiled(tmp_path: Path) -> None:
    script = tmp_path / "offcert_twice.py"
    script.write_text(_CODE)
    command = [sys.executable, str(script)]
    told = {"env": {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}}
    first, second = (
        subprocess.run([*command, each], capture_output=True, text=True, check=True, **told).stdout  # type: ignore[call-overload]
        for each in ("3", "4")
    )
    assert first == "__main__.twice is not compiled yet\n6\n"
    assert second == "8\n"


class _Search(Running[None]):
    """A search that may know an answer."""

    question: Any = SCHEDULE
    problem = None
    objective: Any = None
    done = False


class _Asked(Compiling):
    """Kernels that are compiled as soon as time has passed."""

    made: ClassVar[list[_Asked]] = []

    def __init__(self) -> None:
        super().__init__()
        self.made.append(self)
        self.closed = False
        self.kernels: list[str] = []

    def ask(self, missing: NotCompiledError) -> str:
        self.kernels.append(missing.kernel)
        self.asked.add("pivot program")
        return "pivot program"

    @property
    def busy(self) -> bool:
        self.finished |= self.asked
        return True

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[_Asked]:
    _Asked.made = []
    monkeypatch.setattr(climbing, "Compiling", _Asked)
    return _Asked.made


def ladder_of(monkeypatch: pytest.MonkeyPatch, *rungs: Rung) -> None:
    laddered = SimpleNamespace(ladder=SimpleNamespace(load=lambda: lambda problem: rungs))
    monkeypatch.setattr(_Search, "question", laddered)


def test_a_step_whose_kernels_are_missing_runs_when_they_are_there(
    asked: list[_Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def needs_kernels(search: _Search, effort: Any) -> None:
        if not asked[0].finished:
            raise NotCompiledError(_KERNEL)
        ran.append("needs kernels")

    ladder_of(
        monkeypatch,
        Rung(Method(needs_kernels, name="first"), 1.0, ""),
        Rung(Method(lambda *_: ran.append("needs none"), name="second"), 1.0, ""),
    )
    search = _Search(60.0)
    climb_at_once(search, lambda: None, 1, 0)
    assert ran == ["needs none", "needs kernels"]
    assert asked[0].kernels == [_KERNEL]
    assert asked[0].closed


def test_what_is_still_missing_when_its_group_is_there_is_left_out(
    asked: list[_Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(search: _Search, effort: Any) -> None:
        raise NotCompiledError(_KERNEL)

    ladder_of(monkeypatch, Rung(Method(never, name="never"), 1.0, ""))
    climb_at_once(_Search(60.0), lambda: None, 1, 0)
    assert asked[0].kernels == [_KERNEL, _KERNEL]


def test_a_first_answer_is_compiled_for_if_no_other_step_has_one(
    asked: list[_Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def first(search: _Search, effort: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise NotCompiledError(_KERNEL)
        search.objective = 7

    ladder_of(monkeypatch, Rung(Method(first, name="first"), 1.0, "", always=True))
    search = _Search(60.0)
    climb_at_once(search, lambda: None, 1, 0)
    assert (search.objective, asked[0].kernels, len(tries)) == (7, [_KERNEL], 2)


def test_a_search_inside_goes_on_and_says_at_its_end_what_was_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []

    def missing(search: _Search, effort: Any) -> None:
        raise NotCompiledError(_KERNEL)

    ladder_of(
        monkeypatch,
        Rung(Method(missing, name="first"), 1.0, ""),
        Rung(Method(lambda *_: ran.append("second"), name="second"), 1.0, ""),
    )
    with pytest.raises(NotCompiledError, match="is not compiled yet"):
        climb(_Search(60.0), lambda: None, 1, 0)
    assert ran == ["second"]


def test_another_process_compiles_what_it_is_asked_for_and_ends() -> None:
    compiling = Compiling()
    compiling.close()
    assert not compiling.busy
    assert compiling.ask(NotCompiledError(_KERNEL)) == "pivot program"
    # A step says what compiles its kernels; of others the whole group is compiled.
    by_name = NotCompiledError("offcert.heuristics.orders.ordered_kernel.evaluate_ordered")
    by_name.acts = ("warm_plans", "warm_order_search")
    assert compiling.ask(by_name) == "warm_plans,warm_order_search"
    assert compiling.ask(NotCompiledError(_KERNEL)) == "pivot program"
    compiling.close()
    while compiling.busy:
        time.sleep(0.05)
    assert (
        compiling.finished == compiling.asked == {"pivot program", "warm_plans,warm_order_search"}
    )


def test_who_compiles_goes_on_when_nobody_listens_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gone:
        def write(self, text: str) -> None:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    done: list[str] = []
    for name in ("plans", "addresses"):
        act = partial(done.append, name)
        monkeypatch.setitem(GROUPS, name, KernelGroup(1, (), [act]))
    monkeypatch.setattr(sys, "stdout", Gone())
    main(["plans\n", "addresses\n"])
    assert done == ["plans", "addresses"]


def test_compiling_is_counted_as_loading_is_where_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("offcert.certification.running.noted_compilations", _AlwaysCompiling)
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    left = []
    for counts in (False, True):
        search: Running[None] = Running(10.0, counts_compiling=counts)
        with search.untimed():
            now += 4.0
        left.append(search.remaining)
    # Half a second is free.
    assert left == [10.0, 6.5]


def test_a_variable_has_searches_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WAIT, raising=False)
    assert not waits_for_kernels()
    monkeypatch.setenv(WAIT, "wait")
    assert waits_for_kernels()


class _AlwaysCompiling:
    def __init__(self, tell: Any) -> None:
        pass

    def __enter__(self) -> list[str]:
        return [_KERNEL]

    def __exit__(self, *_: object) -> None:
        pass
