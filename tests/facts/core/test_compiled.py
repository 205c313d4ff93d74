"""Kernels kept on disk are compiled again when something that they were compiled from changes."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core.errors import TypingError

from offcert.core import compiled as module
from offcert.core.compiled import compiled, inlined, inner
from offcert.core.kernel_cache import KernelCache, kernel_digest

_TERM = """
from offcert.core.compiled import inner
from kernels.below.constants import OFFSET


@inner
def term(x):
    return deeper(x) + OFFSET


@inner
def deeper(x):
    return 1 * x
"""
_TOTAL = """
from offcert.core.compiled import compiled
from kernels.below import constants
from kernels.below import (
    term,
)
from kernels.below.pair import Pair

TABLE = (1, 2)


@compiled
def total(x, pair):
    return constants.FACTOR * term.term(x) + 1000 * pair.one + TABLE[1]
"""
_PAIR = (
    "from typing import Any, NamedTuple\n\n\nclass Pair(NamedTuple):\n    one: int\n    two: int\n"
)
_RUN = """
from kernels.below.pair import Pair
from kernels.total import total
print(total(1, Pair(one=5, two=7)), sum(total.stats.cache_hits.values()))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a package of a kernel that calls another's function and reads another's constant."""
    below = tmp_path / "kernels" / "below"
    below.mkdir(parents=True)
    for folder in (below, below.parent):
        (folder / "__init__.py").write_text("")
    (below / "term.py").write_text(_TERM)
    (below / "constants.py").write_text("FACTOR = 2\nOFFSET = 10\n")
    (below / "pair.py").write_text(_PAIR)
    (below.parent / "total.py").write_text(_TOTAL)
    return below.parent


def _run(package: Path, **environment: str) -> tuple[int, int]:
    """Return the kernel's answer, and how many compiled kernels were taken from the disk."""
    # -B: what Python keeps of a source is taken for that of an edit of the same second and length.
    call = [sys.executable, "-B", "-c", _RUN]
    done = subprocess.run(
        call,
        cwd=package.parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    answer, hits = map(int, done.stdout.split())
    return answer, hits


def _run_in_a_copy(package: Path) -> tuple[int, int]:
    """Do the same in a copy of this process, which need not load the compiler first."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def run() -> None:
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(package.parent))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(_RUN, {})
        theirs.send(said.getvalue())

    copy = context.Process(target=run)
    copy.start()
    copy.join()
    assert copy.exitcode == 0
    answer, hits = map(int, ours.recv().split())
    return answer, hits


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.slow
def test_a_kernel_is_compiled_again_when_what_it_reads_changes(package: Path) -> None:
    below = package / "below"
    assert _run_in_a_copy(package) == (5024, 0)
    # What is no part of it: text, lines, another function of the same file.
    for file in ("total.py", "below/term.py", "below/constants.py"):
        path = package / file
        path.write_text(f'"""A text."""\n\n# A comment.\n{path.read_text()}\n\ndef other(): pass\n')
    _edit(below / "term.py", "def deeper(x):\n", 'def deeper(x):\n    """Return it."""\n')
    assert _run_in_a_copy(package) == (5024, 1)
    _edit(below / "term.py", "return 1 * x", "return 3 * x")
    assert _run_in_a_copy(package) == (5028, 0)
    _edit(below / "constants.py", "FACTOR = 2", "FACTOR = 3")
    assert _run_in_a_copy(package) == (5041, 0)
    _edit(below / "constants.py", "OFFSET = 10", "OFFSET = 20")
    assert _run_in_a_copy(package) == (5071, 0)
    _edit(package / "total.py", "(1, 2)", "(1, 4)")
    assert _run_in_a_copy(package) == (5073, 0)
    # The same call: the fields have changed places.
    _edit(below / "pair.py", "one: int\n    two: int", "two: int\n    one: int")
    assert _run_in_a_copy(package) == (5073, 0)


class _Unknown:
    """Something of which the digest cannot say whether it has changed."""


_STRANGE = _Unknown()


def test_what_could_change_unseen_is_refused() -> None:
    def reads() -> bool:
        return _STRANGE is None

    with pytest.raises(TypeError, match=r"reads .*_STRANGE, which is .*_Unknown"):
        kernel_digest(compiled(reads))


def test_every_kernel_has_a_digest_of_its_own() -> None:
    from offcert.certification import warm  # noqa: F401
    from offcert.formulations.labels import store
    from offcert.formulations.labels.pivot import kernel

    assert kernel_digest(kernel.run) == kernel_digest(kernel.run)
    assert len({kernel_digest(one) for one in (kernel.run, kernel.start, store.rebuild)}) == 3


def test_options_reach_the_compiler_and_the_digest() -> None:
    def divide(a: float, b: float) -> float:
        return a / b

    free = compiled(error_model="numpy")(divide)
    assert free(1.0, 0.0) == float("inf")
    strict = compiled(divide)
    with pytest.raises(ZeroDivisionError):
        strict(1.0, 0.0)
    assert kernel_digest(free) != kernel_digest(strict)


class _Two(NamedTuple):
    left: np.ndarray
    right: np.ndarray


@inner
def _scaled(two: _Two, index: int, by: int) -> int:
    return int(two.left[index] * by + two.right[index])


@inlined
def _twice(two: _Two, index: int) -> int:
    return _scaled(two, index, 2)


@compiled
def _sum_of_all(two: _Two, narrow: np.ndarray) -> int:
    total = _scaled(two, 0, 3) + _twice(two, narrow[0])
    for index in range(len(two.left)):
        total += _scaled(two, index, narrow[index])
    return total


def test_inner_kernels_are_compiled_once_and_for_their_callers_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Not the one that an earlier run of this test has left on disk.
    monkeypatch.setattr(KernelCache, "load_overload", lambda *_: None)
    two = _Two(np.array([1, 2]), np.array([10, 20]))
    narrow = np.array([1, 0], dtype=np.int32)
    # 13 of the literal, 24 of the int32, and 11 and 20 of the loop.
    assert _sum_of_all(two, narrow) == (3 + 10) + (2 * 2 + 20) + (1 + 10) + 20
    kernels: list[Any] = [_scaled, _twice]
    assert [len(kernel.overloads) for kernel in kernels] == [1, 1]


def test_an_inner_kernel_can_be_called_from_python() -> None:
    two = _Two(np.array([1, 2]), np.array([10, 20]))
    for _ in range(3):
        assert _twice(two, 1) == 24
    assert _scaled(two, 0, 7) == 17
    # In machine code: Python's own integers would not overflow.
    assert _scaled(two, 0, 2**63 - 1) < 0


@pytest.mark.slow
def test_where_nothing_can_be_kept_kernels_are_compiled_all_the_same(package: Path) -> None:
    assert [_run(package, NUMBA_CACHE_DIR="/dev/null/nowhere") for _ in range(2)] == 2 * [(5024, 0)]


@pytest.mark.slow
def test_without_a_home_kernels_are_kept_where_nobody_else_writes(
    package: Path, tmp_path: Path
) -> None:
    """Neither beside the sources, where a file is in the way, nor in a home."""
    (package / "__pycache__").write_text("")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    where = {"XDG_CACHE_HOME": "/dev/null/none", "TMPDIR": str(temporary)}
    assert [_run(package, **where) for _ in range(2)] == [(5024, 0), (5024, 1)]
    (own,) = temporary.iterdir()
    assert own.stat().st_mode & 0o777 == 0o700
    # What somebody else could have put there is not run.
    own.chmod(0o777)
    assert _run(package, **where) == (5024, 0)


@pytest.mark.slow
def test_two_processes_compile_a_kernel_once(package: Path) -> None:
    call = [sys.executable, "-c", _RUN]
    runs = [
        subprocess.Popen(call, cwd=package.parent, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = sorted(run.communicate()[0] for run in runs)
    assert answers == ["5024 0\n", "5024 1\n"]


def test_a_kernel_that_does_not_compile_leaves_no_lock() -> None:
    @compiled
    def wrong(x: int) -> int:
        return x.nothing  # type: ignore[attr-defined]

    for _ in range(2):
        with pytest.raises(TypingError, match="nothing"):
            wrong(1)
    assert wrong._cache._lock is None  # type: ignore[attr-defined]


def test_the_registry_knows_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTERED", {})
    monkeypatch.setattr(module, "INNER", {})

    def kernel() -> int:
        return 1

    decorators: tuple[Callable[..., object], ...] = (compiled, inner)
    for decorate in decorators:
        decorate(kernel)
    assert list(module.ENTERED) == list(module.INNER) == [f"{__name__}.{kernel.__qualname__}"]
