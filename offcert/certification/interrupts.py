"""Interrupts: when they may come, what else counts as one, and who sends them to slow steps.

Every step of a search looks at the clock by itself. If one does not, because a solver or a lock
that it waits for never returns, or a loop of ours never ends, a watchdog interrupts it as Ctrl-C
would, and the search goes on without it. The answers and bounds that it has handed over stay; the
objects that it worked on may be incomplete then and are thrown away. Time for which other programs
have the processors is not the step's.

An interrupt reaches whatever waits or runs Python code, at once. It does not reach a compiled
function before that returns. Those of ours have limits of their own; solvers run in processes or
threads of their own, which are killed or left to themselves. Should one be stuck nevertheless, the
program can only be ended: see `ending_with`.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from offcert.certification.clock import Starved
from offcert.formulations.common.children import leave_behind

if TYPE_CHECKING:
    from offcert.proofs.certificate import Certificate

# The signal by which the watchdog ends a step: one that nobody minds who does not ask for it.
# None where the system has none that can be sent to a thread.
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

    The part had to return what it knew.
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


# Seconds that a step may take beyond its time, and that a step which always runs may take beyond
# its time. Arbitrary.
GRACE, LONG_GRACE = 5.0, 120.0
# Seconds between two interrupts of a step, and their number before the program is ended. Arbitrary.
AGAIN = 2.0
_TRIES = 5
# Seconds between two looks at the clock; seconds between them from which on the machine is taken to
# have slept. Arbitrary.
TICK = 0.25
_JUMP = 2.0

_last_resort: ContextVar[Callable[[Any], object] | None] = ContextVar("last_resort", default=None)


class OutlastedError(KeyboardInterrupt):
    """A step has outlasted its time; everything that minds an interrupt minds this one."""


@contextmanager
def ending_with(act: Callable[[Any], object]) -> Iterator[None]:
    """Have a function called with the best certificate if nothing can interrupt a step.

    `act` is called in another thread, given a certificate of whatever kind is searched for; it has
    to end the process.
    """
    before = _last_resort.set(act)
    try:
        yield
    finally:
        _last_resort.reset(before)


@contextmanager
def ending_whole(known: Callable[[], Any]) -> Iterator[None]:
    """Let searches that are parts of a larger one end the program with what the whole knows.

    `known` returns a certificate of the whole.
    """
    act = _last_resort.get()
    if act is None:
        yield
        return
    with ending_with(lambda part: act(known())):
        yield


@contextmanager
def watched(
    search: Any, seconds: float, known: Callable[[], Any], grace: float | None = None
) -> Iterator[None]:
    """Interrupt the block when it has outlasted its time; that is then a failure like others.

    Time in which the search's clock stands still, something is compiled, or other programs have the
    processors does not count.

    `known` returns a certificate of what is known; `grace` (by default `GRACE`) are seconds that
    the block may take on top of its time.
    """
    grace = GRACE if grace is None else grace
    search.workings.used.clear()
    watch = _Watch(search, seconds + grace, known)
    try:
        with watch:
            yield
    except KeyboardInterrupt:
        if not watch.fired:
            raise
    finally:
        watch.disarm()
    if watch.fired:
        watch.leave_threads_behind()
        search.workings.drop_used()
        search.note_failure(f"it had not ended {grace:g} s after its time limit, {seconds:g} s")


class _Watch:
    """Looks at the clock from another thread while a block runs."""

    def __init__(self, search: Any, seconds: float, known: Callable[[], Any]) -> None:
        self.fired = False
        self._search = search
        self._left = seconds
        self._known = known
        self._last_resort = _last_resort.get()
        self._armed = False
        self._over = threading.Event()
        self._watched = threading.current_thread()
        self._before: Any = None
        self._others: set[threading.Thread] = set()
        self._own: threading.Thread | None = None
        # Only the main thread is one that signals go to.
        in_main = self._watched is threading.main_thread()
        self._signal = OUTLASTED if in_main else None

    def __enter__(self) -> None:
        _count_compilations()
        self._armed = True
        self._search.grant = self._grant
        if self._signal is not None:
            self._before = signal.signal(self._signal, self._interrupted)
        self._others = set(threading.enumerate())
        self._own = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._own.start()

    def __exit__(self, *_: object) -> None:
        self.disarm()

    def leave_threads_behind(self) -> None:
        """Remember threads that the block has left running: nobody may wait for them at the end."""
        for thread in set(threading.enumerate()) - self._others:
            if thread is not self._own:
                leave_behind(thread)

    def disarm(self) -> None:
        """Interrupt nothing any more."""
        self._armed = False
        self._over.set()
        self._search.grant = _grant_nothing
        if self._signal is None:
            self._raise_later(None)
        elif self._before is not None:
            signal.signal(self._signal, self._before)
            self._before = None

    def _grant(self, seconds: float) -> None:
        self._left = max(self._left, seconds + GRACE)

    def _watch(self) -> None:
        before, starved, tries = time.perf_counter(), Starved(), 0
        while not self._over.wait(TICK):
            now, waited = time.perf_counter(), starved.seconds()
            if not self._search.clock_stands_still and _compiling == 0:
                self._left -= min(now - before, _JUMP) - min(waited, _JUMP)
            before = now
            if self._left > 0:
                continue
            self.fired = True
            self._left = AGAIN
            tries += 1
            if tries > _TRIES and self._last_resort is not None:
                self._last_resort(self._known())
            self._interrupt()

    def _interrupt(self) -> None:
        """Raise in the thread of the block; a wait for a lock, say, ends by that."""
        if self._signal is not None:
            assert self._watched.ident is not None
            signal.pthread_kill(self._watched.ident, self._signal)
        elif self._armed:
            self._raise_later(OutlastedError)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise OutlastedError

    def _raise_later(self, error: type[BaseException] | None) -> None:
        """Have an exception raised in another thread as soon as it runs Python code, or none."""
        ident = ctypes.c_ulong(self._watched.ident or 0)
        raised = None if error is None else ctypes.py_object(error)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, raised)


def _grant_nothing(seconds: float) -> None:
    """Nobody watches, so nobody needs to know."""


# Functions that are being compiled now: a count, 0 at first by definition.
_compiling = 0
_counting = False


def _count_compilations() -> None:
    """Count compilations from now on, the first time this is called."""
    global _counting
    if _counting:
        return
    _counting = True
    from numba.core import event

    class Compilations(event.Listener):
        def on_start(self, event: Any) -> None:
            global _compiling
            _compiling += 1

        def on_end(self, event: Any) -> None:
            global _compiling
            _compiling -= 1

    event.register("numba:compile", Compilations())
