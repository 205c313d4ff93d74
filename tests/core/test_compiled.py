"""Kernels kept on disk are compiled again when a module they were compiled from changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numba
import pytest

from offcert.core.compiled import compiled, digest

_TERM = (
    "from offcert.core.compiled import compiled\n\n\n@compiled\ndef term(x):\n    return x + {}\n"
)
_SUM = """
from offcert.core.compiled import compiled
from kernels.below.constants import (
    FACTOR,
)
from kernels.below import term


@compiled
def total(x):
    return FACTOR * term.term(x)
"""
_RUN = "from kernels.total import total; print(total(1), sum(total.stats.cache_hits.values()))"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a package of a kernel that calls another's function and reads another's constant."""
    below = tmp_path / "kernels" / "below"
    below.mkdir(parents=True)
    for folder in (below, below.parent):
        (folder / "__init__.py").write_text("")
    (below / "term.py").write_text(_TERM.format(10))
    (below / "constants.py").write_text("FACTOR = 2\n")
    (below.parent / "total.py").write_text(_SUM)
    return below.parent


def _run(package: Path) -> tuple[int, int]:
    """Return the kernel's answer, and how many compiled kernels were taken from the disk."""
    call = [sys.executable, "-c", _RUN]
    done = subprocess.run(call, cwd=package.parent, capture_output=True, text=True, check=True)
    answer, hits = map(int, done.stdout.split())
    return answer, hits


def test_a_kernel_follows_the_modules_that_it_was_compiled_from(package: Path) -> None:
    assert _run(package) == (22, 0)
    assert _run(package) == (22, 1)
    (package / "below" / "term.py").write_text(_TERM.format(20))
    assert _run(package) == (42, 0)
    (package / "below" / "constants.py").write_text("FACTOR = 3\n")
    assert _run(package) == (63, 0)
    assert _run(package) == (63, 1)


@pytest.mark.parametrize("changed", ["total.py", "below/__init__.py", "below/term.py"])
def test_the_digest_covers_what_is_imported(package: Path, changed: str) -> None:
    before = digest(package, package / "total.py")
    (package / changed).write_text((package / changed).read_text() + "# changed\n")
    assert digest(package, package / "total.py") != before


def test_the_digest_leaves_out_what_is_not_imported(package: Path) -> None:
    before = digest(package, package / "total.py")
    (package / "other.py").write_text("from kernels.total import total\n")
    assert digest(package, package / "total.py") == before


def test_options_reach_the_compiler_and_the_setting_is_left_alone() -> None:
    before = numba.config.CACHE_DIR
    divide = compiled(error_model="numpy")(lambda a, b: a / b)
    assert divide(1.0, 0.0) == float("inf")
    assert before == numba.config.CACHE_DIR
