"""Whatever a step waits for, it ends soon after its time, and the search goes on without it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace

import pytest

from offcert.certification import climbing, interrupts
from offcert.certification.interrupts import ending_with, watched
from offcert.certification.ladder import certify
from offcert.certification.ladders import joint as choice
from offcert.certification.ladders.joint import LADDERS, ladder_for
from offcert.certification.method import Effort, Method
from offcert.certification.methods import METHODS, solve
from offcert.certification.rung import Rung
from offcert.certification.search import Search
from offcert.core.threads import in_threads
from offcert.proofs.certificate import Certificate
from support.problems.random_instances import random_problem

NEVER = threading.Event()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Half a second instead of five; whoever is stuck is freed in the end."""
    monkeypatch.setattr(climbing, "GRACE", 0.3)
    monkeypatch.setattr(interrupts, "GRACE", 0.3)
    monkeypatch.setattr(interrupts, "TICK", 0.05)
    monkeypatch.setattr(interrupts, "AGAIN", 0.3)
    yield
    NEVER.set()
    NEVER.clear()


def wait_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def wait_for_threads() -> None:
    pool = ThreadPoolExecutor(1)
    wait([pool.submit(NEVER.wait)])


def wait_for_threads_that_are_waited_for_again() -> None:
    """Leaving the first wait begins a second one."""
    list(in_threads(lambda item: NEVER.wait(), range(2), 2))


def go_round_in_circles() -> None:
    while not NEVER.is_set():
        sum(range(1000))


def swallow_interrupts() -> None:
    tries = 0
    while tries < 2:
        try:
            NEVER.wait()
        except KeyboardInterrupt:
            tries += 1


STUCK = (
    wait_for_a_lock,
    wait_for_threads,
    wait_for_threads_that_are_waited_for_again,
    go_round_in_circles,
    swallow_interrupts,
)


def rung_that(act: Callable[[], None]) -> Rung:
    def run(search: Search, effort: Effort) -> None:
        search.begin("stuck")
        act()

    return Rung(Method(run), 0.01, "it is stuck")


@pytest.mark.slow
@pytest.mark.parametrize("act", STUCK, ids=lambda act: act.__name__)
def test_a_step_that_never_ends_is_left_and_the_next_ones_run(
    act: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = random_problem(7, 5)
    whole = LADDERS[ladder_for(problem)]
    reached: list[str] = []
    short = (
        *whole[:2],
        rung_that(act),
        rung_that(lambda: reached.append("next")),
    )
    monkeypatch.setattr(choice, "LADDERS", {ladder_for(problem): short})
    before = signal.getsignal(signal.SIGURG)
    with pytest.warns(UserWarning, match="stuck failed"):
        certificate = certify(problem, time_limit=30, workers=1)
    assert "had not ended 0.3 s after its time limit" in certificate.notes.failed["stuck"]
    assert reached == ["next"]
    assert certificate.result.objective is not None
    assert not certificate.notes.interrupted
    assert signal.getsignal(signal.SIGURG) is before


@pytest.mark.slow
def test_a_method_that_never_ends_leaves_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = replace(METHODS["bounds"], run=lambda *_: wait_for_a_lock())
    monkeypatch.setitem(METHODS, "bounds", stuck)
    with pytest.warns(UserWarning, match="failed"):
        certificate = solve(random_problem(7, 5), "bounds", time_limit=0.1)
    assert certificate.result.lower_bound > 0


@pytest.mark.filterwarnings("ignore:.*the search goes on without it")
def test_in_another_thread_a_loop_ends_too() -> None:
    failed: list[dict[str, str]] = []

    def work() -> None:
        search = Search(random_problem(7, 5), 10.0)
        with watched(search, 0.1, lambda: pytest.fail("not needed"), 0.1):
            go_round_in_circles()
        failed.append(dict(search.notes.failed))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert len(failed) == 1
    assert len(failed[0]) == 1


def test_who_interrupts_is_told_from_the_watchdog() -> None:
    search = Search(random_problem(7, 5), 10.0)
    with pytest.raises(KeyboardInterrupt), watched(search, 60.0, lambda: pytest.fail("no")):
        raise KeyboardInterrupt
    assert not search.notes.failed


@pytest.mark.slow
def test_time_in_which_the_clock_stands_still_or_that_was_granted_does_not_count() -> None:
    search = Search(random_problem(7, 5), 10.0)
    with watched(search, 0.5, lambda: pytest.fail("no"), 0.5):
        with search.untimed():
            time.sleep(1.3)
        search.grant(60.0)
        time.sleep(1.3)
    assert not search.notes.failed


@pytest.mark.slow
def test_what_nothing_can_interrupt_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the last resort only frees what is stuck; the command line ends the process."""
    monkeypatch.setattr(interrupts, "AGAIN", 0.1)
    known: list[Certificate] = []

    def last_resort(certificate: Certificate) -> None:
        known.append(certificate)
        NEVER.set()

    def stuck(search: Search, effort: Effort) -> None:
        while not NEVER.is_set():
            with suppress(KeyboardInterrupt):
                NEVER.wait()

    monkeypatch.setitem(METHODS, "bounds", replace(METHODS["bounds"], run=stuck))
    with pytest.warns(UserWarning, match="failed"), ending_with(last_resort):
        solve(random_problem(7, 5), "bounds", time_limit=0.1)
    assert known[0].result.lower_bound > 0
