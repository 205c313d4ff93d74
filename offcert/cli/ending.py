"""The end of a command: exit codes of errors, and an exit where something never ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from offcert.cli.interrupts import say_interrupted
from offcert.cli.parser import EXIT_INPUT
from offcert.core.errors import OffcertError
from offcert.core.messages import cut, plain

_CHILDREN = "offcert.formulations.common.children"


def exit_code(act: Callable[[], int]) -> int:
    """Return the code of `act`, or, once its error has been printed, that of the error."""
    try:
        code = act()
        sys.stdout.flush()
    except OffcertError as error:
        print(f"offcert: {plain(str(error))}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        return say_interrupted()
    except BrokenPipeError:
        # Whoever reads has seen enough.
        _drop_the_rest()
        return 0
    except OSError as error:
        what = "the output cannot be written" if error.filename is None else error.filename
        print(f"offcert: {cut(str(what))}: {error.strerror or error}", file=sys.stderr)
        if error.filename is None:
            _drop_the_rest()
        return EXIT_INPUT
    return code


def _drop_the_rest() -> None:
    """Keep the interpreter from writing at exit what could not be written now."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def ending_anyhow(conclude: Callable[[Any], int]) -> Iterator[None]:
    """End the process by `conclude`, given the best so far, if nothing else can end a step."""
    from offcert.certification.interrupts import ending_with

    stdout = os.dup(1)

    def end(certificate: Any) -> None:
        # Solvers are kept from the standard output while they run.
        os.dup2(stdout, 1)
        code = EXIT_INPUT
        try:
            code = exit_code(lambda: conclude(certificate))
            sys.stderr.flush()
        finally:
            os._exit(code)

    try:
        with ending_with(end):
            yield
    finally:
        os.close(stdout)


def end_if_stuck(code: int) -> None:
    """End the process at once if a solver is still at work that nobody waits for.

    The usual way out would wait for it, or take away from it what it works with.
    """
    children = sys.modules.get(_CHILDREN)
    if children is not None and children.threads_left_behind():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
