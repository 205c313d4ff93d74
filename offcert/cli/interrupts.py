"""Ctrl-C at any moment of a process that runs a command: one line, and exit code 130.

A search turns an interrupt into its best result so far, and other work cleans up behind itself:
they need the exception that Python raises. While a command still loads what it needs there is
nothing to keep, and an exception would do harm: compiled libraries turn it into errors of their
own, and the machinery of imports may print a traceback and go on. So the process ends at once then.
What runs before `run_process` is the interpreter's start, where an interrupt is its own traceback.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn

# Exit code after Ctrl-C. Given by the shells: 128 and the signal's number, 2.
EXIT_INTERRUPTED = 130
_MESSAGE = "offcert: interrupted"
_HERE = os.path.dirname(os.path.abspath(__file__))
_IMPORTS = "<frozen importlib"
# Seconds until an interrupt that Python has swallowed comes again. Arbitrary.
_AGAIN = 0.02
# Functions that PyTorch's dispatcher calls. Given by its source.
_DISPATCHED = ("__torch_dispatch__", "find_torch_dispatch_rule")

# When `run_process` was called, by ``time.monotonic``; None, by definition, if it was not.
began: float | None = None


def run_process(load: Callable[[], Callable[[], int]]) -> int:
    """Run the command of this process, which `load` imports, and return its exit code."""
    global began
    began = time.monotonic()
    leaving = _Leaving()
    # Registered first, called last: whatever is to be tidied up at the end has been by then.
    atexit.register(leaving)
    state = _Handler()
    _open_missing()
    try:
        # Whoever started this may have said that it minds no interrupts: a script, with &.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, state)
        run = load()
        sys.unraisablehook = state.unraisable
        state.working = True
        code = run()
    except KeyboardInterrupt:
        state.working = False
        code = say_interrupted()
    except Exception:
        if not state.arrived:
            raise
        # Whatever a library has made of it.
        state.working = False
        code = say_interrupted()
    state.working = False
    if state.arrived:
        _end(code)
    # The result is out: nobody needs to hear how the interpreter was interrupted at its end.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    leaving.code = code
    return code


def _open_missing() -> None:
    """Open standard streams that the process was started without: no other file gets their numbers.

    What is written to the standard output is an error then, as everywhere; what is said on stderr
    is lost.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _end(code: int) -> NoReturn:
    """End without the interpreter's own end, which an interrupt may have spoilt.

    It would end the process by the signal if the interrupt has passed through an ``exec``, and
    threads of solvers that were left in the middle may crash it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class _Leaving:
    """Ends the process without taking compiled libraries apart, which takes up to a second."""

    def __init__(self) -> None:
        # None as long as the command has not returned: what was raised is then said as always.
        self.code: int | None = None

    def __call__(self) -> None:
        if self.code is None:
            return
        # What cannot be written is an error, which is for the interpreter to say.
        with suppress(OSError, ValueError):
            _end(self.code)


def say_interrupted() -> int:
    """Say it in one line, and return the exit code."""
    print(_MESSAGE, file=sys.stderr, flush=True)
    return EXIT_INTERRUPTED


class _Handler:
    """Takes SIGINT: ends the process where nothing would be lost, else raises as Python does."""

    def __init__(self) -> None:
        self.working = False
        self.arrived = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.arrived = True
        if not self.working or _loads_a_command(frame):
            os.write(2, f"{_MESSAGE}\n".encode())
            os._exit(EXIT_INTERRUPTED)
        if _dispatches(frame):
            _interrupt_later()
            return
        raise KeyboardInterrupt

    def unraisable(self, told: sys.UnraisableHookArgs) -> None:
        """Let an interrupt come again that came where Python cannot raise: in a callback."""
        if not issubclass(told.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(told)
            return
        _interrupt_later()


def _interrupt_later() -> None:
    """Let the interrupt come again in a moment."""
    import threading

    # To the thread itself, so that it does not go on waiting for whatever it waits for.
    whom = threading.main_thread().ident
    timer = threading.Timer(_AGAIN, signal.pthread_kill, (whom, signal.SIGINT))
    timer.daemon = True
    timer.start()


def _dispatches(frame: FrameType | None) -> bool:
    """Tell whether PyTorch's dispatcher has called Python.

    It asks for properties of tensors without data so, in functions of C++ that must not raise: an
    exception there aborts the process.
    """
    while frame is not None:
        if frame.f_code.co_name in _DISPATCHED:
            return True
        frame = frame.f_back
    return False


def _loads_a_command(frame: FrameType | None) -> bool:
    """Tell whether the command line itself is importing what it needs."""
    importer: FrameType | None = None
    inside = False
    while frame is not None:
        imports = frame.f_code.co_filename.startswith(_IMPORTS)
        if inside and not imports:
            importer = frame
        inside = imports
        frame = frame.f_back
    return importer is not None and importer.f_code.co_filename.startswith(_HERE)
