"""How a command ends if something in its process never will."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_CHILDREN = "offcert.formulations.common.children"


@contextmanager
def ending_anyhow(conclude: Callable[[Any], int]) -> Iterator[None]:
    """End the process with what is known if a step of a search can be ended by nothing else.

    Parameters
    ----------
    conclude : callable
        Given the best certificate; returns the exit code.
    """
    from offcert.certify.watchdog import ending_with
    from offcert.cli.parser import EXIT_INPUT
    from offcert.cli.program import exit_code

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
