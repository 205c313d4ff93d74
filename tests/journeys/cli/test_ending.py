"""Commands whose process cannot end as usual end all the same, with what is known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from offcert.questions.schedule.files import write_problem
from offcert.verification.document import verify_file
from support.problems.random_instances import random_problem

# Waits for a thread that never ends, and then either goes on or takes no notice of anything.
STUCK = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from offcert.certification import interrupts, methods
from offcert.cli import main

interrupts.GRACE = interrupts.TICK = interrupts.AGAIN = 0.1
minds = sys.argv[1] == "minds"

def run(search, effort):
    future = ThreadPoolExecutor(1).submit(threading.Event().wait)
    while True:
        try:
            wait([future])
        except KeyboardInterrupt:
            if minds:
                raise

methods.METHODS["bounds"] = replace(methods.METHODS["bounds"], run=run, reads=("time_limit",))
arguments = ["solve", "problem.json", "--method", "bounds", "--time-limit", "0.1"]
sys.exit(main([*arguments, "-o", "out.json"]))
"""


@pytest.mark.parametrize("how", ["minds", "swallows"])
def test_a_step_that_never_ends_costs_neither_result_nor_process(how: str, tmp_path: Path) -> None:
    write_problem(tmp_path / "problem.json", random_problem(7, 5))
    done = subprocess.run(
        [sys.executable, "-c", STUCK, how],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "(proved)" in done.stdout
    assert "failed" in done.stdout + done.stderr or how == "swallows"
    verification = verify_file(tmp_path / "out.json")
    assert verification.valid
    assert verification.certificate.result.lower_bound > 0
