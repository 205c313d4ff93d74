"""Messages beside the result, on stderr: log records and warnings, a line each."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from offcert.core.messages import plain

LOG = logging.getLogger("offcert")
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class _Lines(logging.Handler):
    """Writes to what stderr is at the moment: a live line may have put itself in between."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as one line."""
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        text = plain(" ".join(record.getMessage().split()))
        print(f"offcert: {level}{text}", file=sys.stderr)


@contextmanager
def messages(verbose: int, quiet: bool) -> Iterator[None]:
    """Show log records of ours and Python's warnings during a command.

    Parameters
    ----------
    verbose : int
        0: warnings; 1: also what is being done (INFO); 2: all (DEBUG).
    quiet : bool
        Errors only.
    """
    handler = _Lines()
    compiling = LOG.getChild("compile")
    before = LOG.level, compiling.level
    LOG.addHandler(handler)
    LOG.setLevel(logging.ERROR if quiet else _LEVELS[min(verbose, 2)])
    # What takes long without a word is said in any case.
    compiling.setLevel(logging.ERROR if quiet else logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(before[0])
        compiling.setLevel(before[1])


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Log a warning's text; the file and line in which it was given help nobody here."""
    LOG.warning("%s", message)
