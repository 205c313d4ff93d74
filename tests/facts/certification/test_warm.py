"""What is compiled outside the clock."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from offcert.certification.compile import GROUPS
from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.certification.schedule_methods import warm_heads
from offcert.core.errors import MethodError
from offcert.verification.ends import sides as heads_sides
from support.problems.random_instances import mixed_problem

ROOT = Path(__file__).parents[3]
WARMING = {act.__name__: act for group in GROUPS.values() for act in group.acts}
# Each searches more than one kernel deep; the last is what verification searches with.
AMONG = {
    "warm_plans": "offcert.heuristics.orders.ordered_kernel",
    "warm_heads": "offcert.verification.ends.prospects",
    "warm_matched": "offcert.formulations.labels.ends.level",
    "warm_outward": "offcert.verification.outward.search",
    "warm_pivot": "offcert.formulations.labels.store.rebuild",
}


def test_what_judges_heads_and_tails_is_compiled_with_their_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called = []
    honest = heads_sides.floors

    def noting(*arguments: Any) -> Any:
        called.append(arguments)
        return honest(*arguments)

    monkeypatch.setattr(heads_sides, "floors", noting)
    warm_heads.__wrapped__()
    # One call for each side.
    assert len(called) == 2


@contextmanager
def noted_kernels() -> Iterator[set[str]]:
    """Yield the kernels that Python code calls meanwhile, by module and name."""
    called: set[str] = set()

    def noting(kernel: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            called.add(f"{kernel.py_func.__module__}.{kernel.py_func.__name__}")
            return kernel(*arguments)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("offcert."):
                for attribute, value in list(vars(module).items()):
                    if isinstance(value, Dispatcher):
                        patch.setattr(module, attribute, noting(value))
        yield called


@pytest.mark.parametrize("name", WARMING)
def test_however_long_compiling_takes_everything_is_compiled(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute passes between any two looks at the clock, as if one kernel had taken it.

    With a limit in seconds the rest would be compiled by the search itself, within its limit.
    """
    act = WARMING[name].__wrapped__
    # Whatever it calls must be compiled before it is exchanged.
    act()
    with noted_kernels() as usual:
        act()
    minutes = count(0, 60)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(minutes)))
    with noted_kernels() as slow:
        act()
    monkeypatch.undo()
    assert slow == usual
    assert any(kernel.startswith(AMONG.get(name, "offcert.")) for kernel in slow)


@pytest.mark.slow
def test_no_kernel_is_left_for_the_search_to_compile() -> None:
    """What the ladder and its methods call on all kinds of small problems has been called."""
    # On the last the order of both directions of a duplex link has to be looked at apart.
    problems = [mixed_problem(seed, 12, 6) for seed in (1, 7, 11, 20, 23, 26, 35, 57)]
    methods = ("atomic-heads", "matched-heads", "outward", "pivot", "local-search")

    def search() -> None:
        for problem in problems:
            certify(problem, time_limit=0.3, workers=1)
            for method in methods:
                with suppress(MethodError):
                    solve(problem, method, time_limit=0.1)

    def warm() -> None:
        for act in WARMING.values():
            act.__wrapped__()

    # Whatever either calls must be compiled before it is exchanged.
    warm()
    search()
    with noted_kernels() as warmed:
        warm()
    with noted_kernels() as called:
        search()
    assert len(called) > 20
    assert called <= warmed


def test_groups_name_rooms_that_have_kernels() -> None:
    for group in GROUPS.values():
        for beginning in group.modules:
            room = beginning.removesuffix(".").replace(".", "/") or "offcert"
            found = [*ROOT.glob(f"{room}.py"), *ROOT.glob(f"{room}*/**/*.py")]
            assert any(
                "offcert.core.compiled import" in path.read_text()
                for path in found
                if path.is_file()
            ), room
