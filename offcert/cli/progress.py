"""Progress of a command that works: a live line on a terminal, log lines elsewhere.

A terminal gets one line, written over and over by `rich`, with the seconds running on. Elsewhere
nothing is said unless ``--verbose`` asks for it: then every piece of news is a log record.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from offcert.cli.messages import LOG
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
