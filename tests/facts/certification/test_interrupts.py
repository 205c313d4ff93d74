"""Interrupts that wait, and requests to end that are interrupts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from offcert.certification.interrupts import held_interrupts, is_interrupt, terminating_interrupts


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def signal_and_note(number: signal.Signals, done: list[str]) -> None:
    signal.raise_signal(number)
    done.append("all of it")


def test_an_interrupt_waits_until_the_end_of_the_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), held_interrupts():
        signal_and_note(signal.SIGINT, done)
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_is_raised_if_nothing_came_and_errors_pass() -> None:
    with held_interrupts():
        pass
    with pytest.raises(ImportError, match="gone"), held_interrupts():
        raise ImportError("gone")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held_interrupts():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_request_to_end_is_an_interrupt_inside_and_itself_outside() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminating_interrupts():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), terminating_interrupts(), held_interrupts():
        signal_and_note(signal.SIGTERM, done)
    assert done == ["all of it"]


def test_other_threads_have_no_signals_to_hold() -> None:
    reached = []

    def work() -> None:
        with held_interrupts(), terminating_interrupts():
            reached.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reached == [signal.default_int_handler]


def test_an_error_that_an_interrupt_caused_is_one() -> None:
    with pytest.raises(SystemError) as caught:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()
    assert is_interrupt(caught.value)
    assert not is_interrupt(SystemError("of another kind"))
    assert not is_interrupt(None)
