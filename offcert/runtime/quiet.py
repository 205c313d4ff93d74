"""Other people's errors in one line, and their logs kept short."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


def one_line(error: BaseException) -> str:
    """Return the kind of an error and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep fake tensors from logging a failure that is reported in one sentence."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
