"""A pool in which a process may end in any way and costs one item only."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from offcert.campaign.pool import Failure, PoolTask, ProcessPool, describe_death
from support.workers.pool_workers import allocate, interrupt, quick_or_asleep, say_and_sleep, square


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # One that nobody has waited for is dead all the same.
    return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def gone_within(process: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not alive(process):
            return True
        time.sleep(0.05)
    return False


def test_an_item_that_ends_its_process_is_the_one_that_fails() -> None:
    tasks = [PoolTask((1, -2, 3, -4, 5), 60.0), PoolTask((), 60.0), PoolTask((6,), 60.0)]
    answers = dict(ProcessPool(square, 2).run(tasks))
    failed = {item: answer for item, answer in answers.items() if isinstance(answer, Failure)}
    assert {item: answer.reason for item, answer in failed.items()} == {
        -2: "the process ended with exit code 3",
        -4: "the process ended with exit code 3",
    }
    assert {item: answers[item] for item in answers.keys() - failed.keys()} == {
        1: 1,
        3: 9,
        5: 25,
        6: 36,
    }


def test_ctrl_c_is_for_the_campaign_alone() -> None:
    assert list(ProcessPool(interrupt, 1).run([PoolTask((1, 2), 60.0)])) == [(1, 1), (2, 2)]


def test_too_much_memory_is_a_reason() -> None:
    most = 4 * 2**30
    answers = list(
        ProcessPool(allocate, 1, most_bytes=most).run([PoolTask((10, 8 * 2**30, 20), 60.0)])
    )
    assert answers[0] == (10, 10)
    assert answers[2] == (20, 20)
    assert answers[1][1].reason == "out of memory"


def test_what_is_overdue_is_killed_and_what_comes_after_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "process"
    pool = ProcessPool(say_and_sleep, 1)
    [(_, answer)] = pool.run([PoolTask((str(path),), 1.0)])
    assert answer.reason.endswith("s without an answer")
    assert 1.0 <= answer.seconds < 20.0
    assert not alive(int(path.read_text()))


def test_who_stops_listening_leaves_no_process(tmp_path: Path) -> None:
    path = tmp_path / "process"
    answers = ProcessPool(quick_or_asleep, 2).run(
        [PoolTask(("quick",), 60.0), PoolTask((str(path),), 60.0)]
    )
    next(answers)
    while not path.exists() or not path.read_text():
        time.sleep(0.02)
    process = int(path.read_text())
    assert alive(process)
    answers.close()
    assert gone_within(process, 5.0)


def test_a_killed_campaign_leaves_no_process(tmp_path: Path) -> None:
    path = tmp_path / "process"
    code = (
        "from support.workers.pool_workers import say_and_sleep\n"
        "from offcert.campaign.pool import ProcessPool, PoolTask\n"
        "if __name__ == '__main__':\n"
        f"    list(ProcessPool(say_and_sleep, 1).run([PoolTask(({str(path)!r},), 60.0)]))\n"
    )
    script = tmp_path / "campaign.py"
    script.write_text(code)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(script)], env=environment) as campaign:
        while not path.exists() or not path.read_text():
            time.sleep(0.02)
            assert campaign.poll() is None
        campaign.kill()
    assert gone_within(int(path.read_text()), 5.0)


def test_what_solvers_print_is_not_what_the_program_prints() -> None:
    # The server keeps the streams that it was started with, so a fresh program is needed.
    code = (
        "from support.workers.pool_workers import chatter\n"
        "from offcert.campaign.pool import ProcessPool, PoolTask\n"
        "print(list(ProcessPool(chatter, 1).run([PoolTask(('noise',), 60.0)])))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == "[('noise', 'noise')]\n"
    assert "noise" in run.stderr


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0, "the process ended with exit code 0"),
        (-signal.SIGSEGV, "killed by SIGSEGV"),
        (-signal.SIGKILL, "killed by SIGKILL, as the system does when it is out of memory"),
    ],
)
def test_reasons(code: int, reason: str) -> None:
    assert describe_death(code) == reason
