"""When an interrupt may come, and what else counts as one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from offcert.proofs.certificate import Certificate

# The signal by which `watchdog` ends a step: one that nobody minds who does not ask for it. None
# where the system has none that can be sent to a thread.
OUTLASTED: signal.Signals | None = (
    getattr(signal, "SIGURG", None) if hasattr(signal, "pthread_kill") else None
)


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block, which must be short.

    Compiled libraries turn an interrupt that comes while they are loaded into whatever they like:
    an ImportError, or an end of the process by that signal later on.
    """
    arrived: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, *(() if OUTLASTED is None else (OUTLASTED,)))
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        # A signal that is ignored, or ends the process at once, stays as it is.
        if callable(handler):
            signal.signal(number, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)
    if arrived:
        signal.raise_signal(signal.Signals(arrived[0]))


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error only reports that an interrupt came.

    A compiled function whose arguments are being read says that it "returned a result with an
    exception set" (SystemError), and has the interrupt as its cause.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def mind_interrupt(part: Certificate) -> None:
    """Let an interrupt that ended a part of a search end the rest as well.

    Raises
    ------
    KeyboardInterrupt
        If the part was interrupted: it had to return what it knew.
    """
    if part.notes.interrupted:
        raise KeyboardInterrupt


@contextmanager
def terminating_interrupts() -> Iterator[None]:
    """Let a request to end (SIGTERM) do what Ctrl-C does: end with the best so far."""

    def interrupt(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    # Only the main thread may ask for signals; whoever calls from another one keeps its own way.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
