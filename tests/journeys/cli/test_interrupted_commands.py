"""Ctrl-C at any moment of a command: one line, exit code 130, no traceback."""

import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

from offcert.instances.cnn import CnnChains
from offcert.questions.schedule.files import write_problem

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


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.05, 0.1, 0.3, 0.5])
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


# What stands for a command, and what it must come to.
SWALLOWED = """
class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

def run():
    Last()
    time.sleep(60)
"""
THROUGH_EXEC = """
def run():
    try:
        exec("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)")
    except KeyboardInterrupt:
        print("ended with what is known")
    return 0
"""
TURNED_INTO_AN_ERROR = """
def run():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        raise ImportError("a library failed to load") from None
"""
DISPATCHED = """
def __torch_dispatch__():
    os.kill(os.getpid(), signal.SIGINT)
    print("answered")

def run():
    __torch_dispatch__()
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("command", "code", "out", "err"),
    [
        (DISPATCHED, 130, "answered\n", "offcert: interrupted\n"),
        (SWALLOWED, 130, "", "offcert: interrupted\n"),
        (THROUGH_EXEC, 0, "ended with what is known\n", ""),
        (TURNED_INTO_AN_ERROR, 130, "", "offcert: interrupted\n"),
    ],
)
def test_what_others_make_of_an_interrupt_changes_nothing(
    command: str, code: int, out: str, err: str
) -> None:
    """Python cannot raise in a destructor, and dies by an interrupt that has passed an exec.

    PyTorch aborts the process if what its dispatcher asks of Python raises.
    """
    program = (
        f"import os, signal, sys, time\nfrom offcert.cli import main, command_line\n{command}\n"
        "command_line.run = run\nsys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


CONFINED = """
import os, sys, time
from offcert.cli import command_line as program, main
from offcert.cli.verify import confined

def work():
    print(os.getpid(), flush=True)
    time.sleep(0.5)
    print("done")
    return 0

program.run = lambda: confined(lambda: None, work, 60, 1e12)
sys.exit(main())
"""


def test_a_process_that_works_for_another_leaves_interrupts_to_it() -> None:
    """A terminal interrupts both; two would say so, and the other one ends this one anyway."""
    process = subprocess.Popen([sys.executable, "-c", CONFINED], stdout=subprocess.PIPE)
    assert process.stdout is not None
    os.kill(int(process.stdout.readline()), signal.SIGINT)
    assert process.communicate(timeout=50)[0] == b"done\n"
    assert process.returncode == 0


def test_what_minds_no_interrupts_goes_on() -> None:
    """So are processes started that a script runs in the background."""
    program = (
        "import os, signal, sys\nfrom offcert.cli import main, command_line as program\n"
        "program.run = lambda: os.kill(os.getpid(), signal.SIGINT) or 0\nsys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert done.returncode == 0
