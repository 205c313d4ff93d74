"""Ctrl-C at any moment of a command: one line, exit code 130, no traceback."""

import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

from offcert.core.files import write_problem
from offcert.instances.cnn import CnnChains

# Interrupts before this module is loaded meet the interpreter itself, not us.
FIRST_OF_OURS = b"offcert.cli.interrupts"


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a command in a process that tells what it imports, and wait until it can be ours."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "offcert", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if FIRST_OF_OURS in line:
            return process
    raise AssertionError(process.communicate())


def said(process: subprocess.Popen[bytes]) -> list[str]:
    """Return what it said at last, without its imports."""
    text = process.communicate(timeout=60)[1].decode()
    return [line for line in text.splitlines() if not line.startswith("import time:")]


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0])
def test_an_interrupt_while_a_command_begins_is_one_line(moment: float, tmp_path: Path) -> None:
    problem = CnnChains(stages=36).problem(0)
    write_problem(tmp_path / "p.json", problem.with_memory(problem.memory_at(Fraction(0))))
    process = start(tmp_path, "certify", "p.json", "-o", "c.json", "--time-limit", "30")
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    lines = said(process)
    # Once it searches, it ends with what it has found.
    assert (process.returncode, lines) in [(130, ["offcert: interrupted"]), (0, [])]
    assert moment > 0.1 or process.returncode == 130
