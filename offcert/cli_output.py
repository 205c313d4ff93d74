"""What the commands share when solvers write to the terminal on their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def native_output_to_stderr() -> Iterator[None]:
    """Keep what solvers print (HiGHS does at times) apart from what a command says."""
    import ctypes

    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        # What C has buffered would appear later, in the wrong place.
        with suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).fflush(None)
        os.dup2(saved, 1)
        os.close(saved)
