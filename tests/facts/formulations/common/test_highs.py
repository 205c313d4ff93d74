"""HiGHS in a process of its own: whatever becomes of that process, this one goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from offcert.formulations.common import highs
from offcert.formulations.common.highs import FAILED, run_highs
from offcert.formulations.common.linear_model import LinearModel
from offcert.formulations.common.linear_solvers import solve_linear


def endless() -> LinearModel:
    """Return a market split problem: tiny, and far beyond any solver within minutes."""
    rng = random.Random(1)
    model = LinearModel()
    columns = [model.column(0, 1, integer=True) for _ in range(50)]
    for _ in range(6):
        weights = [rng.randrange(100) for _ in columns]
        terms = [(column, float(w)) for column, w in zip(columns, weights, strict=True)]
        above, below = model.column(0, 1e4, cost=1.0), model.column(0, 1e4, cost=1.0)
        half = float(sum(weights) // 2)
        model.row([*terms, (above, -1.0), (below, 1.0)], half, half)
    return model


def easy() -> int:
    """Return 7, found by HiGHS."""
    answer = run_highs("linprog", 10.0, c=[1.0], bounds=[(7.0, 9.0)], method="highs")
    return round(answer.fun)


def while_running(act: Callable[[int], None], times: int = 1) -> threading.Thread:
    """Call `act` with the number of the process, each time it has worked for a moment."""

    def watch() -> None:
        seen: set[int] = set()
        while len(seen) < times:
            time.sleep(0.05)
            worker = highs._worker
            if worker is not None and worker.pid not in seen and busy(worker.pid):
                seen.add(worker.pid)
                act(worker.pid)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def busy(pid: int) -> bool:
    """Whether a process has computed for more than 0.1 s since it was asked first."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    spent = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    known = _started.setdefault(pid, spent)
    return spent > known + 0.1


_started: dict[int, float] = {}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_process_leaves_no_claim_and_the_next_program_gets_another(
    number: signal.Signals,
) -> None:
    assert easy() == 7
    watcher = while_running(lambda pid: os.kill(pid, number), times=2)
    answer = solve_linear(endless(), "scipy", time_limit=60.0)
    watcher.join()
    # The second try, without presolve, was killed as well.
    assert (answer.values, answer.infeasible) == (None, False)
    assert answer.bound == -float("inf")
    assert answer.error == (
        f"HiGHS failed: HiGHS was ended by signal {number.value} ({number.name})"
    )
    assert easy() == 7


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_comes_through_at_once_and_ends_the_process() -> None:
    ended: list[int] = []

    def interrupt(pid: int) -> None:
        ended.append(pid)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    assert easy() == 7
    watcher = while_running(interrupt)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        solve_linear(endless(), "scipy", time_limit=60.0)
    assert time.monotonic() - began < 30.0
    watcher.join()
    with pytest.raises(ProcessLookupError):
        os.kill(ended[0], 0)
    assert easy() == 7


@pytest.mark.slow
def test_who_takes_no_notice_of_the_time_limit_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs, "OVERRUN_FACTOR", 0.0)
    monkeypatch.setattr(highs, "OVERRUN_SECONDS", 0.5)
    answer = solve_linear(endless(), "scipy", time_limit=60.0)
    assert answer.bound == -float("inf")
    assert answer.error == "HiGHS failed: HiGHS was stopped after 0.5 s"
    monkeypatch.undo()
    assert easy() == 7


@pytest.mark.slow
def test_one_that_does_not_even_start_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = tmp_path / "asleep.py"
    asleep.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(highs, "WORKER", asleep)
    monkeypatch.setattr(highs, "START_SECONDS", 0.3)
    highs.end_process()
    answer = run_highs("linprog", 60.0, c=[1.0], bounds=[(7.0, 9.0)], method="highs")
    assert answer.status == FAILED
    assert answer.message == "HiGHS did not start within 0.3 s"
    monkeypatch.undo()
    assert easy() == 7


def test_what_scipy_refuses_is_a_failure_with_its_words() -> None:
    answer = run_highs("linprog", 1.0, c=[1.0], bounds=[(2.0, 1.0, 0.0)], method="highs")
    assert answer.status == FAILED
    assert answer.x is None
    assert answer.message.startswith("ValueError: ")
    assert easy() == 7


@pytest.mark.slow
def test_one_process_serves_many_programs_until_it_ends() -> None:
    assert easy() == 7
    worker = highs._worker
    assert worker is not None
    assert easy() == 7
    assert highs._worker is worker
    os.kill(worker.pid, signal.SIGKILL)
    worker._process.wait()
    assert easy() == 7
    assert highs._worker is not worker


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Whatever distributes the tests may have turned interrupts off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


FORKED = """
import os
from offcert.formulations.common import highs

def easy():
    return round(highs.run_highs("linprog", 9, c=[1.0], bounds=[(7, 9)], method="highs").fun)

assert easy() == 7
first = highs._worker.pid
child = os.fork()
if child == 0:
    os._exit(0 if easy() == 7 and highs._worker.pid != first else 1)
assert os.waitpid(child, 0)[1] == 0
assert easy() == 7 and highs._worker.pid == first
print(first)
"""


@pytest.mark.slow
def test_a_copy_of_this_process_has_a_process_of_its_own_and_nothing_is_left_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert not Path(f"/proc/{done.stdout.strip()}").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_no_cbc_behind() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    found: list[int] = []
    # Before anything starts: a thread may come late.
    before = set(children.read_text().split())

    def interrupt() -> None:
        while not found:
            time.sleep(0.05)
            new = set(children.read_text().split()) - before
            found.extend(int(pid) for pid in new if "cbc" in Path(f"/proc/{pid}/comm").read_text())
        time.sleep(0.2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    watcher = threading.Thread(target=interrupt, daemon=True)
    watcher.start()
    with pytest.raises(KeyboardInterrupt):
        solve_linear(endless(), "PULP_CBC_CMD", time_limit=60.0)
    watcher.join()
    assert gone(found[0])


def test_a_killed_cbc_leaves_no_claim() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")

    def kill() -> None:
        while True:
            time.sleep(0.05)
            for pid in children.read_text().split():
                if "cbc" in Path(f"/proc/{pid}/comm").read_text():
                    time.sleep(0.2)
                    os.kill(int(pid), signal.SIGKILL)
                    return

    watcher = threading.Thread(target=kill, daemon=True)
    watcher.start()
    answer = solve_linear(endless(), "PULP_CBC_CMD", time_limit=60.0)
    watcher.join()
    assert (answer.values, answer.bound, answer.infeasible) == (None, -float("inf"), False)
    assert "PulpSolverError" in answer.error


def gone(pid: int) -> bool:
    """Whether a process has ended, or will not run any more; the system may need a moment."""
    for _ in range(100):
        path = Path(f"/proc/{pid}/stat")
        if not path.exists() or path.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False
