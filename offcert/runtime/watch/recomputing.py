"""Whether modules are run again because the backward pass needs what they had computed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Local(threading.local):
    """How many recomputations of a thread are under way, one inside of the other."""

    def __init__(self) -> None:
        self.depth = 0


_LOCAL = _Local()


def is_recomputing() -> bool:
    """Whether a segment runs again in this thread.

    Nobody waits for gradients of what it computes then: the backward pass goes through the graph of
    the first run.
    """
    return _LOCAL.depth > 0


@contextmanager
def recomputing(value: bool = True) -> Iterator[None]:
    """Note that a segment runs again during the block; or that, in it, something runs first."""
    before, _LOCAL.depth = _LOCAL.depth, _LOCAL.depth + 1 if value else 0
    try:
        yield
    finally:
        _LOCAL.depth = before
