"""Progress of a command as a live line or log lines, and its messages, on standard error."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from offcert.core.messages import plain

if TYPE_CHECKING:
    from rich.text import Text


News = TypeVar("News")

# Redraws of the live line in a second. Arbitrary.
_REFRESHES_A_SECOND = 4
# While one line stands for all, the seconds that a message of its own gives would stand still.
_PLACE = "{:7.1f} s  {}"


@contextmanager
def progress(
    options: argparse.Namespace, describe: Callable[[News], str], begin: str = ""
) -> Iterator[Callable[[News], None] | None]:
    """Yield a function to be called with news, or None where nobody would see them.

    Parameters
    ----------
    options : argparse.Namespace
        ``quiet`` says that nothing is wanted.
    describe : callable
        Returns a piece of news in one line, without the time.
    begin : str
        Text that is shown before there are any news.
    """
    if not options.quiet and sys.stderr.isatty():
        with _live(_ProgressLine(describe, begin or "loading")) as tell:
            yield tell
    elif LOG.isEnabledFor(logging.INFO):
        if begin:
            LOG.info(begin)
        began = time.monotonic()
        yield lambda news: LOG.info(_PLACE.format(time.monotonic() - began, describe(news)))
    else:
        yield None


class _ProgressLine(Generic[News]):
    """The newest piece of news, with the seconds since the beginning."""

    def __init__(self, describe: Callable[[News], str], begin: str) -> None:
        self._describe = describe
        self._said = begin
        self._began = time.monotonic()

    def tell(self, news: News) -> None:
        """Take a piece of news."""
        self._said = self._describe(news)
        LOG.debug(self._said)

    def text(self) -> Text:
        """Return the line as it is now; what is too long for the terminal is cut off."""
        from rich.text import Text

        seconds = time.monotonic() - self._began
        return Text(_PLACE.format(seconds, plain(self._said)), no_wrap=True, overflow="ellipsis")


@contextmanager
def _live(line: _ProgressLine[News]) -> Iterator[Callable[[News], None]]:
    from rich.console import Console
    from rich.live import Live

    with Live(
        get_renderable=line.text,
        console=Console(stderr=True, highlight=False),
        refresh_per_second=_REFRESHES_A_SECOND,
        transient=True,
        # What a command prints on stdout is its result, which comes when the line is gone.
        redirect_stdout=False,
    ):
        yield line.tell


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

    With `verbose` 1 also what is being done (INFO), with 2 all (DEBUG); with `quiet` errors only.
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
